"""Parameters, their options and their states: new ones, and those from state dicts."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Final

import torch
from torch.utils.dlpack import from_dlpack

from planq._nearest import did_you_mean
from planq.codebooks import dynamic
from planq.errors import ArgumentError, DescriptorError, as_field
from planq.memory import PagePool
from planq.ops.optimizer import OptimizerAlgorithm, StateFormat
from planq.torch._running import current_stream, is_capturing
from planq.torch.optim import _saved
from planq.torch.optim._options import DEFAULTS, Number, Options, Values, parsed, words

STATES: Final = ("state1", "state2", "state3")
ABSMAX: Final = ("absmax1", "absmax2", "absmax3")
MAPS: Final = ("qmap1", "qmap2", "qmap3")
_BLOCKS: Final = (256, 2048, 4096, 1024, 512, 128, 64)

# Entries of a group that a state dict does not change.
_NOT_LOADED: Final = ("params", "paged")


@dataclass(frozen=True)
class _Loaded:
    """What a state dict holds for an optimizer, after all checks."""

    groups: list[Values]
    states: dict[torch.Tensor, Values] = field(default_factory=dict)
    formats: dict[torch.Tensor, Values] = field(default_factory=dict)


class Stateful(torch.optim.Optimizer):
    """Parameters, options and states of an optimizer. `Optimizer` documents the attributes."""

    algorithm: ClassVar[OptimizerAlgorithm]
    default_format: ClassVar[StateFormat] = StateFormat.FLOAT32
    default_paged: ClassVar[bool] = False
    signed: ClassVar[tuple[bool, ...]] = (True,)

    def __init__(self, params: Any, defaults: Values, options: Options) -> None:
        """Takes the parameters; ``defaults`` has the optimizer's own arguments."""
        for name in options:
            self._known(name, DEFAULTS)
        self._ids: dict[torch.Tensor, int] = {}
        self._overrides: dict[torch.Tensor, Values] = {}
        # Formats of loaded states that differ from the options; kept as long as these states.
        self._formats: dict[torch.Tensor, Values] = {}
        self._shared_maps: dict[Hashable, torch.Tensor] = {}
        self.pool = PagePool()
        own: Options = {"state_format": self.default_format, "paged": self.default_paged}
        super().__init__(params, self._resolved({**DEFAULTS, **own, **options, **defaults}))

    def _also(self, **arguments: Number) -> None:
        """Adds arguments that a subclass has beside those of its base."""
        self.defaults = self._resolved({**self.defaults, **arguments})
        for group in self.param_groups:
            group |= self._resolved({**arguments, **group})

    def add_param_group(self, param_group: Values) -> None:
        """Adds a group; the ids that give tensors their own draws go on counting.

        Raises:
            DescriptorError: An option of the group is not allowed, or not for this optimizer.
        """
        self._refuse_misspelt(param_group)
        resolved = self._resolved({**self.defaults, **param_group})
        param_group |= {name: resolved[name] for name in param_group}
        super().add_param_group(param_group)
        self._number()

    def _number(self) -> None:
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            self._ids.setdefault(p, len(self._ids))

    def override(self, param: torch.Tensor, **options: Any) -> None:
        """Gives one parameter options or arguments that override those of its group.

        Copies and pickles of the optimizer keep them, state dicts do not.

        Raises:
            ArgumentError: The optimizer has no such parameter.
            DescriptorError: An option is not allowed, or not for this optimizer.
            TypeError: There is no such option.
        """
        groups = (group for group in self.param_groups if any(p is param for p in group["params"]))
        group = next(groups, None)
        if group is None:
            expected, advice = "one of its parameters", "the optimizer has no such parameter"
            raise ArgumentError("param", expected, "another tensor", advice)
        for name in options:
            self._known(name, self.defaults)
        own = {**self._overrides.get(param, {}), **options}
        resolved = self._resolved({**group, **own})
        self._overrides[param] = {name: resolved[name] for name in own}

    # --- Options

    def _known(self, name: str, names: Mapping[str, Any]) -> None:
        if name not in names:
            hint = did_you_mean(name, names)
            raise TypeError(f"{type(self).__name__} has no option {name!r}{hint}")

    def _refuse_misspelt(self, group: Mapping[Any, Any]) -> None:
        """Refuses keys of a group that look like misspelt options; other keys are allowed."""
        plain = {name.replace("_", ""): name for name in DEFAULTS}
        for key in group:
            meant = plain.get(key.replace("_", "").lower()) if isinstance(key, str) else None
            if meant is not None and meant != key:
                message = f"{type(self).__name__} has no such option; did you mean {meant}?"
                raise DescriptorError(as_field(key), message)

    def _resolved(self, options: Mapping[str, Any]) -> Values:
        """Checks options and arguments; returns them as groups keep them."""
        found = parsed(self.algorithm, options)
        self.refuse_idle(found)
        return words(found)

    def refuse_idle(self, options: Mapping[str, Any]) -> None:
        """Refuses arguments that have no effect beside the others.

        Raises:
            DescriptorError: There is such an argument.
        """

    def _options(self, p: torch.Tensor, group: Values) -> Values:
        """The options of a parameter, parsed again, as the caller may have written to the group."""
        own = {**self._overrides.get(p, {}), **self._formats.get(p, {})}
        return parsed(self.algorithm, {**group, **own})

    # --- States

    def _signs(self, options: Mapping[str, Any]) -> tuple[bool, ...]:
        """For each state that exists, whether it has negative values."""
        return (*self.signed, True) if options.get("centered") else self.signed

    def _started(self, p: torch.Tensor, options: Mapping[str, Any]) -> Values:
        """The states of a parameter before the first step."""
        made: Values = {"step": 0}
        form = options["state_format"]
        coded = form is not StateFormat.FLOAT32 and p.numel() >= options["min_8bit_size"]
        blocks = 1 if form is StateFormat.STATIC8 else -(-p.numel() // options["block_size"])
        for k, signed in enumerate(self._signs(options)):
            if coded:
                zero = 127 if signed else 0  # the code of 0
                made[STATES[k]] = self._room(p, torch.uint8, options).fill_(zero)
                made[ABSMAX[k]] = torch.zeros(blocks, dtype=torch.float32, device=p.device)
            else:
                made[STATES[k]] = self._room(p, torch.float32, options).zero_()
        return made

    def _room(
        self, p: torch.Tensor, dtype: torch.dtype, options: Mapping[str, Any]
    ) -> torch.Tensor:
        """Memory for a state; paged if the option says so and the parameter is large."""
        if not options["paged"] or not self.pool.takes(p.shape):
            return torch.empty(p.shape, dtype=dtype, device=p.device)
        pages = self.pool.empty(current_stream(p.device), (p.numel(),), dtype)
        if p.is_cuda:
            # Unlike torch's allocator, this one does not know which streams still use the memory.
            weakref.finalize(pages, torch.cuda.synchronize, p.device).atexit = False
        return from_dlpack(pages).view(p.shape)

    def prefetch(self) -> None:
        """Moves paged states to their devices, the last ones first. Every step begins with this.

        A captured step does not, since graphs move no pages: call this before a replay.
        """
        for name in {pages.device for pages in self.pool}:
            device = torch.device("cpu" if name == "host" else name)
            if not is_capturing(device):
                self.pool.prefetch_all(current_stream(device))

    # --- Copies

    def __getstate__(self) -> Values:
        """The state for copies and pickles, with the options of single parameters."""
        own = {"_overrides": self._overrides, "_formats": self._formats}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: Values) -> None:
        super().__setstate__({"_overrides": {}, "_formats": {}, **state})
        self._ids, self._shared_maps, self.pool = {}, {}, PagePool()
        self._number()
        for group in self.param_groups:
            for p in group["params"]:
                options = self._options(p, group)
                for name, values in self.state.get(p, {}).items():
                    if name in STATES and options["paged"]:
                        self.state[p][name] = self._room(p, values.dtype, options).copy_(values)

    # --- State dicts

    def load_state_dict(self, state_dict: Values) -> None:
        """Loads the state of the same optimizer of this module or of bitsandbytes.

        Adam and AdamW, also with 8 bits, load the state of torch.optim's Adam or AdamW too. Weight
        decay then stays COUPLED or DECOUPLED as it was, and 32-bit states stay 32-bit. Everything
        is copied.

        Raises:
            ArgumentError: The numbers of groups or parameters differ; states are missing or have
                other shapes; a group of torch's has ``amsgrad``, ``maximize`` or
                ``differentiable``. The optimizer is unchanged.
            DescriptorError: An option is not allowed, or not for this optimizer. The optimizer is
                unchanged.
        """
        state_dict = copy.copy(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            given = before(self, state_dict)
            state_dict = state_dict if given is None else given
        loaded = self._read(state_dict)
        for group, values in zip(self.param_groups, loaded.groups, strict=True):
            group.update(values)
        self.state.clear()
        self.state.update(loaded.states)
        self._formats = loaded.formats
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    def _read(self, state_dict: Any) -> _Loaded:
        """Reads and checks a state dict, without changing this optimizer."""
        states, saved = _saved.checked_dict(state_dict)
        sizes, own = ([len(g["params"]) for g in groups] for groups in (saved, self.param_groups))
        if sizes != own:
            advice = "the state dict has other parameter groups than this optimizer"
            raise ArgumentError("param_groups", f"{own} parameters", str(sizes), advice)
        numbers = set(chain.from_iterable(group["params"] for group in saved))
        for number in states:
            if number not in numbers:
                raise ArgumentError(f"state[{number!r}]", "a parameter of a group", "none of them")
        found = _Loaded([self._read_group(i, values) for i, values in enumerate(saved)])
        for group, from_, values in zip(self.param_groups, saved, found.groups, strict=True):
            for p, number in zip(group["params"], from_["params"], strict=True):
                if given := states.get(number):
                    where, is_torchs = f"state[{number!r}]", _saved.is_torchs(from_)
                    given = _saved.renamed(
                        where, given, is_torchs=is_torchs, states=len(self.signed)
                    )
                    own_values = {**group, **values, **self._overrides.get(p, {})}
                    self._read_state(found, p, where, given, parsed(self.algorithm, own_values))
        return found

    def _read_group(self, place: int, saved: Mapping[str, Any]) -> Values:
        """Translates a saved group into this optimizer's options and arguments."""
        values = {name: copy.deepcopy(x) for name, x in saved.items() if name not in _NOT_LOADED}
        where = f"param_groups[{place}]"
        if _saved.is_torchs(values):
            values = _saved.from_torchs_adam(where, values, self.algorithm)
        elif "t_alpha" in values or ("betas" in values and "betas" not in self.defaults):
            values = self._of_bitsandbytes(values)
        resolved = self._resolved({**self.param_groups[place], **values})
        return {name: resolved[name] for name in values}

    def _of_bitsandbytes(self, values: Values) -> Values:
        """Translates a group of bitsandbytes, which has other names and further values."""
        shared = ("lr", "betas", "eps", "weight_decay", "initial_lr")
        found = {name: values[name] for name in shared if name in values}
        if "betas" not in self.defaults:
            found |= self.from_betas(found.pop("betas"))
        elif len(self.signed) == 3:
            found["alpha"] = values["alpha"]
        return found

    def from_betas(self, betas: tuple[float, ...]) -> Values:
        """The arguments that bitsandbytes stores as ``betas``."""
        return {}

    def _read_state(
        self, found: _Loaded, p: torch.Tensor, where: str, values: Values, options: Values
    ) -> None:
        """Reads the states of a parameter, and copies them to its device."""
        made: Values = {"step": _saved.count(f"{where}['step']", values.get("step"))}
        for name, signed in zip(STATES, self._signs(options), strict=False):
            state = _saved.state(f"{where}[{name!r}]", values.get(name), p.shape)
            is_coded = state.dtype == torch.uint8
            if is_coded != (made.get("state1", state).dtype == torch.uint8):
                expected = "codes of a byte, as state1" if "absmax1" in made else "no codes"
                raise ArgumentError(f"{where}[{name!r}]", expected, str(state.dtype))
            room = self._room(p, torch.uint8 if is_coded else torch.float32, options)
            made[name] = room.copy_(state)
            if is_coded:
                self._read_codes(p, where, name[-1], values, made, signed=signed)
        if "absmax1" in made:
            own = _format_of(p.numel(), made["absmax1"].numel(), where, options)
            if own:
                found.formats[p] = own
        found.states[p] = made

    def _read_codes(
        self, p: torch.Tensor, where: str, k: str, values: Values, made: Values, *, signed: bool
    ) -> None:
        """Reads absmax, and a codebook if it is not the dynamic map; parameters share codebooks."""
        name, mapped = f"absmax{k}", f"qmap{k}"
        absmax = _saved.tensor(f"{where}[{name!r}]", values.get(name)).float().reshape(-1)
        first = made.get("absmax1", absmax)
        if absmax.numel() != first.numel():
            expected = f"{first.numel()} elements, as absmax1"
            raise ArgumentError(f"{where}[{name!r}]", expected, str(absmax.numel()))
        made[name] = absmax.to(p.device, copy=True)
        held = _saved.codebook(f"{where}[{mapped!r}]", values.get(mapped))
        if held is None or torch.equal(held, torch.from_numpy(dynamic(signed))):
            return
        key = (p.device, held.numpy().tobytes())
        made[mapped] = self._shared_maps.setdefault(key, held.to(p.device))


def _format_of(elements: int, blocks: int, where: str, options: Values) -> Values:
    """The format of codes with this many blocks, as far as it differs from the options."""
    given, size = options["state_format"], options["block_size"]
    fitting = (each for each in (size, *_BLOCKS) if -(-elements // each) == blocks)
    found = None if blocks == 1 and given is not StateFormat.BLOCKWISE8 else next(fitting, None)
    if found is None and blocks == 1:
        return {} if given is StateFormat.STATIC8 else {"state_format": StateFormat.STATIC8.value}
    if found is None:
        expected = f"blocks of {elements} elements, of one size from 64 to 4096"
        raise ArgumentError(f"{where}['absmax1']", expected, f"{blocks} blocks")
    own = {"state_format": StateFormat.BLOCKWISE8.value, "block_size": found}
    return {name: value for name, value in own.items() if options[name] != value}
