"""Reads state dicts: planq's own, those of bitsandbytes, and those of torch's Adam and AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from planq.errors import ArgumentError, shown
from planq.ops.optimizer import OptimizerAlgorithm, WeightDecayMode
from planq.torch.optim._options import Values

# The key under which newer versions of bitsandbytes keep 8-bit states in a state dict.
_NESTED: Final = "__bnb_optimizer_quant_state__"
_MAP_ENTRIES: Final = 256
# Options of torch's groups that choose an implementation and change no result.
_MANNERS: Final = ("foreach", "capturable", "fused")
# Options of torch that planq's Adam does not support.
_UNLIKE: Final = ("amsgrad", "maximize", "differentiable")
_DECOUPLED: Final = "decoupled_weight_decay"
_AVERAGES: Final = {"exp_avg": "state1", "exp_avg_sq": "state2"}


def checked_dict(state_dict: Any) -> tuple[Mapping[Any, Any], list[Any]]:
    """The states and the groups of a state dict.

    Raises:
        ArgumentError: It is no state dict.
    """
    is_dict = isinstance(state_dict, Mapping)
    states = state_dict.get("state") if is_dict else None
    groups = state_dict.get("param_groups") if is_dict else None
    if not isinstance(states, Mapping) or not isinstance(groups, (list, tuple)):
        expected = "a dictionary with 'state', a dictionary, and 'param_groups', a list"
        raise ArgumentError("state_dict", expected, shown(state_dict))
    for place, group in enumerate(groups):
        if not isinstance(group, Mapping) or not isinstance(group.get("params"), (list, tuple)):
            expected = "a dictionary with 'params', a list"
            raise ArgumentError(f"param_groups[{place}]", expected, shown(group))
    return states, list(groups)


def is_torchs(group: Mapping[str, Any]) -> bool:
    """Whether a group is of an optimizer of torch.optim."""
    return not {"foreach", "amsgrad"}.isdisjoint(group) and "state_format" not in group


def from_torchs_adam(where: str, group: Values, algorithm: OptimizerAlgorithm) -> Values:
    """Translates a group of torch's Adam or AdamW into planq's options.

    Raises:
        ArgumentError: It is of another optimizer, or this one is no Adam; it has an option that
            planq's Adam lacks, or does not say whether weight decay is decoupled.
    """
    if algorithm is not OptimizerAlgorithm.ADAM:
        actual = "one of torch.optim"
        raise ArgumentError(where, f"a group of planq's or bitsandbytes' {algorithm.name}", actual)
    if "amsgrad" not in group:  # only Adam and AdamW have it
        expected = "a group of torch.optim's Adam or AdamW"
        raise ArgumentError(where, expected, "one of another optimizer of torch")
    for name in _UNLIKE:
        if group.get(name, False):
            raise ArgumentError(f"{where}[{name!r}]", "False", shown(group[name]))
    dropped = {*_MANNERS, *_UNLIKE, _DECOUPLED}
    found = {name: value for name, value in group.items() if name not in dropped}
    decoupled = group.get(_DECOUPLED)
    if isinstance(decoupled, bool):
        mode = WeightDecayMode.DECOUPLED if decoupled else WeightDecayMode.COUPLED
        found["weight_decay_mode"] = mode.value
    elif group.get("weight_decay") != 0:
        advice = "older versions of torch do not say it: True of AdamW, False of Adam"
        expected = "True or False, where weight_decay is not 0"
        raise ArgumentError(f"{where}[{_DECOUPLED!r}]", expected, shown(decoupled), advice)
    return found


def renamed(where: str, values: Any, *, is_torchs: bool, states: int) -> Values:
    """The saved state of a parameter, by planq's names.

    Raises:
        ArgumentError: It is no dictionary, or of another optimizer.
    """
    if not isinstance(values, Mapping):
        raise ArgumentError(where, "a dictionary", shown(values))
    found = {**values, **values.get(_NESTED, {})}
    if is_torchs:
        found = {_AVERAGES.get(name, name): value for name, value in found.items()}
    elif "exp_avg" in found:
        expected = "states of planq, of bitsandbytes, or of torch.optim's Adam or AdamW"
        raise ArgumentError(where, expected, "exp_avg of another optimizer")
    if "max1" in found:  # bitsandbytes' static states
        found |= {f"absmax{k}": found[f"max{k}"] for k in (1, 2) if f"max{k}" in found}
    if states == 3 and "state3" not in found:  # bitsandbytes has m and n in one tensor
        for first, third in (("state1", "state3"), ("absmax1", "absmax3")):
            if first in found:
                pair = tensor(f"{where}[{first!r}]", found.get(first))
                if pair.dim() == 0 or len(pair) != 2:
                    expected = f"m and n, and no {third}"
                    raise ArgumentError(f"{where}[{first!r}]", expected, _shape(pair))
                found[first], found[third] = pair.unbind(0)
        if "qmap1" in found:
            found["qmap3"] = found["qmap1"]
    return found


def tensor(where: str, value: Any) -> torch.Tensor:
    """A tensor of a state dict, detached.

    Raises:
        ArgumentError: It is no tensor.
    """
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(where, "a tensor", "none" if value is None else shown(value))
    return value.detach()


def state(where: str, value: Any, shape: torch.Size) -> torch.Tensor:
    """A state: 8-bit codes, or floating-point numbers.

    Raises:
        ArgumentError: It is missing, or has another shape or type.
    """
    found = tensor(where, value)
    if found.shape != shape:
        raise ArgumentError(where, f"shape {tuple(shape)}", _shape(found))
    if found.dtype != torch.uint8 and not found.is_floating_point():
        raise ArgumentError(where, "uint8 or a floating point type", str(found.dtype))
    return found


def codebook(where: str, value: Any) -> torch.Tensor | None:
    """A codebook, on the host; None if there is none.

    Raises:
        ArgumentError: It is no tensor of 256 values.
    """
    if value is None:
        return None
    found = tensor(where, value)
    if found.shape != (_MAP_ENTRIES,):
        raise ArgumentError(where, f"{_MAP_ENTRIES} values", _shape(found))
    return found.float().cpu()


def count(where: str, value: Any) -> int:
    """A number of steps.

    Raises:
        ArgumentError: It is no integer of at least 0.
    """
    number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
    if not isinstance(number, (int, float)) or not number >= 0 or number != int(number):
        raise ArgumentError(where, "a number of steps", "none" if value is None else shown(value))
    return int(number)


def _shape(value: torch.Tensor) -> str:
    return f"shape {tuple(value.shape)}"
