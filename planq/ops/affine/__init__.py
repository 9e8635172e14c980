"""The affine family: codes that dequantize as ``x ~ scale * (code - zero_point)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from planq.descriptor import Descriptor
from planq.dtypes import DTypeLike, Mode, NibbleOrder, NonFinite, Quotient, Rounding
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope

__all__ = [
    "DequantizeArgs",
    "DequantizeBackwardArgs",
    "DequantizeBackwardDescriptor",
    "DequantizeBackwardPlan",
    "DequantizeDescriptor",
    "DequantizePlan",
    "DynamicRangeQuantizeArgs",
    "DynamicRangeQuantizeDescriptor",
    "DynamicRangeQuantizePlan",
    "FakeQuantizeArgs",
    "FakeQuantizeBackwardArgs",
    "FakeQuantizeBackwardDescriptor",
    "FakeQuantizeBackwardPlan",
    "FakeQuantizeDescriptor",
    "FakeQuantizePlan",
    "MinMaxArgs",
    "MinMaxDescriptor",
    "MinMaxPlan",
    "QuantizeArgs",
    "QuantizeBackwardArgs",
    "QuantizeBackwardDescriptor",
    "QuantizeBackwardPlan",
    "QuantizeDescriptor",
    "QuantizePlan",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicRangeQuantizeDescriptor(Descriptor):
    """Measure the range of every segment, derive scale and zero point, and quantize, in one run.

    When to use:
        Activations on their way into a quantized product (``Scope.token()``), weights
        (``Scope.channel(0)``, ``Scope.group(128)``, ``Scope.block(128, 128)``), whole tensors;
        whenever the range is not known beforehand.

    Formula:
        ``fl`` is one IEEE operation in the compute type C (float64 for float64 input, else
        float32), ``rne`` rounds half to even, ``M = max|x|``, ``lo = min x``, ``hi = max x`` over
        the segment.

        Symmetric: ``scale = max(fl(M / q_max), smallest normal)``, 1 where ``M = 0``;
        ``q = clamp(rne(fl(x / scale)), q_min, q_max)``.

        Asymmetric: ``lo``, ``hi`` are widened to hold 0 under ``include_zero``;
        ``scale = max(fl(fl(hi - lo) / (q_max - q_min)), smallest normal)`` (by halves where
        ``hi - lo`` overflows), 1 where ``lo = hi = 0``;
        ``zero_point = q_min - rne(fl(lo / scale))``, clamped to ``[q_min, q_max]`` under
        ``include_zero`` and to ``+-2^30`` without;
        ``q = clamp(rne(fl(x / scale)) + zero_point, q_min, q_max)``. Without ``include_zero`` a
        constant segment ``c != 0`` takes ``scale = |c|``, ``zero_point = q_min - sign(c)``.

        The scale is rounded to ``scale_dtype`` and kept in its normal range before it is used. fp8
        codes round to nearest even with saturation and keep subnormals and the sign of zero.
        docs/numerics.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output int8, uint8, int4, uint4 (two codes a byte
        along the last axis), float8_e4m3fn, float8_e5m2; scale float16, bfloat16, float32, float64;
        zero_point int32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape (4-bit: the last axis
        halved, rounded up); ``scale`` and ``zero_point`` have the scope's parameter shape (see
        :class:`planq.Scope`).

    Workspace:
        None for most rows; ``plan.workspace_size()`` says, where a segment spans several blocks.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: Element type of the codes.
        scope: Which elements share a scale.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code. Default: symmetric -127 (int8), -7 (int4); asymmetric the dtype's
            lowest; fp8 the lowest finite value.
        q_max: Highest code. Default: the dtype's highest.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 input.
        quotient: How an element is divided by its scale.
        nonfinite: What a segment with a NaN or an infinity becomes.
        include_zero: Asymmetric only: the range always holds 0, so that 0 has a code of its own.
        nibble_order: 4-bit only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: Symmetric into an unsigned dtype, asymmetric into fp8, RATIO without
            symmetry, bounds that are no codes of the dtype, ``q_max <= 0`` (symmetric),
            ``q_min >= q_max``, an axis outside of the shape, blocks of a tensor of one axis.

    Source:
        baracuda ``DynamicRangeQuantizePlan``; ONNX ``DynamicQuantizeLinear``; bitsandbytes
        ``int8_vectorwise_quant``.
    """

    operator: ClassVar[str] = "dynamic_range_quantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    scope: Scope = Scope.token()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeLike = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    include_zero: bool = True
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@dataclass(slots=True, kw_only=True)
class DynamicRangeQuantizeArgs:
    """Operands of :class:`DynamicRangeQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        scale: Where the scales go, one per segment.
        zero_point: Where the zero points go (int32), one per segment; None when symmetric.
    """

    input: Any
    output: Any
    scale: Any
    zero_point: Any = None


class DynamicRangeQuantizePlan(Plan):
    """A plan for :class:`DynamicRangeQuantizeDescriptor`."""

    __slots__ = ()


register(DynamicRangeQuantizeDescriptor, DynamicRangeQuantizeArgs, DynamicRangeQuantizePlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeDescriptor(Descriptor):
    """Quantize with scales and zero points that are known: static affine codes.

    When to use:
        Weights and calibrated activations, whose ranges :func:`planq.qparams` or an earlier run
        gave; ONNX ``QuantizeLinear`` and torch ``quantize_per_tensor`` / ``quantize_per_channel``.

    Formula:
        ``fl`` is one IEEE operation in the compute type C (float64 for float64 input, else
        float32), ``rne`` rounds half to even, ``s`` is the scale in C (one rounding if it is stored
        wider), ``z`` the zero point, 0 when symmetric.

        ``t = fl(x / s)`` (DIVIDE), ``fl(x * fl(1 / s))`` (RECIPROCAL) or
        ``fl(x * fl(q_max / fl(s * q_max)))`` (RATIO).

        Integers: ``q = clamp(rne(t) + z, q_min, q_max)``. The sum is exact: no value wraps. A NaN
        takes the zero point, an infinity the bound on its side.

        fp8: ``t`` clamped to ``[q_min, q_max]`` and rounded to nearest even; subnormals and the
        sign of zero are kept. A NaN becomes the NaN code (PROPAGATE) or 0 (SATURATE).

    Dtypes:
        input float16, bfloat16, float32, float64; output int8, uint8, int4, uint4 (two codes a byte
        along the last axis), float8_e4m3fn, float8_e5m2; scale float16, bfloat16, float32, float64;
        zero_point int32 or the output's type.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape (4-bit: the last axis
        halved, rounded up); ``scale`` and ``zero_point`` have the scope's parameter shape (see
        :class:`planq.Scope`; 4-bit zero points: its last axis halved likewise).

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input``.
        input_dtype: Element type of ``input``.
        output_dtype: Element type of the codes.
        scope: Which elements share a scale; any but ``pair()``.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code. Default: symmetric -127 (int8), -7 (int4); else the dtype's lowest.
        q_max: Highest code. Default: the dtype's highest.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 input.
        zero_point_dtype: Element type of ``zero_point``: int32 (default) or ``output_dtype``.
        quotient: How an element is divided by its scale.
        nonfinite: fp8 only: what a NaN becomes.
        nibble_order: 4-bit only: which nibble the first of two codes takes.

    Raises:
        DescriptorError: Asymmetric into fp8, RATIO without symmetry, bounds that are no codes of
            the dtype, ``q_max <= 0`` (symmetric), ``q_min >= q_max``, a zero point of another type,
            an axis outside of the shape, blocks of a vector.

    Source:
        baracuda ``quantize_per_tensor``, ``_per_channel``, ``_per_token``, ``_per_group``; ONNX
        ``QuantizeLinear``; torch ``quantize_per_channel``.
    """

    operator: ClassVar[str] = "quantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeLike = None
    zero_point_dtype: DTypeLike = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@dataclass(slots=True, kw_only=True)
class QuantizeArgs:
    """Operands of :class:`QuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        scale: The scales, one per segment.
        zero_point: The zero points, one per segment; None when symmetric.
    """

    input: Any
    output: Any
    scale: Any
    zero_point: Any = None


class QuantizePlan(Plan):
    """A plan for :class:`QuantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeDescriptor(Descriptor):
    """Give codes, or the int32 accumulators of a quantized product, back their scale.

    When to use:
        The inverse of :class:`QuantizeDescriptor` and :class:`DynamicRangeQuantizeDescriptor`, and
        the step after an integer matrix product.

    Formula:
        ``fl`` is one IEEE operation in the compute type C (float64 for float64 output, else
        float32), ``s`` the scale in C, ``z`` the zero point, 0 when symmetric.

        ``y = round(fl(s * fl(q - z)))``: an exact integer difference, one product, one rounding to
        the output's type. fp8 codes are exact values.

        ``pair()``: ``y = round(fl(fl(fl(q) * s_row) * s_column))``. With a bias, one more sum
        before the rounding: ``round(fl(... + b))``.

        A NaN result is the canonical NaN of the output's type.

    Dtypes:
        input int8, uint8, int4, uint4 (two codes a byte along the last axis), float8_e4m3fn,
        float8_e5m2, int32; output and bias float16, bfloat16, float32, float64; scale likewise;
        zero_point int32 or the input's type.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` has the output's shape (4-bit: the last axis
        halved, rounded up); ``scale`` and ``zero_point`` have the scope's parameter shape;
        ``column_scale`` and ``bias`` are ``(shape[-1],)``.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``output``.
        input_dtype: Element type of the codes.
        output_dtype: Element type of ``output``.
        scope: Which elements share a scale; ``pair()`` for int32 only: ``scale`` holds the rows'.
        mode: SYMMETRIC has no ``zero_point`` operand.
        scale_dtype: Element type of the scales. Default: float32, float64 for float64 output.
        zero_point_dtype: Element type of ``zero_point``: int32 (default) or ``input_dtype``.
        nibble_order: 4-bit only: which nibble holds the first of two codes.
        bias_dtype: int32 only: element type of ``bias``; None: there is none.

    Raises:
        DescriptorError: A zero point for fp8 or int32, ``pair()`` or a bias for other codes, a zero
            point of another type, an axis outside of the shape, blocks of a vector.

    Source:
        baracuda ``dequantize_per_*``; ONNX ``DequantizeLinear``; bitsandbytes ``int8_mm_dequant``.
    """

    operator: ClassVar[str] = "dequantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeLike = None
    zero_point_dtype: DTypeLike = None
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    bias_dtype: DTypeLike = None


@dataclass(slots=True, kw_only=True)
class DequantizeArgs:
    """Operands of :class:`DequantizeDescriptor`.

    Attributes:
        input: The codes or accumulators; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        scale: The scales, one per segment; ``pair()``: one per row.
        zero_point: The zero points, one per segment; None when symmetric.
        column_scale: ``pair()``: the scales of the columns; else None.
        bias: What is added to each column; None without ``bias_dtype``.
    """

    input: Any
    output: Any
    scale: Any
    zero_point: Any = None
    column_scale: Any = None
    bias: Any = None


class DequantizePlan(Plan):
    """A plan for :class:`DequantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeQuantizeDescriptor(Descriptor):
    """Quantize and dequantize in one pass: what a model will compute with, in its own type.

    When to use:
        Quantization-aware training, and measuring what codes of 2 to 8 bits would lose. In place if
        wanted: ``output`` may be exactly ``input``.

    Formula:
        ``y = round(fl(s * (q - z)))`` with ``q`` of :class:`QuantizeDescriptor` (integers): the
        bits of dequantize(quantize(x)). An element that is NaN stays NaN (PROPAGATE), or takes the
        zero point (SATURATE).

        STOCHASTIC: ``q = clamp(floor(fl(t + u)) + z, q_min, q_max)``, ``u = (w >> 8) * 2^-24``,
        ``w`` = word ``i mod 4`` of Philox4x32-10 with key ``seed`` and counter
        ``offset + i div 4``, ``i`` = the element's index in the logical tensor. So the result
        depends on seed, offset and index only.

        ``dynamic``: scale and zero point are those of :class:`DynamicRangeQuantizeDescriptor` for
        the segment, with its rules for NaN and infinities.

    Dtypes:
        input and output float16, bfloat16, float32, float64; scale likewise; zero_point int32, int8
        or uint8; seed and offset integers of 64 bits.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``scale`` and ``zero_point`` have the scope's
        parameter shape; ``seed`` and ``offset`` are one number.

    Workspace:
        None for given parameters; ``plan.workspace_size()`` says for dynamic ones.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input`` and ``output``.
        input_dtype: Element type of both.
        scope: Which elements share a scale; any but ``pair()``.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code, an integer from -128. Default: -127 (symmetric), -128.
        q_max: Highest code, an integer to 255, at most ``q_min + 255``. Default: 127.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 input.
        zero_point_dtype: Element type of ``zero_point``. Default: int32; dynamic: always.
        quotient: How an element is divided by its scale.
        nonfinite: What a NaN becomes; dynamic: what a segment with a NaN or an infinity becomes.
        include_zero: Dynamic, asymmetric only: the range always holds 0.
        rounding: NEAREST_EVEN, or STOCHASTIC with a seed and an offset.
        dynamic: Whether the range of each segment is measured; ``scale`` and ``zero_point`` are
            then outputs, and None if they are not wanted.

    Raises:
        DescriptorError: RATIO without symmetry, bounds that are no integers in [-128, 255] or hold
            more than 256 codes, ``q_max <= 0`` (symmetric), ``q_min >= q_max``, an axis outside of
            the shape, blocks of a vector.

    Source:
        baracuda ``fake_quantize``; torch ``fake_quantize_per_channel_affine``; DeepSpeed
        ``ds_sr_quantize``.
    """

    operator: ClassVar[str] = "fake_quantize"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeLike = None
    zero_point_dtype: DTypeLike = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    include_zero: bool = True
    rounding: Rounding = Rounding.NEAREST_EVEN
    dynamic: bool = False


@dataclass(slots=True, kw_only=True)
class FakeQuantizeArgs:
    """Operands of :class:`FakeQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the values go; likewise; may be exactly ``input``.
        scale: The scales, one per segment; dynamic: where they go, or None.
        zero_point: The zero points, likewise; None when symmetric.
        seed: STOCHASTIC: an integer, or an int64 scalar on the plan's device; else None.
        offset: Likewise, in units of four elements; what a captured graph advances.
    """

    input: Any
    output: Any
    scale: Any = None
    zero_point: Any = None
    seed: Any = None
    offset: Any = None


class FakeQuantizePlan(Plan):
    """A plan for :class:`FakeQuantizeDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeBackwardDescriptor(Descriptor):
    """The straight-through gradient of :class:`QuantizeDescriptor`.

    When to use:
        Training through a quantizer whose codes are taken as real numbers.

    Formula:
        ``dx = round(g)`` where the element's code before clamping, ``rne(t) + z``, lies in
        ``[q_min, q_max]``, both ends included; +0 elsewhere, and where ``t`` is NaN or infinite.
        ``t`` is the forward's quotient, recomputed from the saved input, and ``g`` is ``dy``
        divided by the scale in the same way: ``fl(dy / s)`` (DIVIDE) and so on. fp8 compares ``t``
        itself. A NaN result is canonical.

    Dtypes:
        Gradients and input float16, bfloat16, float32, float64; the rest as in the forward.

    Shapes:
        Those of the forward; gradients have the input's shape.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input`` and of both gradients.
        input_dtype: Element type of the three.
        output_dtype: Element type of the forward's codes.
        scope: The forward's; so are the fields that follow.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code.
        q_max: Highest code.
        scale_dtype: Element type of ``scale``.
        zero_point_dtype: Element type of ``zero_point``; 4-bit ones have their first in the low
            nibble.
        quotient: How an element is divided by its scale.

    Raises:
        DescriptorError: As the forward.

    Source:
        baracuda ``quantize_per_tensor_backward`` and its like, with one mask for all of them.
    """

    operator: ClassVar[str] = "quantize_backward"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    output_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeLike = None
    zero_point_dtype: DTypeLike = None
    quotient: Quotient = Quotient.DIVIDE


@dataclass(slots=True, kw_only=True)
class QuantizeBackwardArgs:
    """Operands of :class:`QuantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the codes; any outer strides, innermost stride 1.
        input: What the forward quantized; likewise.
        grad_input: Where the gradient of the input goes; may be exactly ``grad_output``.
        scale: The forward's scales.
        zero_point: The forward's zero points; None when symmetric.
    """

    grad_output: Any
    input: Any
    grad_input: Any
    scale: Any
    zero_point: Any = None


class QuantizeBackwardPlan(Plan):
    """A plan for :class:`QuantizeBackwardDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizeBackwardDescriptor(Descriptor):
    """The gradient of :class:`DequantizeDescriptor` with respect to its codes, as real numbers.

    When to use:
        Training through a dequantizer.

    Formula:
        ``dq = round(fl(dy * s))``; a NaN result is canonical.

    Dtypes:
        Gradients and scale float16, bfloat16, float32, float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``scale`` has the scope's parameter shape.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of both gradients.
        output_dtype: Element type of both; the forward's output.
        scope: Which elements share a scale; any but ``pair()``.
        scale_dtype: Element type of ``scale``. Default: float32, float64 for float64 gradients.

    Raises:
        DescriptorError: An axis outside of the shape, blocks of a vector, ``pair()``.

    Source:
        baracuda ``dequantize_per_*_backward``.
    """

    operator: ClassVar[str] = "dequantize_backward"

    shape: tuple[int, ...]
    output_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    scale_dtype: DTypeLike = None


@dataclass(slots=True, kw_only=True)
class DequantizeBackwardArgs:
    """Operands of :class:`DequantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the values; any outer strides, innermost stride 1.
        grad_input: Where the gradient of the codes goes; may be exactly ``grad_output``.
        scale: The forward's scales.
    """

    grad_output: Any
    grad_input: Any
    scale: Any


class DequantizeBackwardPlan(Plan):
    """A plan for :class:`DequantizeBackwardDescriptor`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeQuantizeBackwardDescriptor(Descriptor):
    """The straight-through gradient of :class:`FakeQuantizeDescriptor`.

    When to use:
        Quantization-aware training. After a dynamic forward, pass the scale and zero point that it
        wrote.

    Formula:
        ``dx = dy``, bit for bit, where the element's code before clamping, ``rne(t) + z``, lies in
        ``[q_min, q_max]``, both ends included; +0 elsewhere, and where ``t`` is NaN or infinite.
        ``t`` is the forward's quotient, recomputed from the saved input.

    Dtypes:
        Gradients, input and scale float16, bfloat16, float32, float64; zero_point int32, int8 or
        uint8.

    Shapes:
        Those of the forward; gradients have the input's shape.

    Workspace:
        None.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``input`` and of both gradients.
        input_dtype: Element type of the three.
        scope: The forward's; so are the fields that follow.
        mode: SYMMETRIC has no ``zero_point`` operand.
        q_min: Lowest code.
        q_max: Highest code.
        scale_dtype: Element type of ``scale``.
        zero_point_dtype: Element type of ``zero_point``.
        quotient: How an element is divided by its scale.

    Raises:
        DescriptorError: As the forward.

    Source:
        baracuda ``fake_quantize_backward``; torch ``fake_quantize_per_channel_affine`` under
        autograd.
    """

    operator: ClassVar[str] = "fake_quantize_backward"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeLike = None
    zero_point_dtype: DTypeLike = None
    quotient: Quotient = Quotient.DIVIDE


@dataclass(slots=True, kw_only=True)
class FakeQuantizeBackwardArgs:
    """Operands of :class:`FakeQuantizeBackwardDescriptor`.

    Attributes:
        grad_output: The gradient of the forward's output; any outer strides, innermost stride 1.
        input: What the forward quantized; likewise.
        grad_input: Where the gradient of the input goes; may be exactly ``grad_output``.
        scale: The forward's scales.
        zero_point: The forward's zero points; None when symmetric.
    """

    grad_output: Any
    input: Any
    grad_input: Any
    scale: Any
    zero_point: Any = None


class FakeQuantizeBackwardPlan(Plan):
    """A plan for :class:`FakeQuantizeBackwardDescriptor`."""

    __slots__ = ()


register(QuantizeDescriptor, QuantizeArgs, QuantizePlan)
register(DequantizeDescriptor, DequantizeArgs, DequantizePlan)
register(FakeQuantizeDescriptor, FakeQuantizeArgs, FakeQuantizePlan)
register(QuantizeBackwardDescriptor, QuantizeBackwardArgs, QuantizeBackwardPlan)
register(DequantizeBackwardDescriptor, DequantizeBackwardArgs, DequantizeBackwardPlan)
register(FakeQuantizeBackwardDescriptor, FakeQuantizeBackwardArgs, FakeQuantizeBackwardPlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinMaxDescriptor(Descriptor):
    """Measure the range of every segment, and widen ranges from before by it.

    When to use:
        Calibration: run over batch after batch with ``update``, then make parameters of the ranges
        by :func:`planq.qparams`. Also wherever a range is wanted without codes.

    Formula:
        Symmetric: ``absmax = max|x|``. Asymmetric: ``minimum = min x``, ``maximum = max x``. A
        segment without elements has 0, and -0 is stored as +0. With ``update`` each result is the
        larger (``minimum``: the smaller) of the segment's own and the previous one, which a segment
        without elements keeps.

        PROPAGATE: infinities are numbers like others; a NaN among the elements makes every result
        of the segment NaN, and a previous NaN stays. SATURATE: elements that are NaN or infinite
        are left out, and a previous NaN counts as none; a previous infinity is a number.
        docs/numerics.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; results float32, of float64 input float64.

    Shapes:
        Rank 1 to 8, any extents, 0 included. Results have the scope's parameter shape (see
        :class:`planq.Scope`).

    Workspace:
        ``plan.workspace_size()`` says; rows that need none take every descriptor.

    Guarantee:
        Every row is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        scope: Which elements a range is of.
        mode: SYMMETRIC measures ``absmax``, ASYMMETRIC ``minimum`` and ``maximum``.
        nonfinite: What NaN and infinities do to a range.
        update: Whether there are ``previous_`` operands, which a result may also replace in place.

    Raises:
        DescriptorError: An axis outside of the shape, the scope ``pair``.

    Source:
        torch ``MinMaxObserver``, ``PerChannelMinMaxObserver``.
    """

    operator: ClassVar[str] = "min_max"

    shape: tuple[int, ...]
    input_dtype: DTypeLike
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    nonfinite: NonFinite = NonFinite.PROPAGATE
    update: bool = False


@dataclass(slots=True, kw_only=True)
class MinMaxArgs:
    """Operands of :class:`MinMaxDescriptor`.

    Attributes:
        input: What to measure; any outer strides, innermost stride 1.
        absmax: Where the largest magnitudes go, one per segment; symmetric only.
        minimum: Where the smallest elements go, one per segment; asymmetric only.
        maximum: Where the largest elements go, one per segment; asymmetric only.
        previous_absmax: What ``absmax`` was before; ``update`` only. May be ``absmax`` itself.
        previous_minimum: What ``minimum`` was before; likewise.
        previous_maximum: What ``maximum`` was before; likewise.
    """

    input: Any
    absmax: Any = None
    minimum: Any = None
    maximum: Any = None
    previous_absmax: Any = None
    previous_minimum: Any = None
    previous_maximum: Any = None


class MinMaxPlan(Plan):
    """A plan for :class:`MinMaxDescriptor`."""

    __slots__ = ()


register(MinMaxDescriptor, MinMaxArgs, MinMaxPlan)
