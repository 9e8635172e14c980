"""The classes of `dequantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NibbleOrder
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
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

        ``convention`` applies scales as other libraries do. BITSANDBYTES, accumulators: scales are
        absmax, and ``y = round(fma(fl(fl(fl(q) * s_row) * s_column), c, b))`` with
        ``c = 6.200012e-05`` (0x38820610, its ``1 / 127**2``), and ``b = +0`` without a bias.
        BITSANDBYTES, int8 codes: ``y = round(fl(fl(q * s) * c))`` with ``c = 7.874016e-03``
        (0x3C010204, its ``1 / 127``). BARACUDA: ``y = round(fl(fl(s_row * s_column) * fl(q)))``,
        with the bias as above.

        Formats of groups: MX ``round(fl(v * s))``, v the value of the code and s that of its
        float8_e8m0fnu scale, ``2^(e - 127)`` or NaN for ``e = 255``; NVFP4
        ``round(fl(v * fl(s * t)))``, s in float8_e4m3fn and t the ``tensor_scale``.

        A NaN result is the canonical NaN of the output's type.

    Dtypes:
        input int8, uint8, int4, uint4 (two codes a byte along the last axis), float8_e4m3fn,
        float8_e5m2, int32; output and bias float16, bfloat16, float32, float64; scale likewise;
        zero_point int32 or the input's type. Under MX input float4_e2m1fn (two codes a byte),
        float8_e4m3fn, float8_e5m2, and scale float8_e8m0fnu; under NVFP4 input float4_e2m1fn, scale
        float8_e4m3fn, tensor_scale float32; output float16, bfloat16, float32 under both.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``input`` has the output's shape (4-bit: the last axis
        halved, rounded up); ``scale`` and ``zero_point`` have the scope's parameter shape;
        ``column_scale`` and ``bias`` are ``(shape[-1],)``, ``tensor_scale`` is ``(1,)``. Under MX
        and NVFP4 the last group of a row may be shorter.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Logical shape of ``output``.
        input_dtype: Element type of the codes.
        output_dtype: Element type of ``output``.
        scope: Which elements share a scale; ``pair()`` for int32 only: ``scale`` holds the rows'.
        mode: SYMMETRIC has no ``zero_point`` operand.
        scale_dtype: Element type of the scales. Default: float32, float64 for float64 output; MX
            float8_e8m0fnu, NVFP4 float8_e4m3fn.
        zero_point_dtype: Element type of ``zero_point``: int32 (default) or ``input_dtype``.
        nibble_order: 4-bit only: which nibble holds the first of two codes.
        bias_dtype: int32 only: element type of ``bias``; None: there is none.
        convention: Which library's order of scales. BITSANDBYTES: int32 with ``pair()``, or int8
            with ``token()``; BARACUDA: int32 with ``pair()``. MX, which
            reads the codes of MX_ROUND_UP too: ``group(32)``; NVFP4: ``group(16)``.

    Raises:
        DescriptorError: A zero point for fp8 or int32, ``pair()`` or a bias for codes other than
            int32, a zero point of another type, an axis outside of the shape, ``block()`` for a
            tensor of one axis, a convention with other codes or another scope.

    Source:
        baracuda ``dequantize_per_*``, ``quantized_linear``; ONNX ``DequantizeLinear``; bitsandbytes
        ``int8_mm_dequant`` (its default backend's constant, 6.200124e-05, is 1.8e-5 too large) and
        ``int8_vectorwise_dequant``.
    """

    operator: ClassVar[str] = "dequantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    scope: Scope = Scope.tensor()
    mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = None
    zero_point_dtype: DTypeField = None
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    bias_dtype: DTypeField = None
    convention: Convention = Convention.PLANQ


@args_class
class DequantizeArgs:
    """Operands of :class:`DequantizeDescriptor`.

    Attributes:
        input: The codes or accumulators; any outer strides, innermost stride 1.
        output: Where the values go; likewise.
        scale: The scales, one per segment; ``pair()``: one per row.
        zero_point: The zero points, one per segment; None when symmetric.
        column_scale: ``pair()``: the scales of the columns; else None.
        bias: What is added to each column; None without ``bias_dtype``.
        tensor_scale: NVFP4: the scale of the tensor, by which all scales are multiplied; else None.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor | None = None
    column_scale: Tensor | None = None
    bias: Tensor | None = None
    tensor_scale: Tensor | None = None


class DequantizePlan(Plan):
    """A plan for :class:`DequantizeDescriptor`."""

    __slots__ = ()


register(DequantizeDescriptor, DequantizeArgs, DequantizePlan)
