"""The step that all optimizers take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, overload

import torch
from torch.autograd.graph import increment_version

from planq._policy import in_force
from planq.dtypes import Rounding
from planq.ops.optimizer import (
    NonFiniteGradient,
    OptimizerStepArgs,
    OptimizerStepDescriptor,
    StateFormat,
)
from planq.plan import Plan
from planq.torch._running import current_stream, room
from planq.torch.optim._dense import apart, check, dense, is_plain, is_usual
from planq.torch.optim._options import Options, Values, parsed
from planq.torch.optim._states import ABSMAX, MAPS, STATES, Stateful

_FIELDS: Final = (
    "weight_decay_mode",
    "trust_ratio",
    "skip_zeros",
    "nonfinite",
    "nesterov",
    "centered",
)
_HALVES: Final = (torch.float16, torch.bfloat16)


@dataclass
class _Call:
    """A step of some parameters, ready to run.

    Attributes:
        plan: The plan.
        args: Its operands.
        params: The parameters.
        held: Contiguous copies that are updated instead of parameters, by index.
    """

    plan: Plan
    args: OptimizerStepArgs
    params: list[torch.Tensor]
    held: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The device of all parameters."""
        return self.params[0].device

    def bound(self, workspace: torch.Tensor | None) -> Callable[[], None]:
        """Checks the operands and returns a function that takes the step."""
        size = self.plan.workspace_size()
        memory = None if workspace is None or size == 0 else workspace[:size]
        launch = self.plan.bind(memory, self.args)

        def run() -> None:
            for place, held in self.held.items():
                held.copy_(self.params[place])
            launch(current_stream(self.device))
            for place, held in self.held.items():
                self.params[place].copy_(held)
            # Autograd must notice that tensors which it saved for a backward pass have changed.
            increment_version([p for p in self.params if not p.is_inference()])

        return run


class Optimizer(Stateful):
    """What the optimizers of this module have in common.

    Attributes:
        algorithm: The update rule.
        default_format: How states are stored unless an option says otherwise.
        default_paged: Whether states are paged unless an option says otherwise.
        signed: For each state, whether it has negative values and so uses the signed dynamic map.
        pool: The paged states.
    """

    # torch.amp.GradScaler reads this, and then sets `grad_scale` and `found_inf` for the next step.
    _step_supports_amp_scaling: ClassVar[bool] = True

    def __init__(self, params: Any, defaults: Values, options: Options) -> None:
        """Takes the parameters; ``defaults`` has the optimizer's own arguments."""
        self._plans: dict[Hashable, Plan] = {}
        super().__init__(params, defaults, options)

    def __setstate__(self, state: Values) -> None:
        super().__setstate__(state)
        self._plans = {}

    def scalars(self, options: Mapping[str, Any]) -> Values:
        """The scalars of a step, by the names of the operator."""
        raise NotImplementedError

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Takes a step for every parameter that has a gradient.

        Raises:
            ArgumentError: A parameter or a gradient is sparse, complex, integer or float64, or a
                parameter's elements share memory, or an argument in a group is not allowed. No
                parameter and no state of any group was changed.
            DescriptorError: An option that was written into a group is not allowed. Nothing was
                changed either.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            self.prefetch()
            for run in self._prepared():
                run()
        return loss

    def _prepared(self) -> list[Callable[[], None]]:
        """The steps of all parameters; all are checked before the first one runs."""
        started: list[torch.Tensor] = []
        try:
            lists = self._together(started)
            users = Counter(id(state.get("step")) for state in self.state.values())
            calls = [self._call(*each, users) for each in lists]
            # Steps on one device run one after another, so they share a workspace.
            sizes: dict[torch.device, int] = {}
            for call in calls:
                needed = call.plan.workspace_size()
                sizes[call.device] = max(needed, sizes.get(call.device, 0))
            memory = {device: room(size, device) for device, size in sizes.items()}
            return [call.bound(memory[call.device]) for call in calls]
        except BaseException:
            for p in started:
                del self.state[p]
            raise

    def _together(self, started: list[torch.Tensor]) -> Iterable[tuple[list[torch.Tensor], Values]]:
        """Groups parameters that take a step in one call, with their options.

        Parameters whose states were made for this step are added to ``started``.
        """
        found: dict[Hashable, tuple[list[torch.Tensor], Values]] = {}
        alone = self._checked() | self._overrides.keys() | self._formats.keys()
        for number, group in enumerate(self.param_groups):
            shared = parsed(self.algorithm, group)
            for p in group["params"]:
                if p.grad is None:
                    continue
                options = self._options(p, group) if p in alone else shared
                if not self.state.get(p):
                    self.state[p] = self._started(p, options)
                    started.append(p)
                key = (number, p if p in alone else None, *self._kind(p))
                found.setdefault(key, ([], options))[0].append(p)
        return found.values()

    def _checked(self) -> set[torch.Tensor]:
        """Refuses unsupported parameters and gradients; returns those that step alone."""
        stepped, others = [], []
        for number, group in enumerate(self.param_groups):
            for place, p in enumerate(group["params"]):
                if p.grad is None:
                    continue
                stepped.append(p)
                if not is_usual(p, p.grad):
                    check(f"param_groups[{number}]['params'][{place}]", p, p.grad)
                    others.append(p)
        return apart(stepped, others)

    def _kind(self, p: torch.Tensor) -> tuple[Hashable, ...]:
        """The key that parameters have to share to take a step together."""
        state, grad = self.state[p], p.grad
        step = state["step"]
        maps = tuple(id(state[name]) for name in MAPS if name in state)
        count = id(step) if isinstance(step, torch.Tensor) else (step,)
        kind = (p.device, p.dtype, None if grad is None else grad.dtype, state["state1"].dtype)
        return (*kind, count, maps)

    def _share_step(self, params: list[torch.Tensor], users: Mapping[int, int]) -> None:
        """Gives parameters a counter of steps in memory that no other parameters use."""
        step = self.state[params[0]]["step"]
        if isinstance(step, torch.Tensor):
            if users[id(step)] == len(params):
                return
            shared = step.clone()
        else:
            shared = torch.tensor(step, dtype=torch.int64, device=params[0].device)
        for p in params:
            self.state[p]["step"] = shared

    def _call(self, params: list[torch.Tensor], options: Values, users: Mapping[int, int]) -> _Call:
        """The step of a list of parameters; ``users`` counts the parameters of each counter."""
        self._share_step(params, users)
        plan = self._plan(params, options)
        states = [self.state[p] for p in params]
        listed: Values = {
            name: [state[name] for state in states]
            for name in (*STATES, *ABSMAX)
            if name in states[0]
        }
        maps: Values = {
            f"codebook{k}": states[0][name] for k, name in enumerate(MAPS, 1) if name in states[0]
        }
        draws: Values = (
            {"seed": options["seed"], "offset": 0} if self._draws(params[0], options) else {}
        )
        scaled = self._amp(params[0].device, options)
        held = {
            i: torch.empty(p.shape, dtype=p.dtype, device=p.device)
            for i, p in enumerate(params)
            if not is_plain(p)
        }
        args = OptimizerStepArgs(
            parameter=[held.get(i, p.detach()) for i, p in enumerate(params)],
            gradient=[dense(p.grad) for p in params if p.grad is not None],
            step=states[0]["step"],
            weight_decay=options["weight_decay"],
            **self.scalars(options),
            **listed,
            **maps,
            **draws,
            **scaled,
        )
        return _Call(plan, args, params, held)

    def _amp(self, device: torch.device, options: Values) -> Values:
        """The operands that a GradScaler sets: gradient scale, and whether to skip the step."""
        found, by = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        scale = options["gradient_scale"]
        scaled: Values = {"gradient_scale": scale if by is None else (scale / by).to(device)}
        return scaled if found is None else {**scaled, "found_nonfinite": found.to(device)}

    @staticmethod
    def _draws(p: torch.Tensor, options: Values) -> bool:
        return p.dtype in _HALVES and options["rounding"] is Rounding.STOCHASTIC

    def _plan(self, params: list[torch.Tensor], options: Values) -> Plan:
        """The plan for a list of parameters; plans are kept."""
        p, grad = params[0], params[0].grad
        draws = self._draws(p, options)
        fields: Values = {name: options[name] for name in _FIELDS if name in options}
        fields["shapes"] = tuple(tuple(each.shape) for each in params)
        fields["parameter_dtype"] = p.dtype
        fields["gradient_dtype"] = p.dtype if grad is None else grad.dtype
        if self.state[p]["state1"].dtype == torch.uint8:
            fields["state_format"] = options["state_format"]
            if fields["state_format"] is StateFormat.BLOCKWISE8:
                fields["block_size"] = options["block_size"]
        if getattr(self, "found_inf", None) is not None:
            fields["nonfinite"] = NonFiniteGradient.SKIP_STEP
        if draws:
            fields["rounding"] = Rounding.STOCHASTIC
            fields["tensor_ids"] = tuple(self._ids[each] for each in params)
        key = (p.device, in_force(), *fields.items())
        plan = self._plans.get(key)
        if plan is None:
            desc = OptimizerStepDescriptor(algorithm=self.algorithm, advance_step=True, **fields)
            plan = self._plans[key] = Plan.select(current_stream(p.device), desc)
        return plan
