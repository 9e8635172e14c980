"""Element types, and the enumerations that descriptors of several families use.

Every member's value is its lower-case name: the form that JSON, messages and the native layer use.
The native layer defines the same names (src/core/dtype.h, vocabulary.h) and refuses to be imported
with others. Enumerations of one family are in its ``vocabulary.py``.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from planq import _core

VOCABULARIES: Final[dict[str, type[enum.Enum]]] = {}
"""The enumerations that a field may be a member of, by name. The native layer reads this table."""


class Vocabulary(enum.StrEnum):
    """An enumeration of descriptors. Every subclass is listed in VOCABULARIES."""

    def __init_subclass__(cls) -> None:
        """Lists the subclass."""
        super().__init_subclass__()
        VOCABULARIES[cls.__name__] = cls


class DType(Vocabulary):
    """An element type.

    ``INT4``, ``UINT4`` and ``FLOAT4_E2M1FN`` are stored two a byte; shapes in descriptors count
    logical elements. No operator takes the microscaling formats (``FLOAT8_E8M0FNU``, ``FLOAT6_*``,
    ``FLOAT4_E2M1FN``). ``BOOL`` is for scalars: one byte, true if it is not 0.
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    INT8 = "int8"
    UINT8 = "uint8"
    INT4 = "int4"
    UINT4 = "uint4"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT8_E8M0FNU = "float8_e8m0fnu"
    FLOAT6_E2M3FN = "float6_e2m3fn"
    FLOAT6_E3M2FN = "float6_e3m2fn"
    FLOAT4_E2M1FN = "float4_e2m1fn"
    BOOL = "bool"

    @classmethod
    def parse(cls, value: object, field: str = "dtype") -> DType:
        """Reads a member, its name, a ``torch.dtype`` or a NumPy / ml_dtypes dtype.

        Args:
            value: What names the type.
            field: The descriptor field that a fault is reported under.

        Raises:
            DescriptorError: The value names no type that planq knows.
        """
        found: DType = _core.read_member(cls, value, field)
        return found


def name_of_dtype(value: object) -> str:
    """The plain name behind ``torch.int8``, ``np.int8`` or ``np.dtype("int8")``."""
    if isinstance(value, type):
        return "bool" if value.__name__ == "bool_" else value.__name__  # NumPy 1 says bool_
    name = getattr(value, "name", None)
    if isinstance(name, str):
        return name
    if type(value).__module__ == "torch":
        return str(value).removeprefix("torch.")
    return ""


class Mode(Vocabulary):
    """Whether a zero point exists. ``SYMMETRIC``: none, and no ``zero_point`` operand."""

    SYMMETRIC = "symmetric"
    ASYMMETRIC = "asymmetric"


class Quotient(Vocabulary):
    """How an element is divided by its scale; it decides codes near ties.

    ``DIVIDE``: one true IEEE division ``fl(x / s)`` (ONNX, fp8 casts of scaled values).
    ``RECIPROCAL``: ``fl(x * fl(1 / s))`` (torch fake-quantize, torchao, baracuda).
    ``RATIO``: ``fl(x * fl(q_max / max|x|))``, symmetric only (bitsandbytes and vLLM int8).
    """

    DIVIDE = "divide"
    RECIPROCAL = "reciprocal"
    RATIO = "ratio"


class NonFinite(Vocabulary):
    """What a segment with a NaN or an infinity becomes.

    ``PROPAGATE``: scale NaN, zero point 0, integer codes 0, fp8 codes NaN: it dequantizes to NaN.
    ``SATURATE``: the range is that of the finite elements; +Inf takes q_max, -Inf q_min, NaN the
    zero point.
    """

    PROPAGATE = "propagate"
    SATURATE = "saturate"


class NibbleOrder(Vocabulary):
    """Which nibble the first of two 4-bit codes takes.

    ``LOW_FIRST``: torch, CUTLASS. ``HIGH_FIRST``: bitsandbytes, DeepSpeed.
    """

    LOW_FIRST = "low_first"
    HIGH_FIRST = "high_first"


class Convention(Vocabulary):
    """Which library's formulas make scales and codes, or apply scales to products.

    ``PLANQ``: docs/numerics/affine.md, sections 2 to 4, and linear.md.
    ``COMPRESSED_TENSORS``: symmetric, ``scale = max|x| / ((q_max - q_min) / 2)`` over all codes of
    the type, computed in the input's type; a scale of 0 becomes the epsilon of that type.
    ``GGML``: the blocks Q8_0 (int8) and Q4_0 (int4) of GGUF files.
    ``BITSANDBYTES``, ``BARACUDA``: the order and the factors by which scales are applied to the
    sums of a product.
    ``DEEPSPEED``: groups with 2^b levels and a stored multiplier; also its fake quantization.
    ``DEEPSPEED_INTX``: groups with 2^b - 1 levels and a stored divisor. docs/numerics/group.md has
    both.
    ``MX``, ``MX_ROUND_UP``: OCP's microscaling formats, groups of 32 whose scales are powers of two
    (float8_e8m0fnu). Their exponent is that of the largest magnitude as it is, or rounded to the
    code's mantissa first.
    ``NVFP4``: groups of 16 float4_e2m1fn codes with float8_e4m3fn scales, under a scale of the
    whole tensor.
    ``VLLM``: float8_e4m3fn codes with a float32 scale for each token, ``max|x| / 448``, whose range
    may have an upper bound (``scale_ub``), and which is at least ``1 / (448 * 512)``.
    """

    PLANQ = "planq"
    COMPRESSED_TENSORS = "compressed_tensors"
    GGML = "ggml"
    BITSANDBYTES = "bitsandbytes"
    BARACUDA = "baracuda"
    DEEPSPEED = "deepspeed"
    DEEPSPEED_INTX = "deepspeed_intx"
    MX = "mx"
    MX_ROUND_UP = "mx_round_up"
    NVFP4 = "nvfp4"
    VLLM = "vllm"


class Rounding(Vocabulary):
    """How a real value becomes a code.

    ``NEAREST_EVEN``: to nearest, ties to even. ``STOCHASTIC``: up or down at random, so that the
    expected value is the value itself; random numbers are Philox4x32-10 of a seed and the element's
    index. ``NONE``: nothing is rounded. ``NEAREST_AWAY``, ``NEAREST_UP``: to nearest, ties away
    from zero, or up.
    """

    NEAREST_EVEN = "nearest_even"
    STOCHASTIC = "stochastic"
    NONE = "none"
    NEAREST_AWAY = "nearest_away"
    NEAREST_UP = "nearest_up"


class Backend(Vocabulary):
    """Where kernels run."""

    HOST = "host"
    CUDA = "cuda"


class Role(Vocabulary):
    """Whether an operand is read or written. ``INOUT``: it is updated in place."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"


class OperandKind(Vocabulary):
    """What an operand is. ``LIST``: several tensors. ``SCALAR``: a number, or one in memory."""

    TENSOR = "tensor"
    LIST = "list"
    SCALAR = "scalar"


class MathPrecision(Vocabulary):
    """What the multiplications and divisions of a kernel are done in.

    ``TENSOR_CORE_*``: a GPU's matrix units, which multiply elements of this type exactly and keep
    sums in the guarantee's ``accumulator``. ``NONE``: nothing is multiplied or divided.
    """

    F32 = "f32"
    F64 = "f64"
    INT32 = "int32"
    TENSOR_CORE_S8 = "tensor_core_s8"
    TENSOR_CORE_F16 = "tensor_core_f16"
    TENSOR_CORE_BF16 = "tensor_core_bf16"
    TENSOR_CORE_E4M3 = "tensor_core_e4m3"
    TENSOR_CORE_E5M2 = "tensor_core_e5m2"
    NONE = "none"


class Determinism(enum.IntEnum):
    """When equal inputs give equal bits; each level includes those below it.

    ``NOT_GUARANTEED``: no promise. ``RUN_TO_RUN``: in all runs of one plan on one GPU.
    ``GPU_TO_GPU``: on every supported GPU. ``BIT_EXACT``: the bits of the host backend, on every
    GPU, for every launch shape and thread count.
    """

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2
    BIT_EXACT = 3


VOCABULARIES[Determinism.__name__] = Determinism


def parse_member(vocabulary: type[Any], value: object, field: str) -> Any:
    """Reads a member of a vocabulary from itself or its name.

    Raises:
        DescriptorError: The value is neither.
    """
    return _core.read_member(vocabulary, value, field)
