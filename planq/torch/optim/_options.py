"""Options that every optimizer takes beside its own arguments."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from operator import index
from typing import Any, Final, SupportsIndex, TypeAlias, TypedDict

import torch

from planq.dtypes import Rounding, parse_member
from planq.errors import DescriptorError, shown
from planq.ops.optimizer import (
    NonFiniteGradient,
    OptimizerAlgorithm,
    OptimizerStepDescriptor,
    StateFormat,
    TrustRatio,
    WeightDecayMode,
)

Number: TypeAlias = "float | torch.Tensor"
Values: TypeAlias = dict[str, Any]


class Options(TypedDict, total=False):
    """What every optimizer takes beside its own arguments.

    Enumerations are given as members or as their names in any case. A value that is not allowed, or
    not for this optimizer, raises a DescriptorError with the option's name: when it is given, or
    before a step if it was written into a param group.

    Attributes:
        state_format: FLOAT32, BLOCKWISE8 or STATIC8. Default: FLOAT32, BLOCKWISE8 for the ``8bit``
            classes.
        min_8bit_size: Parameters with fewer elements have 32-bit state. Default: 4096.
        block_size: Elements of a block of BLOCKWISE8. Default: 256.
        weight_decay_mode: DECOUPLED, the default, as in AdamW and bitsandbytes; COUPLED or AFTER.
        trust_ratio: The factor of updates. LAMB and LARS have LAYERWISE, the default, or CLIP;
            other optimizers have none.
        skip_zeros: Elements whose gradient is 0 stay as they are.
        nonfinite: What gradients that are NaN or infinite do: PROPAGATE, the default, or
            SKIP_ELEMENT. A GradScaler skips whole steps.
        rounding: How 16-bit parameters are rounded: NEAREST_EVEN, the default, or STOCHASTIC.
        seed: The seed of STOCHASTIC. Default: 0.
        gradient_scale: The factor that gradients are multiplied by. Default: 1.
        paged: Whether states of parameters with 100,000 elements or more are paged memory. Default:
            False, True for the ``Paged`` classes.
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
    paged: bool


DEFAULTS: Final[Options] = {
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
    "paged": False,
}

_WORDS: Final[dict[str, type[Enum]]] = {
    "state_format": StateFormat,
    "weight_decay_mode": WeightDecayMode,
    "trust_ratio": TrustRatio,
    "nonfinite": NonFiniteGradient,
    "rounding": Rounding,
}
# The members that optimizers support; other members of an enumeration are refused.
_LAYERED: Final = (OptimizerAlgorithm.LAMB, OptimizerAlgorithm.LARS)
_POSSIBLE: Final[dict[str, tuple[Enum, ...]]] = {
    "nonfinite": (NonFiniteGradient.PROPAGATE, NonFiniteGradient.SKIP_ELEMENT),
    "rounding": (Rounding.NEAREST_EVEN, Rounding.STOCHASTIC),
}
_DESCRIBED: Final = ("block_size", "skip_zeros", "nesterov", "centered")
_PARSED: Final = (*_WORDS, "min_8bit_size", "seed", "paged", *_DESCRIBED)


def parsed(algorithm: OptimizerAlgorithm, options: Mapping[str, Any]) -> Values:
    """The options of a group or a parameter, parsed: enumerations are members.

    Raises:
        DescriptorError: An option has a value that is not allowed, or not for this optimizer.
            ``field`` is its name.
    """
    names = tuple(name for name in _PARSED if name in options)
    given = [options[name] for name in names]
    try:
        return {**options, **_members(algorithm, names, *given)}
    except TypeError:  # unhashable values, such as lists: parsed without the cache, and refused
        return {**options, **_members.__wrapped__(algorithm, names, *given)}


@lru_cache(maxsize=1024, typed=True)
def _members(
    algorithm: OptimizerAlgorithm, names: tuple[str, ...], *given: Any
) -> Mapping[str, Any]:
    """The parsed options. Cached, because groups are parsed at every step."""
    options = dict(zip(names, given, strict=True))
    found: Values = {
        name: parse_member(vocabulary, options[name], name) for name, vocabulary in _WORDS.items()
    }
    for name, possible in (*_POSSIBLE.items(), ("trust_ratio", _ratios(algorithm))):
        if found[name] not in possible:
            known = " or ".join(member.name for member in possible)
            message = f"expected {known}, which {algorithm.name} has, got {shown(options[name])}"
            raise DescriptorError(name, message)
    fields = found | {name: options[name] for name in _DESCRIBED if name in options}
    fields["state_format"] = StateFormat.BLOCKWISE8
    # A descriptor without tensors checks the rest. Blockwise states and 16-bit parameters make it
    # read every option.
    OptimizerStepDescriptor(
        shapes=(),
        algorithm=algorithm,
        parameter_dtype="bfloat16",
        gradient_dtype="bfloat16",
        **fields,
    )
    if not isinstance(options["paged"], bool):
        raise DescriptorError("paged", f"expected True or False, got {shown(options['paged'])}")
    counts = {name: _count(name, options[name]) for name in ("min_8bit_size", "seed")}
    return {**found, **counts}


def words(options: Mapping[str, Any]) -> Values:
    """Parsed options as groups keep them: text, which torch.load accepts with weights_only."""
    return {name: x.value if isinstance(x, Enum) else x for name, x in options.items()}


def refuse_other(name: str, options: Mapping[str, Any], idle: float, where: str) -> None:
    """Refuses a value of an argument that has no effect, unless it is the neutral value ``idle``.

    Raises:
        DescriptorError: It has another value.
    """
    value = options.get(name, idle)
    if isinstance(value, torch.Tensor) or value != idle:
        raise DescriptorError(name, f"expected {idle} {where}, got {shown(value)}")


def _ratios(algorithm: OptimizerAlgorithm) -> tuple[Enum, ...]:
    if algorithm in _LAYERED:
        return (TrustRatio.DEFAULT, TrustRatio.LAYERWISE, TrustRatio.CLIP)
    return (TrustRatio.DEFAULT, TrustRatio.NONE)


def _count(name: str, value: object) -> int:
    """An integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or index(value) < 0:
        raise DescriptorError(name, f"expected an integer of at least 0, got {shown(value)}")
    return index(value)
