"""The classes of `linear_mixed`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, NibbleOrder
from planq.ops.linear.vocabulary import WeightLayout
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LinearMixedDescriptor(Descriptor):
    """Compute a linear layer of floating activations and weights of 8 bits, or of int4.

    When to use:
        A layer whose weights alone are quantized, with a scale per channel or per group: integers,
        or floats of 8 bits (MXFP8, fp8 checkpoints). Weights of 4 bits by a codebook, unsigned, or
        floats: :class:`Linear4BitDescriptor`.

    Formula:
        GROUPS_SM90: ``v[n, k]`` is ``code - zero_point``, or a float's value, rounded to
        ``weight_dtype``. k is cut into eight spans of ``128 * ceil(k / 1024)`` terms, and each
        into runs of ``min(size, 128)`` terms that share a scale; a channel is one group of all
        terms. ``acc = fma(p, s, acc)`` for each run of a span, where s is its ``weight_scale`` and
        p the sum of ``input[m, k] * v[n, k]`` over the run as a tensor core of sm_90 adds it.
        ``t`` is the sum of the eight acc, in order. Zero points count as the nearest number
        from -128 to 255, of INT4 from -120 to 120.
        TENSOR_SM90 and LANES: ``t[m, n] = sum over k of input[m, k] * w[n, k]`` in float32, as in
        :class:`MatmulDescriptor`. ``channel(0)``: ``w`` is the code, which ``weight_dtype`` holds
        exactly, and ``t = fl(t * weight_scale[n])``. ``group(size)``: ``w`` is what
        :class:`DequantizeDescriptor` writes in ``weight_dtype``, one rounding of
        ``fl(scale * (code - zero_point))``.
        Then ``t = fl(t + bias[n])``, ``t = fl(t + residual[m, n])`` where there are such, and one
        rounding to ``output_dtype``. Scales are widened to float32 first; one of FLOAT8_E8M0FNU is
        ``2^(byte - 127)``, NaN for 255, one of FLOAT8_E4M3FN ``fl(scale * tensor_scale)``.

    Dtypes:
        input, ``weight_dtype`` and output float16, bfloat16, float32; codes int8, uint8, int4,
        float8_e4m3fn or float8_e5m2; scales float32, bfloat16 or float16, those of groups also
        float8_e8m0fnu or float8_e4m3fn; zero points of integers int32, int8 or uint8; bias and
        residual float16, bfloat16, float32, float64.
        GROUPS_SM90 and TENSOR_SM90 need one and the same 16-bit type as ``input_dtype`` and
        ``weight_dtype``.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``weight`` has ``(n, k)``, of int4 ``(n, ceil(k / 2))``; ``output`` and
        ``residual`` ``(..., m, n)``, ``bias`` ``(n,)``; ``weight_scale`` and ``weight_zero_point``
        ``(n,)``, of groups ``(n, ceil(k / size))``; ``tensor_scale`` ``(1,)``.
        ``weight`` in other layouts: uint8 as :class:`ReorderMixedDtypeWeightDescriptor` writes it,
        ``(k, n)``, of int4 ``(k, n / 2)``, n and k multiples of 64; as
        :class:`PackWeight4BitDescriptor` writes it.

    Workspace:
        None, but kernels on tensor cores need memory for some dequantized rows of the weight.

    Guarantee:
        Every kernel is batch-invariant, and BIT_EXACT but for ``linear_mixed/cuda/groups_mma`` and
        BIT_EXACT but for ``linear_mixed/cuda/mma``: the steps of GROUPS_SM90 and of TENSOR_SM90 on
        the tensor cores of any GPU, whose own sums are RUN_TO_RUN within an ``error_bound``. Ask
        for BIT_EXACT to have the same bits on every GPU.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        code_dtype: Type of the codes: INT8, UINT8, INT4, FLOAT8_E4M3FN or FLOAT8_E5M2.
        weight_dtype: Element type of the dequantized weight. Default: that of ``input``.
        output_dtype: Element type of ``output``. Default: that of ``input``.
        weight_scope: ``channel(0)``, or ``group(size)`` along k, of which the last may be shorter.
        weight_mode: ASYMMETRIC: there is a ``weight_zero_point`` for each group.
        scale_dtype: Element type of ``weight_scale``; with FLOAT8_E4M3FN there is a
            ``tensor_scale``.
        zero_point_dtype: Element type of ``weight_zero_point``.
        nibble_order: INT4 only: which nibble has the first of two codes; for ROW_MAJOR alone.
        weight_layout: How the codes lie: ROW_MAJOR, REORDERED or PACKED.
        accumulation: The order of sums: GROUPS_SM90, TENSOR_SM90 or LANES. Default: LANES unless
            ``input_dtype`` and ``weight_dtype`` are one 16-bit type. Of such a type GROUPS_SM90
            for channels, and for groups of 16, 32, 64 or a multiple of 128 terms, else
            TENSOR_SM90.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype or scope, zero points of
            channels or of floats, an accumulation that the types or groups do not have.

    Source:
        CUTLASS's mixed-dtype GEMMs; torch ``_weight_int8pack_mm`` and torchao's weight-only int8;
        OCP Microscaling Formats v1.0 (MXFP8).
    """

    operator: ClassVar[str] = "linear_mixed"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField
    code_dtype: DTypeField = "int8"
    weight_dtype: DTypeField = None
    output_dtype: DTypeField = None
    weight_scope: Scope = Scope.channel(0)
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = "float32"
    zero_point_dtype: DTypeField = "int32"
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    weight_layout: WeightLayout = WeightLayout.ROW_MAJOR
    accumulation: EnumerationField = None
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class LinearMixedArgs:
    """Operands of :class:`LinearMixedDescriptor`.

    Attributes:
        input: The activations; any outer strides, innermost stride 1.
        weight: The codes of the weights; likewise.
        output: Where the results go; likewise.
        weight_scale: The scales of the channels, or of their groups.
        weight_zero_point: The zero points of the groups; None unless ``weight_mode`` is asymmetric.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
        tensor_scale: What scales are multiplied by; None unless they are float8_e4m3fn.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    weight_scale: Tensor
    weight_zero_point: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    tensor_scale: Tensor | None = None


class LinearMixedPlan(Plan):
    """A plan for :class:`LinearMixedDescriptor`."""

    __slots__ = ()


register(LinearMixedDescriptor, LinearMixedArgs, LinearMixedPlan)
