"""The classes of `grouped_linear`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Mode, NibbleOrder
from planq.ops.codebook.vocabulary import Codebook
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class GroupedLinearDescriptor(Descriptor):
    """Compute linear layers of several experts, whose weights are codes, in one plan.

    When to use:
        A mixture of experts (MoE) whose weights are quantized, alone or with the activations. The
        rows of the input lie expert by expert.

    Formula:
        Row m belongs to expert e where ``expert_offset[e] <= m < expert_offset[e + 1]``. Its
        outputs are those of another operator, of the weight, scales and bias of that expert:
        An input of bfloat16 or float16: those of :class:`Linear4BitDescriptor` or
        :class:`LinearMixedDescriptor` in the order GROUPS_SM90: ``v`` is ``codebook[code]``,
        ``code - zero_point`` or a float's value, k is cut into eight spans of
        ``128 * ceil(k / 1024)`` terms and each into runs of ``min(size, 128)`` terms that share a
        scale, ``acc = fma(p, s, acc)`` for each run, ``t`` is the sum of the eight acc, then
        ``fl(t + bias[e, n])`` and one rounding.
        Of int8: those of :class:`LinearW8A8Descriptor`: ``acc`` is the sum of
        ``input[m, k] * weight[e, n, k]`` in int32, ``t = fl(fl(fl(acc) * input_scale[m]) *
        weight_scale[e, n])``, then bias and rounding.
        Of float8_e4m3fn or float8_e5m2: those of :class:`LinearFp8Descriptor`, of scales of rows
        or of blocks.
        Rows before the first offset, and from the last one on, belong to no expert: their outputs
        are 0. An offset that is less than one before it, or beyond m, takes no row from an earlier
        expert: rows of e end at the largest of the offsets up to ``e + 1``, and at m.

    Dtypes:
        input bfloat16, float16, int8, float8_e4m3fn or float8_e5m2; output float16, bfloat16 or
        float32; offsets int32; bias float16, bfloat16, float32, float64.
        Beside bfloat16 and float16: codes uint4, int4, float4_e2m1fn, int8, uint8, float8_e4m3fn
        or float8_e5m2, in blocks uint4; absmax and codebooks float32; codes of nested absmax uint8;
        scales float32, bfloat16 or float16, those of groups also float8_e8m0fnu, or float8_e4m3fn
        times a ``tensor_scale`` of the expert; zero points of integers int32, int8 or uint8.
        Beside int8: codes int8; beside float8_e4m3fn and float8_e5m2: codes of either. Scales
        float32.

    Shapes:
        ``input_shape`` is ``(m, k)``, ``weight_shape`` ``(experts, n, k)``, of 1 to 1024 experts;
        other extents may be 0. ``weight`` has ``(experts, n, k)``, of 4-bit codes
        ``(experts, n, ceil(k / 2))``; ``expert_offset`` ``(experts + 1,)``, ``output`` ``(m, n)``,
        ``bias`` ``(experts, n)``; ``weight_scale`` and ``weight_zero_point`` ``(experts, n)``, of
        groups ``(experts, n, ceil(k / size))``; ``tensor_scale`` ``(experts,)``.
        Blocks are those of one :class:`BlockwiseQuantizeDescriptor` of ``weight_shape``: ``weight``
        has ``(experts * n * k / 2,)``, ``absmax`` ``(experts * n * k / block_size,)``, ``codebook``
        ``(16,)``; with ``nested_block_size``, ``nested_absmax`` has one for each of its blocks,
        ``nested_offset`` ``(1,)``, ``nested_codebook`` ``(256,)``.
        Inputs of 8 bits: ``input_scale`` has ``(m,)``. Scales of blocks: ``input_scale`` has
        ``(m, ceil(k / 128))``, ``weight_scale`` ``(experts, ceil(n / 128), ceil(k / 128))``.

    Workspace:
        None, but on compute capability 9.0 the list of the experts' tiles: 12 bytes for each expert
        and for every 32 rows, of inputs of 8 bits 128 rows.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: a row's bits depend on its expert's weights,
        not on the rows beside it, nor on the offsets of other experts.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        code_dtype: Type of the codes. Inputs of 8 bits do not go with the default.
        output_dtype: Element type of ``output``. Default: that of ``input``; of 8 bits, none.
        codebook: What the codes of blocks stand for; GIVEN: the operand of this name.
        block_size: Elements of a flat block that share an absmax: 32, 64 or a multiple of 128 that
            divides k; None: there are no blocks.
        nested_block_size: Blocks whose absmax share one of their own; None: they are not nested.
        input_scope: Of inputs of 8 bits: ``token()``, a scale for each row, or of floats, beside
            ``block(128, 128)``, ``group(128)`` along k.
        weight_scope: ``token()``, a scale for each row of the weights, or ``group(size)`` along k,
            of 16, 32, 64 or a multiple of 128 terms, of which the last may be shorter. With
            ``block_size``, leave it out. Beside inputs of int8 ``token()``, of floats of 8 bits
            also ``block(128, 128)``.
        weight_mode: ASYMMETRIC: there is a ``weight_zero_point`` for each scale.
        scale_dtype: Element type of ``weight_scale``; with FLOAT8_E4M3FN there is a
            ``tensor_scale``.
        zero_point_dtype: Element type of ``weight_zero_point``.
        nibble_order: Which nibble has the first of two codes: HIGH_FIRST as in bitsandbytes.
        bias_dtype: Element type of ``bias``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype, scope or block, zero points
            of floats or of a codebook, blocks and groups at once, sums that may leave int32.

    Source:
        vLLM ``fused_moe`` of W4A16, W8A8 and fp8; torch ``_grouped_mm``; DeepGEMM's and MegaBlocks'
        grouped products.
    """

    operator: ClassVar[str] = "grouped_linear"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField
    code_dtype: DTypeField = "uint4"
    output_dtype: DTypeField = None
    codebook: Codebook = Codebook.NF4
    block_size: int | None = None
    nested_block_size: int | None = None
    input_scope: Scope = Scope.token()
    weight_scope: Scope = Scope.token()
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = "float32"
    zero_point_dtype: DTypeField = "int32"
    nibble_order: NibbleOrder = NibbleOrder.LOW_FIRST
    bias_dtype: DTypeField = None


@args_class
class GroupedLinearArgs:
    """Operands of :class:`GroupedLinearDescriptor`.

    Attributes:
        input: The activations, expert by expert; any outer stride, innermost stride 1.
        weight: The codes of all weights; likewise.
        expert_offset: The first row of each expert, and the end of the last one's.
        output: Where the results go; any outer stride, innermost stride 1.
        input_scale: The scales of the input's rows, or of their groups; None unless it has 8 bits.
        weight_scale: The scales of the weights' rows, of their groups, or of blocks; None with
            ``block_size``.
        weight_zero_point: Their zero points; None unless ``weight_mode`` is asymmetric.
        bias: What is added to the columns of each expert; None without ``bias_dtype``.
        tensor_scale: What an expert's scales are multiplied by; None unless they are float8_e4m3fn.
        absmax: The largest magnitude of each block, or its code; None without ``block_size``.
        codebook: The values of the codes; None unless ``codebook`` is GIVEN.
        nested_absmax: The largest magnitude of each block of absmax; None unless they are nested.
        nested_offset: What is added to every absmax; likewise.
        nested_codebook: The values of the codes of absmax; likewise.
    """

    input: Tensor
    weight: Tensor
    expert_offset: Tensor
    output: Tensor
    input_scale: Tensor | None = None
    weight_scale: Tensor | None = None
    weight_zero_point: Tensor | None = None
    bias: Tensor | None = None
    tensor_scale: Tensor | None = None
    absmax: Tensor | None = None
    codebook: Tensor | None = None
    nested_absmax: Tensor | None = None
    nested_offset: Tensor | None = None
    nested_codebook: Tensor | None = None


class GroupedLinearPlan(Plan):
    """A plan for :class:`GroupedLinearDescriptor`."""

    __slots__ = ()


register(GroupedLinearDescriptor, GroupedLinearArgs, GroupedLinearPlan)
