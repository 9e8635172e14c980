"""Optimizers for torch over ``optimizer_step``: state of 8 or 32 bits, all tensors in few launches.

Use them as those of ``torch.optim``::

    import planq.torch.optim

    optimizer = planq.torch.optim.AdamW8bit(model.parameters(), lr=1e-4)

Bits:
    Those of the plans: the same on the host and on every GPU, whatever tensors a step has beside
    one. docs/numerics/optimizer.md has the formulas.

Options:
    Every optimizer takes the :class:`Options`, for all parameters, in a param group for those of
    the group, and by :meth:`Optimizer.override` for one parameter.

Steps:
    Parameters of a group that have one device, dtype and number of steps take a step together. The
    number stays on the device, so that a captured graph trains; a learning rate that is a tensor is
    read when the graph runs, one that is a number is part of it.

Loss scaling:
    ``torch.amp.GradScaler`` hands its scale and its flag on: neither waits for the device.

States:
    ``state1`` to ``state3``, with ``absmax1`` to ``absmax3`` where they have 8 bits: names of
    bitsandbytes, whose state dicts :meth:`Optimizer.load_state_dict` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Final, TypeAlias, TypedDict, Unpack, overload

import torch

from planq import _core
from planq.codebooks import dynamic
from planq.dtypes import (
    NonFiniteGradient,
    OptimizerAlgorithm,
    Rounding,
    StateFormat,
    TrustRatio,
    WeightDecayMode,
)
from planq.ops.optimizer import OptimizerStepArgs, OptimizerStepDescriptor
from planq.plan import Plan
from planq.stream import host_stream

__all__ = [
    "LAMB",
    "LARS",
    "SGD",
    "AdEMAMix",
    "AdEMAMix8bit",
    "Adagrad",
    "Adagrad8bit",
    "Adam",
    "Adam8bit",
    "AdamW",
    "AdamW8bit",
    "LAMB8bit",
    "LARS8bit",
    "Lion",
    "Lion8bit",
    "Optimizer",
    "Options",
    "RMSprop",
    "RMSprop8bit",
    "SGD8bit",
]

Number: TypeAlias = "float | torch.Tensor"
Values: TypeAlias = dict[str, Any]


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments.

    Attributes:
        state_format: FLOAT32, BLOCKWISE8 or STATIC8; the ``8bit`` classes: BLOCKWISE8.
        min_8bit_size: Parameters with fewer elements have state of 32 bits; 4096.
        block_size: Elements of a block of BLOCKWISE8; 256.
        weight_decay_mode: DECOUPLED as in AdamW and in bitsandbytes, COUPLED or AFTER.
        trust_ratio: By what updates are multiplied; LAMB and LARS: LAYERWISE.
        skip_zeros: Elements whose gradient is 0 stay as they are.
        nonfinite: What becomes of gradients that are NaN or infinite: PROPAGATE or SKIP_ELEMENT. A
            GradScaler skips whole steps.
        rounding: STOCHASTIC draws the parameters of 16 bits.
        seed: Of the draws.
        gradient_scale: By which gradients are multiplied; 1.
    """

    state_format: StateFormat | str
    min_8bit_size: int
    block_size: int
    weight_decay_mode: WeightDecayMode | str
    trust_ratio: TrustRatio | str
    skip_zeros: bool
    nonfinite: NonFiniteGradient | str
    rounding: Rounding | str
    seed: int
    gradient_scale: Number


_OPTIONS: Final[Options] = {
    "state_format": StateFormat.FLOAT32,
    "min_8bit_size": 4096,
    "block_size": 256,
    "weight_decay_mode": WeightDecayMode.DECOUPLED,
    "trust_ratio": TrustRatio.DEFAULT,
    "skip_zeros": False,
    "nonfinite": NonFiniteGradient.PROPAGATE,
    "rounding": Rounding.NEAREST_EVEN,
    "seed": 0,
    "gradient_scale": 1.0,
}
_FIELDS: Final = (
    "weight_decay_mode",
    "trust_ratio",
    "skip_zeros",
    "nonfinite",
    "nesterov",
    "centered",
)
_STATES: Final = ("state1", "state2", "state3")
_ABSMAX: Final = ("absmax1", "absmax2", "absmax3")
_MAPS: Final = ("qmap1", "qmap2", "qmap3")
_BLOCKS: Final = (256, 2048, 4096, 1024, 512, 128, 64)
# Where newer versions of bitsandbytes keep the states of 8 bits in a state dict.
_NESTED: Final = "__bnb_optimizer_quant_state__"
_HALVES: Final = (torch.float16, torch.bfloat16)


class Optimizer(torch.optim.Optimizer):
    """What the optimizers of this module have in common.

    Attributes:
        algorithm: Which optimizer.
        default_format: How states are stored where no option says.
        signed: Which states have a sign, and so the signed dynamic map.
    """

    algorithm: ClassVar[OptimizerAlgorithm]
    default_format: ClassVar[StateFormat] = StateFormat.FLOAT32
    # Read by torch.amp.GradScaler, which then leaves two tensors for the next step.
    _step_supports_amp_scaling: ClassVar[bool] = True
    signed: ClassVar[tuple[bool, ...]] = (True,)

    def __init__(self, params: Any, defaults: Values, options: Options) -> None:
        """Takes the parameters; ``defaults`` has the optimizer's own arguments."""
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(f"{type(self).__name__} has no option {name!r}")
        self._ids: dict[torch.Tensor, int] = {}
        self._overrides: dict[torch.Tensor, Values] = {}
        self._plans: dict[Hashable, Plan] = {}
        self._shared_maps: dict[Hashable, torch.Tensor] = {}
        known = {**_OPTIONS, "state_format": self.default_format, **options}
        # Words, which torch.load takes from anybody.
        words = {name: x.value if isinstance(x, Enum) else x for name, x in known.items()}
        super().__init__(params, {**words, **defaults})

    def add_param_group(self, param_group: Values) -> None:
        """Adds a group; ids by which draws tell tensors apart go on counting."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            self._ids.setdefault(p, len(self._ids))

    def override(self, param: torch.Tensor, **options: Any) -> None:
        """Gives one parameter options, or arguments, of its own: those of its group do not hold."""
        if param not in self._ids:
            raise ValueError("the optimizer has no such parameter")
        self._overrides[param] = {**self._overrides.get(param, {}), **options}

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The scalars of a step, by the names of the operator."""
        raise NotImplementedError

    # --- A step

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Takes a step for every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for params, options in self._together():
                self._share_step(params)
                self._take(params, options)
        return loss

    def _together(self) -> Iterator[tuple[list[torch.Tensor], Values]]:
        """Parameters that take a step in one call, with their options."""
        found: dict[Hashable, tuple[list[torch.Tensor], Values]] = {}
        for number, group in enumerate(self.param_groups):
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise RuntimeError(f"{type(self).__name__} takes no sparse gradients")
                own = self._overrides.get(p)
                options = {**group, **own} if own else group
                if not self.state[p]:
                    self.state[p].update(self._started(p, options))
                key = (number, p if own else None, *self._kind(p))
                found.setdefault(key, ([], options))[0].append(p)
        return iter(found.values())

    def _kind(self, p: torch.Tensor) -> tuple[Hashable, ...]:
        """What parameters have to share, to take a step together."""
        state, grad = self.state[p], p.grad
        step = state["step"]
        maps = tuple(id(state[name]) for name in _MAPS if name in state)
        count = id(step) if isinstance(step, torch.Tensor) else (step,)
        kind = (p.device, p.dtype, None if grad is None else grad.dtype, state["state1"].dtype)
        return (*kind, count, maps)

    def _share_step(self, params: list[torch.Tensor]) -> None:
        """Gives parameters one count of steps in memory, which no others count by."""
        step = self.state[params[0]]["step"]
        if isinstance(step, torch.Tensor):
            users = Counter(id(state.get("step")) for state in self.state.values())
            if users[id(step)] == len(params):
                return
            shared = step.clone()
        else:
            shared = torch.tensor(step, dtype=torch.int64, device=params[0].device)
        for p in params:
            self.state[p]["step"] = shared

    def _take(self, params: list[torch.Tensor], options: Values) -> None:
        plan = self._plan(params, options)
        states = [self.state[p] for p in params]
        listed: Values = {
            name: [state[name] for state in states]
            for name in (*_STATES, *_ABSMAX)
            if name in states[0]
        }
        maps: Values = {
            f"codebook{k}": states[0][name] for k, name in enumerate(_MAPS, 1) if name in states[0]
        }
        draws: Values = (
            {"seed": options["seed"], "offset": 0} if self._draws(params[0], options) else {}
        )
        device = params[0].device
        scaled = self._amp(device, options)
        args = OptimizerStepArgs(
            parameter=[p.detach() for p in params],
            gradient=[p.grad for p in params if p.grad is not None],
            step=states[0]["step"],
            weight_decay=options["weight_decay"],
            **self.scalars(options),
            **listed,
            **maps,
            **draws,
            **scaled,
        )
        plan.run(_stream(device), _workspace(plan, device), args)

    def _amp(self, device: torch.device, options: Values) -> Values:
        """The scale of gradients, and whether to skip the step, where a GradScaler says."""
        found, by = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        scale = options["gradient_scale"]
        scaled: Values = {"gradient_scale": scale if by is None else (scale / by).to(device)}
        return scaled if found is None else {**scaled, "found_nonfinite": found.to(device)}

    @staticmethod
    def _draws(p: torch.Tensor, options: Values) -> bool:
        return p.dtype in _HALVES and options["rounding"] == Rounding.STOCHASTIC

    def _plan(self, params: list[torch.Tensor], options: Values) -> Plan:
        """The plan of a list, which is kept."""
        p, grad = params[0], params[0].grad
        draws = self._draws(p, options)
        fields: Values = {name: options[name] for name in _FIELDS if name in options}
        fields["shapes"] = tuple(tuple(each.shape) for each in params)
        fields["parameter_dtype"] = p.dtype
        fields["gradient_dtype"] = p.dtype if grad is None else grad.dtype
        if self.state[p]["state1"].dtype == torch.uint8:
            fields["state_format"] = options["state_format"]
            if fields["state_format"] == StateFormat.BLOCKWISE8:
                fields["block_size"] = options["block_size"]
        if getattr(self, "found_inf", None) is not None:
            fields["nonfinite"] = NonFiniteGradient.SKIP_STEP
        if draws:
            fields["rounding"] = Rounding.STOCHASTIC
            fields["tensor_ids"] = tuple(self._ids[each] for each in params)
        key = (p.device, *fields.items())
        plan = self._plans.get(key)
        if plan is None:
            desc = OptimizerStepDescriptor(algorithm=self.algorithm, advance_step=True, **fields)
            plan = self._plans[key] = Plan.select(_stream(p.device), desc)
        return plan

    # --- States

    def _is_coded(self, p: torch.Tensor, options: Mapping[str, Any]) -> bool:
        is_large = p.numel() >= int(options["min_8bit_size"])
        return is_large and bool(options["state_format"] != StateFormat.FLOAT32)

    def _signs(self, options: Mapping[str, Any]) -> tuple[bool, ...]:
        """Of the states that there are, whether they have one."""
        return (*self.signed, True) if options.get("centered") else self.signed

    def _started(self, p: torch.Tensor, options: Mapping[str, Any]) -> Values:
        """States before the first step."""
        made: Values = {"step": 0}
        coded = self._is_coded(p, options)
        is_static = options["state_format"] == StateFormat.STATIC8
        blocks = 1 if is_static else -(-p.numel() // options["block_size"])
        for k, signed in enumerate(self._signs(options)):
            if coded:
                zero = 127 if signed else 0  # the code of 0
                made[_STATES[k]] = torch.full(p.shape, zero, dtype=torch.uint8, device=p.device)
                made[_ABSMAX[k]] = torch.zeros(blocks, device=p.device)
            else:
                made[_STATES[k]] = torch.zeros(p.shape, device=p.device)
        return made

    def load_state_dict(self, state_dict: Values) -> None:
        """Takes the state of an optimizer of this module, or of bitsandbytes' of the same kind.

        Raises:
            ValueError: Other numbers of groups or parameters; states that this optimizer does not
                have, or of other shapes.
        """
        saved = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in saved]
        if sizes != [len(group["params"]) for group in self.param_groups]:
            raise ValueError("the state dict has other parameter groups than this optimizer")
        for group, values in zip(self.param_groups, saved, strict=True):
            group.update(self._group_values(values))
        ids = chain.from_iterable(group["params"] for group in saved)
        self.state.clear()
        for group in self.param_groups:
            for p, number in zip(group["params"], ids, strict=False):
                if values := state_dict["state"].get(number):
                    options = {**group, **self._overrides.get(p, {})}
                    self.state[p].update(self._loaded(p, values, options))

    def _group_values(self, values: Values) -> Values:
        """What a saved group says; bitsandbytes has other names for some, and more of them."""
        if "t_alpha" not in values and ("betas" in self.defaults or "betas" not in values):
            return {name: x for name, x in values.items() if name != "params"}
        shared = ("lr", "betas", "eps", "weight_decay", "initial_lr")
        found = {name: values[name] for name in shared if name in values}
        if "betas" not in self.defaults:
            found |= self.from_betas(found.pop("betas"))
        elif len(self.signed) == 3:
            found["alpha"] = values["alpha"]
        return found

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """Arguments out of the betas by which bitsandbytes keeps them."""
        return {}

    def __setstate__(self, state: Values) -> None:
        super().__setstate__(state)
        listed = chain.from_iterable(group["params"] for group in self.param_groups)
        self._ids = {p: i for i, p in enumerate(listed)}
        self._overrides, self._plans, self._shared_maps = {}, {}, {}

    def _loaded(self, p: torch.Tensor, values: Values, options: Values) -> Values:
        """States of a parameter, where it is."""
        values = {**values, **values.get(_NESTED, {})}
        if "max1" in values:  # bitsandbytes' static states
            values |= {f"absmax{k}": values[f"max{k}"] for k in (1, 2) if f"max{k}" in values}
        if len(self.signed) == 3 and "state3" not in values:  # which has m and n in one tensor
            for first, third in zip(("state1", "absmax1"), ("state3", "absmax3"), strict=True):
                if first in values:
                    values[first], values[third] = values[first].unbind(0)
            if "qmap1" in values:
                values["qmap3"] = values["qmap1"]
        made: Values = {"step": int(values["step"])}
        signs = self._signs(options)
        for k, name in enumerate(_STATES[: len(signs)]):
            if name not in values or values[name].numel() != p.numel():
                raise ValueError(f"the state dict has no {name} of shape {tuple(p.shape)}")
            state = values[name].detach().to(p.device, copy=True).reshape(p.shape)
            made[name] = state if state.dtype == torch.uint8 else state.float()
            if state.dtype == torch.uint8:
                absmax = values[_ABSMAX[k]].detach().float().reshape(-1)
                made[_ABSMAX[k]] = absmax.to(p.device, copy=True)
                self._load_map(p, k, values, made, signed=signs[k])
        if "absmax1" in made:
            self._fit_blocks(p, made["absmax1"].numel(), options)
        return made

    def _load_map(
        self, p: torch.Tensor, k: int, values: Values, made: Values, *, signed: bool
    ) -> None:
        """Keeps a map that is another than the plan's own; parameters share it."""
        given = values.get(_MAPS[k])
        if given is None:
            return
        held = given.detach().float().cpu()
        if torch.equal(held, torch.from_numpy(dynamic(signed))):
            return
        key = (p.device, held.numpy().tobytes())
        made[_MAPS[k]] = self._shared_maps.setdefault(key, held.to(p.device))

    def _fit_blocks(self, p: torch.Tensor, blocks: int, options: Values) -> None:
        """Finds the size of blocks, where it is not that of the options."""
        sizes = (options["block_size"], *_BLOCKS)
        if options["state_format"] != StateFormat.BLOCKWISE8:
            if blocks == 1:
                self.override(p, state_format=StateFormat.STATIC8)
                return
            self.override(p, state_format=StateFormat.BLOCKWISE8)
        size = next((size for size in sizes if -(-p.numel() // size) == blocks), None)
        if size is None:
            raise ValueError(f"the state dict has {blocks} blocks of {p.numel()} elements")
        if size != options["block_size"]:
            self.override(p, block_size=size)


def _stream(device: torch.device) -> Any:
    """The current one, or as many threads of the host as torch uses."""
    if device.type == "cuda":
        return torch.cuda.current_stream(device)
    return host_stream(threads=torch.get_num_threads())


def _workspace(plan: Plan, device: torch.device) -> Any:
    """Bytes of torch's allocator, at an aligned address."""
    size = plan.workspace_size()
    if size == 0:
        return None
    room = torch.empty(size + _core.WORKSPACE_ALIGNMENT, dtype=torch.uint8, device=device)
    first = -room.data_ptr() % _core.WORKSPACE_ALIGNMENT
    return room[first : first + size]


class Adam(Optimizer):
    """Adam; weight decay is DECOUPLED, as bitsandbytes has it, unless an option says otherwise."""

    algorithm = OptimizerAlgorithm.ADAM
    signed = (True, False)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.Adam``, and the options."""
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, own, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, both betas and eps."""
        beta1, beta2 = options["betas"]
        return {"lr": options["lr"], "beta1": beta1, "beta2": beta2, "eps": options["eps"]}


class Adam8bit(Adam):
    """:class:`Adam` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class AdamW(Adam):
    """AdamW: Adam with a weight decay of 0.01."""

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.AdamW``, and the options."""
        super().__init__(params, lr, betas, eps, weight_decay, **options)


class AdamW8bit(AdamW):
    """:class:`AdamW` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class AdEMAMix(Optimizer):
    """AdEMAMix: Adam with a second, slower average; its schedules are the caller's.

    Change ``alpha`` and the third of ``betas`` in the param groups.
    """

    algorithm = OptimizerAlgorithm.ADEMAMIX
    signed = (True, False, True)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9999),
        alpha: float = 5.0,
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' AdEMAMix, without schedules, and the options."""
        own = {"lr": lr, "betas": betas, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, own, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, three betas, alpha and eps."""
        named = zip(("beta1", "beta2", "beta3"), options["betas"], strict=True)
        return {name: options[name] for name in ("lr", "alpha", "eps")} | dict(named)


class AdEMAMix8bit(AdEMAMix):
    """:class:`AdEMAMix` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class Lion(Optimizer):
    """Lion: steps by signs."""

    algorithm = OptimizerAlgorithm.LION

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' Lion, and the options."""
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate and both betas."""
        beta1, beta2 = options["betas"]
        return {"lr": options["lr"], "beta1": beta1, "beta2": beta2}


class Lion8bit(Lion):
    """:class:`Lion` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    algorithm = OptimizerAlgorithm.MOMENTUM

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.SGD``, and the options."""
        if (nesterov or dampening != 0) and momentum == 0:
            raise ValueError("nesterov and dampening are of momentum, which is 0")
        own: Values = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(
            params, own | {"weight_decay": weight_decay, "nesterov": nesterov}, options
        )

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, momentum and dampening."""
        return {
            "lr": options["lr"],
            "beta1": options["momentum"],
            "beta2": options["dampening"],
        }

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """Momentum and dampening."""
        return {"momentum": betas[0], "dampening": betas[1]}


class SGD8bit(SGD):
    """:class:`SGD` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class RMSprop(Optimizer):
    """RMSprop, centered if wanted; without momentum."""

    algorithm = OptimizerAlgorithm.RMSPROP
    signed = (False,)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        centered: bool = False,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of ``torch.optim.RMSprop`` but momentum, and the options."""
        own: Values = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**own, "centered": centered}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate, alpha and eps."""
        return {"lr": options["lr"], "beta1": options["alpha"], "eps": options["eps"]}

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """The share that remains."""
        return {"alpha": betas[0]}


class RMSprop8bit(RMSprop):
    """:class:`RMSprop` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class Adagrad(Optimizer):
    """Adagrad, without a decay of the learning rate."""

    algorithm = OptimizerAlgorithm.ADAGRAD
    signed = (False,)

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-2,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
        **options: Unpack[Options],
    ) -> None:
        """Takes arguments of ``torch.optim.Adagrad``, and the options."""
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "eps": eps}, options)

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The rate and eps."""
        return {"lr": options["lr"], "eps": options["eps"]}


class Adagrad8bit(Adagrad):
    """:class:`Adagrad` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class LAMB(Adam):
    """LAMB: Adam with the ratio of norms of each tensor; ``trust_ratio="clip"`` for bitsandbytes'.

    ``max_unorm`` is of CLIP.
    """

    algorithm = OptimizerAlgorithm.LAMB

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_unorm: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' LAMB, and the options."""
        super().__init__(params, lr, betas, eps, weight_decay, **options)
        for group in self.param_groups:
            group.setdefault("max_unorm", max_unorm)
        self.defaults["max_unorm"] = max_unorm

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """Those of Adam, and the bound of CLIP."""
        clips = options["trust_ratio"] == TrustRatio.CLIP
        return super().scalars(options) | ({"max_unorm": options["max_unorm"]} if clips else {})


class LAMB8bit(LAMB):
    """:class:`LAMB` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8


class LARS(SGD):
    """LARS: momentum with the ratio of norms of each tensor; ``trust_ratio="clip"`` likewise.

    ``max_unorm`` is the trust coefficient, or the bound of CLIP.
    """

    algorithm = OptimizerAlgorithm.LARS

    def __init__(
        self,
        params: Any,
        lr: Number = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        max_unorm: float = 0.02,
        eps: float = 1e-8,
        **options: Unpack[Options],
    ) -> None:
        """Takes the arguments of bitsandbytes' LARS, and the options."""
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, **options)
        for group in self.param_groups:
            group.setdefault("max_unorm", max_unorm)
            group.setdefault("eps", eps)
        self.defaults |= {"max_unorm": max_unorm, "eps": eps}

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """Those of SGD, the coefficient, and of LAYERWISE eps."""
        found = super().scalars(options) | {"max_unorm": options["max_unorm"]}
        clips = options["trust_ratio"] == TrustRatio.CLIP
        return found if clips else found | {"eps": options["eps"]}


class LARS8bit(LARS):
    """:class:`LARS` with state of 8 bits."""

    default_format = StateFormat.BLOCKWISE8
