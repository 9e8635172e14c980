"""The classes of `linear_4bit`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, NibbleOrder
from planq.ops.codebook.vocabulary import Codebook
from planq.ops.linear.vocabulary import WeightLayout
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class Linear4BitDescriptor(Descriptor):
    """Compute a linear layer of floating activations and 4-bit weights.

    When to use:
        A layer whose weights are bitsandbytes' NF4 or FP4, integers in groups (GPTQ, AWQ), MXFP4
        or NVFP4, and whose activations are not quantized.

    Formula:
        GROUPS_SM90: ``v[n, k]`` is ``codebook[code]``, ``code - zero_point`` or a float's value,
        rounded to ``weight_dtype``, and ``s`` the absmax or the scale of its block or group. k is
        cut into eight spans of ``128 * ceil(k / 1024)`` terms, and each into runs of
        ``min(size, 128)`` terms that share a scale. ``acc = fma(p, s, acc)`` for each run of a
        span, where p is the sum of ``input[m, k] * v[n, k]`` over the run as a tensor core of
        sm_90 adds it. ``t`` is the sum of the eight acc, in order. Zero points count as the
        nearest number from -120 to 120.
        TENSOR_SM90 and LANES: ``w[n, k]`` are the numbers that
        :class:`BlockwiseDequantizeDescriptor` (blocks) or :class:`DequantizeDescriptor` (groups)
        writes in ``weight_dtype``: one rounding of ``fl(codebook[code] * absmax)`` or
        ``fl(scale * (code - zero_point))``. ``t[m, n] = sum over k of input[m, k] * w[n, k]`` in
        float32, as in :class:`MatmulDescriptor`: the bits of two plans, one after the other.
        Then ``t = fl(t + bias[n])``, ``t = fl(t + residual[m, n])`` where there are such, and one
        rounding to ``output_dtype``. Scales are widened to float32 first; one of FLOAT8_E8M0FNU is
        ``2^(byte - 127)``, NaN for 255, one of FLOAT8_E4M3FN ``fl(scale * tensor_scale)``.

    Dtypes:
        input, ``weight_dtype`` and output float16, bfloat16, float32; codes uint4, of groups
        int4 and float4_e2m1fn as well; absmax and codebooks float32; scales float32, bfloat16,
        float16, float8_e8m0fnu or float8_e4m3fn; codes of nested absmax uint8; zero points of
        integers int32, int8 or uint8; bias and residual float16, bfloat16, float32, float64.
        GROUPS_SM90 and TENSOR_SM90 need one and the same 16-bit type as ``input_dtype`` and
        ``weight_dtype``.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``output`` and ``residual`` have ``(..., m, n)``, ``bias`` ``(n,)``.
        Blocks: ``weight`` has ``(ceil(n * k / 2),)``, two codes a byte, ``absmax``
        ``(ceil(n * k / block_size),)``, ``codebook`` ``(16,)``; with ``nested_block_size``,
        ``nested_absmax`` has one for each of its blocks, ``nested_offset`` ``(1,)``,
        ``nested_codebook`` ``(256,)``. Groups: ``weight`` has ``(n, ceil(k / 2))``,
        ``weight_scale`` and ``weight_zero_point`` ``(n, ceil(k / size))``; ``tensor_scale``
        ``(1,)``.
        ``weight`` in other layouts: uint8 as :class:`ReorderMixedDtypeWeightDescriptor` writes it,
        ``(k, n)``, of int4 ``(k, n / 2)``, n and k multiples of 64; as
        :class:`PackWeight4BitDescriptor` writes it.

    Workspace:
        None, but kernels on tensor cores need memory for some dequantized rows of the weight.

    Guarantee:
        Every kernel is batch-invariant, and BIT_EXACT but for ``linear_4bit/cuda/groups_mma`` and
        BIT_EXACT but for ``linear_4bit/cuda/mma``: the steps of GROUPS_SM90 and of TENSOR_SM90 on
        the tensor cores of any GPU, whose own sums are RUN_TO_RUN within an ``error_bound``. Ask
        for BIT_EXACT to have the same bits on every GPU.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        code_dtype: Type of the codes: UINT4, or in groups INT4 or FLOAT4_E2M1FN.
        weight_dtype: Element type of the dequantized weight. Default: that of ``input``.
        output_dtype: Element type of ``output``. Default: that of ``input``.
        codebook: What the codes of blocks stand for; GIVEN: the operand of this name.
        block_size: Elements of a flat block that share an absmax; None: there are groups.
        nested_block_size: Blocks whose absmax share one of their own; None: they are not nested.
        weight_scope: ``group(size)`` along k if there are no blocks; the last may be shorter.
        weight_mode: ASYMMETRIC: there is a ``weight_zero_point`` for each group.
        scale_dtype: Element type of ``weight_scale``; with FLOAT8_E4M3FN there is a
            ``tensor_scale``.
        zero_point_dtype: Element type of ``weight_zero_point``.
        nibble_order: Which nibble has the first of two codes: HIGH_FIRST as in bitsandbytes; for
            ROW_MAJOR alone.
        weight_layout: How the codes lie: ROW_MAJOR, REORDERED or PACKED.
        accumulation: The order of sums: GROUPS_SM90, TENSOR_SM90 or LANES. Default: LANES unless
            ``input_dtype`` and ``weight_dtype`` are one 16-bit type. Of such a type GROUPS_SM90
            where groups have 16, 32, 64 or a multiple of 128 terms, or blocks have 32, 64 or a
            multiple of 128 codes and divide k, else TENSOR_SM90.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype, neither blocks nor groups
            or both, an accumulation that the types, groups or blocks do not have.

    Source:
        bitsandbytes ``gemv_4bit`` and ``matmul_4bit``; GPTQ's and AWQ's groups; OCP Microscaling
        Formats v1.0 (MXFP4); NVIDIA's NVFP4.
    """

    operator: ClassVar[str] = "linear_4bit"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField
    code_dtype: DTypeField = "uint4"
    weight_dtype: DTypeField = None
    output_dtype: DTypeField = None
    codebook: Codebook = Codebook.NF4
    block_size: int | None = None
    nested_block_size: int | None = None
    weight_scope: Scope = Scope.tensor()
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = "float32"
    zero_point_dtype: DTypeField = "int32"
    nibble_order: NibbleOrder = NibbleOrder.HIGH_FIRST
    weight_layout: WeightLayout = WeightLayout.ROW_MAJOR
    accumulation: EnumerationField = None
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class Linear4BitArgs:
    """Operands of :class:`Linear4BitDescriptor`.

    Attributes:
        input: The activations; any outer strides, innermost stride 1.
        weight: The codes of the weights, two a byte.
        output: Where the results go; any outer strides, innermost stride 1.
        absmax: The largest magnitude of each block, or its code; None without ``block_size``.
        codebook: The values of the codes; None unless ``codebook`` is GIVEN.
        nested_absmax: The largest magnitude of each block of absmax; None unless they are nested.
        nested_offset: What is added to every absmax; likewise.
        nested_codebook: The values of the codes of absmax; likewise.
        weight_scale: The scales of the groups; None with ``block_size``.
        weight_zero_point: Their zero points; None unless ``weight_mode`` is asymmetric.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
        tensor_scale: What scales are multiplied by; None unless they are float8_e4m3fn.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    absmax: Tensor | None = None
    codebook: Tensor | None = None
    nested_absmax: Tensor | None = None
    nested_offset: Tensor | None = None
    nested_codebook: Tensor | None = None
    weight_scale: Tensor | None = None
    weight_zero_point: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    tensor_scale: Tensor | None = None


class Linear4BitPlan(Plan):
    """A plan for :class:`Linear4BitDescriptor`."""

    __slots__ = ()


register(Linear4BitDescriptor, Linear4BitArgs, Linear4BitPlan)
