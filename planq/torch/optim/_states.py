"""Parameters, their options and their states: before the first step, and out of state dicts."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Mapping
from enum import Enum
from itertools import chain
from typing import Any, ClassVar, Final

import torch
from torch.utils.dlpack import from_dlpack

from planq.codebooks import dynamic
from planq.dtypes import StateFormat
from planq.memory import PagePool
from planq.torch._running import current_stream, is_capturing
from planq.torch.optim._options import DEFAULTS, Number, Options, Values

STATES: Final = ("state1", "state2", "state3")
ABSMAX: Final = ("absmax1", "absmax2", "absmax3")
MAPS: Final = ("qmap1", "qmap2", "qmap3")
_BLOCKS: Final = (256, 2048, 4096, 1024, 512, 128, 64)
# Where newer versions of bitsandbytes keep the states of 8 bits in a state dict.
_NESTED: Final = "__bnb_optimizer_quant_state__"

# What is this optimizer's own, whatever a state dict says.
_NOT_LOADED: Final = ("params", "paged")


class Stateful(torch.optim.Optimizer):
    """What an optimizer has and keeps between steps: its public subclass says of the attributes."""

    default_format: ClassVar[StateFormat] = StateFormat.FLOAT32
    default_paged: ClassVar[bool] = False
    signed: ClassVar[tuple[bool, ...]] = (True,)

    def __init__(self, params: Any, defaults: Values, options: Options) -> None:
        """Takes the parameters; ``defaults`` has the optimizer's own arguments."""
        for name in options:
            if name not in DEFAULTS:
                raise TypeError(f"{type(self).__name__} has no option {name!r}")
        self._ids: dict[torch.Tensor, int] = {}
        self._overrides: dict[torch.Tensor, Values] = {}
        self._shared_maps: dict[Hashable, torch.Tensor] = {}
        self.pool = PagePool()
        own: Options = {"state_format": self.default_format, "paged": self.default_paged}
        known = {**DEFAULTS, **own, **options}
        # Words, which torch.load takes from anybody.
        words = {name: x.value if isinstance(x, Enum) else x for name, x in known.items()}
        super().__init__(params, {**words, **defaults})

    def _also(self, **arguments: Number) -> None:
        """Takes arguments that a subclass has beside those of its base."""
        self.defaults |= arguments
        for group in self.param_groups:
            group |= {**arguments, **group}

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
                made[STATES[k]] = self._room(p, torch.uint8, options).fill_(zero)
                made[ABSMAX[k]] = torch.zeros(blocks, device=p.device)
            else:
                made[STATES[k]] = self._room(p, torch.float32, options).zero_()
        return made

    def _room(
        self, p: torch.Tensor, dtype: torch.dtype, options: Mapping[str, Any]
    ) -> torch.Tensor:
        """Memory for a state, which pages where an option says so and the parameter is large."""
        if not options["paged"] or not self.pool.takes(p.shape):
            return torch.empty(p.shape, dtype=dtype, device=p.device)
        pages = self.pool.empty(current_stream(p.device), (p.numel(),), dtype)
        if p.is_cuda:
            # torch's allocator would know which streams still use the memory; this one does not.
            weakref.finalize(pages, torch.cuda.synchronize, p.device).atexit = False
        return from_dlpack(pages).view(p.shape)

    def prefetch(self) -> None:
        """Moves the states that page to their devices, the last one first; a step begins with it.

        A captured step does not, since graphs move no pages: call this before a replay.
        """
        for name in {pages.device for pages in self.pool}:
            device = torch.device("cpu" if name == "host" else name)
            if not is_capturing(device):
                self.pool.prefetch_all(current_stream(device))

    # --- State dicts

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
            return {name: x for name, x in values.items() if name not in _NOT_LOADED}
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
        self._overrides, self._shared_maps, self.pool = {}, {}, PagePool()
        for group in self.param_groups:
            for p in group["params"]:
                for name, values in self.state.get(p, {}).items():
                    if name in STATES and group["paged"]:
                        self.state[p][name] = self._room(p, values.dtype, group).copy_(values)

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
        for k, name in enumerate(STATES[: len(signs)]):
            if name not in values or values[name].numel() != p.numel():
                raise ValueError(f"the state dict has no {name} of shape {tuple(p.shape)}")
            state, is_coded = values[name].detach(), values[name].dtype == torch.uint8
            room = self._room(p, torch.uint8 if is_coded else torch.float32, options)
            made[name] = room.copy_(state.reshape(p.shape))
            if is_coded:
                absmax = values[ABSMAX[k]].detach().float().reshape(-1)
                made[ABSMAX[k]] = absmax.to(p.device, copy=True)
                self._load_map(p, k, values, made, signed=signs[k])
        if "absmax1" in made:
            self._fit_blocks(p, made["absmax1"].numel(), options)
        return made

    def _load_map(
        self, p: torch.Tensor, k: int, values: Values, made: Values, *, signed: bool
    ) -> None:
        """Keeps a map that is another than the plan's own; parameters share it."""
        given = values.get(MAPS[k])
        if given is None:
            return
        held = given.detach().float().cpu()
        if torch.equal(held, torch.from_numpy(dynamic(signed))):
            return
        key = (p.device, held.numpy().tobytes())
        made[MAPS[k]] = self._shared_maps.setdefault(key, held.to(p.device))

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
