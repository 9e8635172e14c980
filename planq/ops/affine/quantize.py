"""The classes of `quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, NibbleOrder, NonFinite, Quotient
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
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
        Every kernel is BIT_EXACT and batch-invariant.

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
            an axis outside of the shape, ``block()`` for a tensor of one axis.

    Source:
        baracuda ``quantize_per_tensor``, ``_per_channel``, ``_per_token``, ``_per_group``; ONNX
        ``QuantizeLinear``; torch ``quantize_per_channel``.
    """

    operator: ClassVar[str] = "quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    zero_point_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST


@args_class
class QuantizeArgs:
    """Operands of :class:`QuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        scale: The scales, one per segment.
        zero_point: The zero points, one per segment; None when symmetric.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor | None = None


class QuantizePlan(Plan):
    """A plan for :class:`QuantizeDescriptor`."""

    __slots__ = ()


register(QuantizeDescriptor, QuantizeArgs, QuantizePlan)
