"""The schemes of ``planq quantize``: which descriptor each gives a weight."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import planq
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import TensorEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GROUP_SIZE = 128

# The floating types that a scheme quantizes, by their names in the file format.
FLOATING = {
    "F16": planq.DType.FLOAT16,
    "BF16": planq.DType.BFLOAT16,
    "F32": planq.DType.FLOAT32,
    "F64": planq.DType.FLOAT64,
}
FORMAT_NAME = {dtype: name for name, dtype in FLOATING.items()}

# The file format's names of the storage types of operands.
STORAGE = {
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}

# The descriptors that make codes: with measured scales, with given scales, or with a codebook.
Scaling = planq.DynamicRangeQuantizeDescriptor | planq.QuantizeDescriptor
Quantizing = Scaling | planq.BlockwiseQuantizeDescriptor


class Search(StrEnum):
    """What ``--search`` takes: how the scale of a group is found."""

    NONE = "none"
    MSE = "mse"


class Method(StrEnum):
    """What ``--method`` takes: which code an element of a group gets."""

    NEAREST = "nearest"
    GPTQ = "gptq"


class Scheme(StrEnum):
    """What ``--scheme`` takes."""

    INT8_CHANNEL = "int8-channel"
    INT8_TENSOR = "int8-tensor"
    UINT8_CHANNEL = "uint8-channel"
    INT4_GROUP128 = "int4-group128"
    INT4_GROUP = "int4-group"
    UINT4_GROUP = "uint4-group"
    FP8_CHANNEL = "fp8-channel"
    FP8_TENSOR = "fp8-tensor"
    FP8_BLOCK128 = "fp8-block128"
    NF4 = "nf4"
    FP4 = "fp4"
    INT4_AF4 = "int4-af4"
    DYNAMIC8 = "dynamic8"
    # Those of GGUF files have the names that llama-quantize has for them.
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    Q8_0 = "q8_0"
    Q6_K = "q6_k"
    Q5_K_M = "q5_k_m"
    Q5_K_S = "q5_k_s"
    Q5_1 = "q5_1"
    Q5_0 = "q5_0"
    Q4_K_M = "q4_k_m"
    Q4_K_S = "q4_k_s"
    Q4_1 = "q4_1"
    Q4_0 = "q4_0"
    IQ4_NL = "iq4_nl"
    IQ4_XS = "iq4_xs"
    Q3_K_L = "q3_k_l"
    Q3_K_M = "q3_k_m"
    Q3_K_S = "q3_k_s"
    Q2_K = "q2_k"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    TQ2_0 = "tq2_0"
    TQ1_0 = "tq1_0"
    Q2_0 = "q2_0"
    Q1_0 = "q1_0"


_SYMMETRIC, _ASYMMETRIC = planq.Mode.SYMMETRIC, planq.Mode.ASYMMETRIC

_SCALES = {
    Scheme.INT8_CHANNEL: (planq.DType.INT8, planq.Scope.channel(0), _SYMMETRIC),
    Scheme.INT8_TENSOR: (planq.DType.INT8, planq.Scope.tensor(), _SYMMETRIC),
    Scheme.UINT8_CHANNEL: (planq.DType.UINT8, planq.Scope.channel(0), _ASYMMETRIC),
    Scheme.INT4_GROUP128: (planq.DType.INT4, planq.Scope.group(GROUP_SIZE), _SYMMETRIC),
    Scheme.INT4_GROUP: (planq.DType.INT4, planq.Scope.group(GROUP_SIZE), _SYMMETRIC),
    Scheme.UINT4_GROUP: (planq.DType.UINT4, planq.Scope.group(GROUP_SIZE), _ASYMMETRIC),
    Scheme.FP8_CHANNEL: (planq.DType.FLOAT8_E4M3FN, planq.Scope.channel(0), _SYMMETRIC),
    Scheme.FP8_TENSOR: (planq.DType.FLOAT8_E4M3FN, planq.Scope.tensor(), _SYMMETRIC),
    Scheme.FP8_BLOCK128: (
        planq.DType.FLOAT8_E4M3FN,
        planq.Scope.block(GROUP_SIZE, GROUP_SIZE),
        _SYMMETRIC,
    ),
}

# The sizes of groups that a scheme takes; the last one is the default.
GROUPED = {
    Scheme.INT4_GROUP128: (GROUP_SIZE,),
    Scheme.INT4_GROUP: (32, 64, GROUP_SIZE),
    Scheme.UINT4_GROUP: (32, 64, GROUP_SIZE),
}

# The codebook, and the default block size of bitsandbytes for it.
_CODEBOOKS = {
    Scheme.NF4: (planq.Codebook.NF4, 64),
    Scheme.FP4: (planq.Codebook.FP4, 64),
    Scheme.INT4_AF4: (planq.Codebook.AF4, 64),
    Scheme.DYNAMIC8: (planq.Codebook.DYNAMIC, 4096),
}
# The block size of nested statistics of 4-bit codes in bitsandbytes. For 8-bit codes, it takes the
# block size of the codes.
_NESTED_BLOCK_4BIT = 256


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a codebook scheme.

    Attributes:
        size: Elements that share an absmax.
        nested_size: How many absmax form a block of nested statistics; None if they are not nested.
    """

    size: int
    nested_size: int | None


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a scheme that has scales for groups of a row.

    Attributes:
        size: Neighbours in a row that share a scale.
        search: How the scale is found.
        method: Which code an element gets.
    """

    size: int
    search: Search = Search.NONE
    method: Method = Method.NEAREST


def is_weight(entry: TensorEntry) -> bool:
    """Whether a scheme applies to a tensor: two axes, and a floating type."""
    return entry.dtype in FLOATING and len(entry.shape) == 2


def choose_blocks(
    scheme: Scheme, size: int | None, *, nested: bool, calibrated: bool
) -> Blocks | None:
    """Returns the blocks of a codebook scheme; None for another scheme.

    Args:
        scheme: How weights are quantized.
        size: Elements of a block; None for the default of bitsandbytes.
        nested: Whether statistics are nested.
        calibrated: Whether ranges are given.

    Raises:
        CheckpointError: An option does not go with the scheme.
    """
    if scheme not in _SCALES:
        _refuse("--calibrate", scheme, _SCALES, given=calibrated)
    if scheme not in _CODEBOOKS:
        _refuse("--block-size", scheme, _CODEBOOKS, given=size is not None)
        _refuse("--nested", scheme, _CODEBOOKS, given=nested)
        return None
    codebook, usual = _CODEBOOKS[scheme]
    chosen = usual if size is None else size
    around = chosen if codebook is planq.Codebook.DYNAMIC else _NESTED_BLOCK_4BIT
    return Blocks(chosen, around if nested else None)


def choose_groups(
    scheme: Scheme,
    size: int | None,
    search: Search = Search.NONE,
    method: Method = Method.NEAREST,
    *,
    calibrated: bool = False,
) -> Groups | None:
    """Returns the groups of a scheme that has some; None for another scheme.

    Args:
        scheme: How weights are quantized.
        size: Elements of a group; None for 128.
        search: How scales are found.
        method: Which code an element gets.
        calibrated: Whether ranges are given.

    Raises:
        CheckpointError: An option does not go with the scheme, or with given ranges.
    """
    searches = search is not Search.NONE
    if scheme not in GROUPED:
        _refuse("--group-size", scheme, GROUPED, given=size is not None)
        _refuse("--search", scheme, GROUPED, given=searches)
        _refuse("--method", scheme, GROUPED, given=method is not Method.NEAREST)
        return None
    if searches and calibrated:
        raise CheckpointError("--search: expected ranges that are measured, got --calibrate")
    sizes = GROUPED[scheme]
    if size is not None and size not in sizes:
        known = ", ".join(map(str, sizes[:-1])) + " or " * (len(sizes) > 1) + str(sizes[-1])
        raise CheckpointError(f"--group-size: expected groups of {known} elements, got {size}")
    return Groups(sizes[-1] if size is None else size, search, method)


def describe(
    scheme: Scheme,
    entry: TensorEntry,
    *,
    calibrated: bool = False,
    blocks: Blocks | None = None,
    groups: Groups | None = None,
    rule: Mapping[str, Any] = MappingProxyType({}),
) -> Quantizing:
    """Returns the descriptor that a scheme gives one weight.

    Args:
        scheme: How weights are quantized.
        entry: The weight.
        calibrated: Whether its scales are given. Else the descriptor measures them, unless they
            are searched for, are GPTQ's, or are compressed-tensors' with zero points:
            `planq.checkpoint.groups` measures these.
        blocks: What `choose_blocks` returned for a codebook scheme; None for a scheme with scales.
        groups: What `choose_groups` returned for a scheme with groups; None for another one.
        rule: Descriptor fields that the format prescribes; only for schemes with scales.
    """
    if blocks:
        codebook, _ = _CODEBOOKS[scheme]
        eight_bits = codebook is planq.Codebook.DYNAMIC
        return planq.BlockwiseQuantizeDescriptor(
            shape=entry.shape,
            input_dtype=FLOATING[entry.dtype],
            output_dtype=planq.DType.UINT8 if eight_bits else planq.DType.UINT4,
            codebook=codebook,
            block_size=blocks.size,
            nested_block_size=blocks.nested_size,
        )
    output_dtype, scope, mode = _SCALES[scheme]
    if groups:
        scope = planq.Scope.group(groups.size)
        plainly = groups.search is Search.NONE and groups.method is Method.NEAREST
        calibrated |= not plainly or (bool(rule) and mode is _ASYMMETRIC)
    operator = planq.QuantizeDescriptor if calibrated else planq.DynamicRangeQuantizeDescriptor
    if calibrated and rule:
        rule = _rule_of_given(rule, output_dtype, FLOATING[entry.dtype])
    fields: dict[str, Any] = {
        "shape": entry.shape,
        "input_dtype": FLOATING[entry.dtype],
        "output_dtype": output_dtype,
        "scope": scope,
        "mode": mode,
        "nibble_order": planq.NibbleOrder.LOW_FIRST,
        **rule,
    }
    return operator(**fields)


def _rule_of_given(
    rule: Mapping[str, Any], output_dtype: planq.DType, input_dtype: planq.DType
) -> dict[str, Any]:
    """Returns the fields for given scales that codes of a format's convention have."""
    if rule != {"convention": planq.Convention.COMPRESSED_TENSORS}:
        raise AssertionError(f"groups under another rule: {rule}")
    lowest = {"q_min": -8.0} if output_dtype is planq.DType.INT4 else {}
    return {"scale_dtype": input_dtype, **lowest}


def _refuse(option: str, scheme: Scheme, fitting: Iterable[Scheme], *, given: bool) -> None:
    if given:
        names = ", ".join(name.value for name in fitting)
        raise CheckpointError(f"{option}: expected one of the schemes {names}, got {scheme.value}")
