"""The classes of `matmul`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.linear.vocabulary import Accumulation
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MatmulDescriptor(Descriptor):
    """Multiply matrices of floating numbers, with sums in an order that has a name.

    When to use:
        For layers that are not quantized, beside those that are, where their bits have to be the
        same on every machine and in every batch.

    Formula:
        ``t[m, n] = sum over k of input[m, k] * weight[n, k]`` in float32, by ``accumulation``:

        TENSOR_SM90: slices of 128 terms, each a chain of what a tensor core of compute capability
        9.0 does to 16 terms at once, added up one after another: ``t = fl(t + slice)``.
        LANES: 32 sums by ``fma``, of which sum ``l`` has the terms with ``k // 32 % 32 = l``, then
        ``sum[l] = fl(sum[l] + sum[l + d])`` for ``l < d``, d = 16, 8, 4, 2, 1.

        Then ``t = fl(t + bias[n])``, ``t = fl(t + residual[m, n])`` where there are such, and one
        rounding to ``output_dtype``. docs/numerics/linear.md has all of it to the bit.

    Dtypes:
        input and weight float16 or bfloat16, both the same; output float16, bfloat16, float32; bias
        and residual float16, bfloat16, float32, float64.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, ``weight_shape`` ``(..., n, k)``, and ``output`` and
        ``residual`` have ``(..., m, n)``; rank 2 to 8, any extents, 0 included. A leading axis that
        is 1 or missing on one side is repeated. ``bias`` has ``(n,)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is batch-invariant, and BIT_EXACT but for ``matmul/cuda/mma``:
        TENSOR_SM90's steps on the tensor cores of any GPU, whose own sums are RUN_TO_RUN within an
        ``error_bound``. Ask for BIT_EXACT to have the same bits on every GPU.

    Attributes:
        input_shape: Shape of ``input`` as it is stored.
        weight_shape: Shape of ``weight`` as it is stored.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``. Default: that of ``input``.
        output_dtype: Element type of ``output``. Default: that of ``input``.
        transpose_input: ``input_shape`` is ``(..., k, m)``.
        transpose_weight: ``weight_shape`` is ``(..., k, n)``.
        accumulation: The order of sums: TENSOR_SM90 or LANES.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes that do not fit together, another dtype, ``input`` and ``weight`` of
            different dtypes, another accumulation.

    Source:
        torch ``matmul``, ``bmm`` and ``linear``.
    """

    operator: ClassVar[str] = "matmul"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField
    weight_dtype: DTypeField = None
    output_dtype: DTypeField = None
    transpose_input: bool = False
    transpose_weight: bool = False
    accumulation: Accumulation = Accumulation.TENSOR_SM90
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class MatmulArgs:
    """Operands of :class:`MatmulDescriptor`.

    Attributes:
        input: The first factor; any outer strides, innermost stride 1.
        weight: The second factor; likewise.
        output: Where the results go; likewise.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    bias: Tensor | None = None
    residual: Tensor | None = None


class MatmulPlan(Plan):
    """A plan for :class:`MatmulDescriptor`."""

    __slots__ = ()


register(MatmulDescriptor, MatmulArgs, MatmulPlan)
