"""The classes of `linear_llm_int8`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import Convention, Mode
from planq.ops.linear.vocabulary import Accumulation
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LinearLlmInt8Descriptor(Descriptor):
    """Compute a linear layer of int8 codes beside a few columns of floating point values.

    When to use:
        After :class:`LlmInt8QuantizeDescriptor`, whose codes, scales, list and outliers it takes.
        Without outliers: :class:`LinearW8A8Descriptor`.

    Formula:
        ``acc[m, n] = sum over k of input[m, k] * weight[n, k]`` in int32; ``fl`` is one IEEE
        operation in C (float64 for float64 output, else float32).

        ``t = fl(fl(acc) * input_scale[m])``; then for each listed column ``j`` in order, by
        SEQUENTIAL ``t = fma(outlier[m, j], weight[n, index[j]], t)``, or by TENSOR_SM90 these
        products onto t as a tensor core of compute capability 9.0 adds them, 16 columns at once in
        one chain from t on; then ``t = fl(t * weight_scale[n])``; with a bias
        ``t = fl(t + bias[n])``; with a residual ``t = fl(t + residual[m, n])``;
        ``output = round(t)``.

        The first ``min(count, capacity)`` columns are listed, by what is in memory when the kernel
        runs. A column of the list that is none of the weight's has codes of 0. Without listed
        columns the bits are those of ``linear_w8a8``. A NaN result is the canonical NaN of the
        output's type.

    Dtypes:
        input and weight int8 or int4, one and the same or two (4-bit codes lie two a byte along the
        last axis, the first in the low nibble); output, scales, bias and residual float16,
        bfloat16, float32, float64; outlier float16, bfloat16, float32; index int32; count int64.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``output`` and ``residual`` have ``(..., m, n)``; ``input_scale``
        ``(..., m)``, or ``(1,)`` for ``tensor()``; ``weight_scale`` ``(n,)`` or ``(1,)``; ``bias``
        ``(n,)``; ``index`` ``(capacity,)``; ``count`` ``(1,)``; ``outlier`` ``(..., m, capacity)``.
        4-bit: the last axis as stored is halved, rounded up.

    Workspace:
        ``capacity`` bytes for each column of the output, and ``capacity`` values for each row; on
        the host also the sums of up to 256 rows. TENSOR_SM90: on the host ``capacity`` numbers of
        16 bits for each column, and the sums of up to 256 rows twice; on CUDA also all sums.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: integer sums do not depend on their order.
        The rest is a fixed sequence of IEEE operations, or of a tensor core's, which is reproduced
        exactly.

    Attributes:
        input_shape: Logical shape of ``input``.
        weight_shape: Logical shape of ``weight``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``.
        input_scope: ``token()`` or ``tensor()``: which codes of ``input`` share a scale.
        weight_scope: ``channel(0)`` or ``tensor()``: likewise of ``weight``.
        input_mode: SYMMETRIC.
        weight_mode: SYMMETRIC.
        scale_dtype: Element type of the scales. Default: float32, float64 for float64 output.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.
        convention: PLANQ.
        capacity: How many columns can be listed.
        outlier_dtype: Element type of ``outlier``.
        accumulation: The order of the listed columns: SEQUENTIAL, one after another; TENSOR_SM90,
            by groups, for outliers of 16 bits and outputs that are not float64.

    Raises:
        DescriptorError: What ``linear_w8a8`` refuses, zero points, another convention, a negative
            capacity, another accumulation.

    Source:
        bitsandbytes ``MatMul8bitLt``, which asks the device for the number of columns, and adds
        their product in the rounded output.
    """

    operator: ClassVar[str] = "linear_llm_int8"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField = "int8"
    weight_dtype: DTypeField = "int8"
    output_dtype: DTypeField
    input_scope: Scope = Scope.token()
    weight_scope: Scope = Scope.channel(0)
    input_mode: Mode = Mode.SYMMETRIC
    weight_mode: Mode = Mode.SYMMETRIC
    scale_dtype: DTypeField = None
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None
    convention: Convention = Convention.PLANQ
    capacity: int
    outlier_dtype: DTypeField
    accumulation: Accumulation = Accumulation.SEQUENTIAL


@args_class
class LinearLlmInt8Args:
    """Operands of :class:`LinearLlmInt8Descriptor`.

    Attributes:
        input: The codes of the activations; any outer strides, innermost stride 1.
        weight: The codes of the weights; likewise.
        output: Where the results go; likewise.
        input_scale: The scales of the rows, or of all of them.
        weight_scale: The scales of the columns, or of all of them.
        input_zero_point: None.
        weight_zero_point: None.
        input_sum: None.
        weight_sum: None.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
        index: The listed columns, ascending.
        count: How many columns were found; those beyond the capacity are not listed.
        outlier: The values of the listed columns.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    input_scale: Tensor
    weight_scale: Tensor
    input_zero_point: Tensor | None = None
    weight_zero_point: Tensor | None = None
    input_sum: Tensor | None = None
    weight_sum: Tensor | None = None
    bias: Tensor | None = None
    residual: Tensor | None = None
    index: Tensor
    count: Tensor
    outlier: Tensor


class LinearLlmInt8Plan(Plan):
    """A plan for :class:`LinearLlmInt8Descriptor`."""

    __slots__ = ()


register(LinearLlmInt8Descriptor, LinearLlmInt8Args, LinearLlmInt8Plan)
