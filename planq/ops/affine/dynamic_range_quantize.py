"""The classes of `dynamic_range_quantize`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode, NibbleOrder, NonFinite, Quotient
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
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

        ``Convention.COMPRESSED_TENSORS``, symmetric: ``scale = fl(M / fl((q_max - q_min) / 2))``,
        rounded to ``scale_dtype``; subnormal scales are kept, 0 becomes the epsilon of the type.

        ``Convention.GGML``, groups of 32 along the last axis: int8 ``d = fl(M / 127)``, ``q`` is
        ``fl(x * fl(1 / d))`` rounded half away from zero; int4 ``d = fl(e / -8)`` with the first
        element e of magnitude M, ``q = min(trunc(fl(fl(x * fl(1 / d)) + 8.5)), 15) - 8``. ``scale``
        is d rounded to float16; codes are made with d itself, and are those of 0 where ``1 / d`` is
        not finite.

        ``Convention.MX``, groups of 32 along the last axis: ``scale = 2^(floor(log2(M)) - emax)``,
        emax 2 (float4_e2m1fn), 8 (float8_e4m3fn), 15 (float8_e5m2), at least ``2^-127``, stored as
        float8_e8m0fnu; ``q = rne(x / scale)``, saturating. ``Convention.MX_ROUND_UP``: the same
        with M rounded to the code's mantissa before, half up. An infinity counts as ``2^128``.

        ``Convention.NVFP4``, groups of 16, float4_e2m1fn: with ``g`` the ``inverse_tensor_scale``,
        ``scale`` is ``fl(fl(M / 6) * g)`` rounded to float8_e4m3fn, between ``2^-9`` and 448;
        ``q = rne(fl(x * fl(g / scale)))``, saturating.

        A NaN makes the scale of its group NaN under each of the three; the codes of such a group
        are 0, or NaN where they are fp8.

        ``Convention.VLLM``, tokens, float8_e4m3fn: ``s = fl(min(M, scale_ub) / 448)``, without
        ``scale_ub`` ``fl(M / 448)``; ``scale = max(s, fl(1 / (448 * 512)))``, also where ``M = 0``;
        ``q = rne(clamp(fl(x / scale), -448, 448))``.

        The scale is rounded to ``scale_dtype`` and kept in its normal range before it is used. fp8
        codes round to nearest even with saturation and keep subnormals and the sign of zero.
        docs/numerics/affine.md holds the whole contract.

    Dtypes:
        input float16, bfloat16, float32, float64; output int8, uint8, int4, uint4 (two codes a byte
        along the last axis), float8_e4m3fn, float8_e5m2; scale float16, bfloat16, float32, float64;
        zero_point int32. Under MX and NVFP4 input float16, bfloat16, float32; output float4_e2m1fn
        (two codes a byte), and with MX float8_e4m3fn, float8_e5m2; scale float8_e8m0fnu with MX,
        float8_e4m3fn with NVFP4; inverse_tensor_scale float32.

    Shapes:
        Rank 1 to 8, any extents, 0 included. ``output`` has the input's shape (4-bit: the last axis
        halved, rounded up); ``scale`` and ``zero_point`` have the scope's parameter shape (see
        :class:`planq.Scope`); ``inverse_tensor_scale`` is ``(1,)``. Under MX and NVFP4 the last
        group of a row may be shorter.

    Workspace:
        None for most kernels; ``plan.workspace_size()`` says, where a segment spans several blocks.

    Guarantee:
        Every kernel is BIT_EXACT, and batch-invariant where no two rows share a segment of
        ``scope``.

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
        convention: Which library's formulas make scales and codes. COMPRESSED_TENSORS has other
            defaults: ``q_min`` is the dtype's lowest, ``scale_dtype`` the input's. GGML, MX,
            MX_ROUND_UP and NVFP4 leave only shape, types and nibble order to choose; VLLM leaves
            ``nonfinite`` and ``scale_ub``, too.
        scale_ub: VLLM only: the largest ``max|x|`` that makes a scale, in float32; larger elements
            saturate. None: there is no bound.

    Raises:
        DescriptorError: Symmetric into an unsigned dtype, asymmetric into fp8, RATIO without
            symmetry, bounds that are no codes of the dtype, ``q_max <= 0`` (symmetric),
            ``q_min >= q_max``, an axis outside of the shape, ``block()`` for a tensor of one axis,
            fields that the convention does not allow.

    Source:
        baracuda ``DynamicRangeQuantizePlan``; ONNX ``DynamicQuantizeLinear``; bitsandbytes
        ``int8_vectorwise_quant``; compressed-tensors ``calculate_qparams``; ggml
        ``quantize_row_q8_0_ref``, ``quantize_row_q4_0_ref``; OCP Microscaling Formats (MX) v1.0,
        section 6.3; vLLM ``dynamic_per_token_scaled_fp8_quant``.
    """

    operator: ClassVar[str] = "dynamic_range_quantize"

    shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField
    scope: Scope = Scope.token()
    mode: Mode = Mode.SYMMETRIC
    q_min: float | None = None
    q_max: float | None = None
    scale_dtype: DTypeField = None
    quotient: Quotient = Quotient.DIVIDE
    nonfinite: NonFinite = NonFinite.PROPAGATE
    include_zero: bool = True
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    convention: Convention = Convention.PLANQ
    scale_ub: float | None = None


@args_class
class DynamicRangeQuantizeArgs:
    """Operands of :class:`DynamicRangeQuantizeDescriptor`.

    Attributes:
        input: What to quantize; any outer strides, innermost stride 1.
        output: Where the codes go; likewise.
        scale: Where the scales go, one per segment.
        zero_point: Where the zero points go (int32), one per segment; None when symmetric.
        inverse_tensor_scale: NVFP4: the reciprocal of the tensor's scale, as a rule
            ``448 * 6 / max|x|`` over the tensor; else None.
    """

    input: Tensor
    output: Tensor
    scale: Tensor
    zero_point: Tensor | None = None
    inverse_tensor_scale: Tensor | None = None


class DynamicRangeQuantizePlan(Plan):
    """A plan for :class:`DynamicRangeQuantizeDescriptor`."""

    __slots__ = ()


register(DynamicRangeQuantizeDescriptor, DynamicRangeQuantizeArgs, DynamicRangeQuantizePlan)
