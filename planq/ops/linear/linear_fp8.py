"""The classes of `linear_fp8`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.linear.vocabulary import Accumulation
from planq.plan import Plan
from planq.registry import register
from planq.scope import Scope


@descriptor_class
class LinearFp8Descriptor(Descriptor):
    """Compute a linear layer of 8-bit floating codes: product, scales, bias, residual.

    When to use:
        A layer whose activations and weights are both fp8, with a scale per row and column, per
        tensor, or per 128 terms as DeepSeek's checkpoints have them.

    Formula:
        ``t[m, n] = sum over k of input[m, k] * weight[n, k]`` in float32, in the order TENSOR_SM90
        of :class:`MatmulDescriptor`, with groups of 32 terms: slices of 128 terms, each a chain of
        what a tensor core of compute capability 9.0 does, added up one after another. Then
        ``t = fl(t * input_scale[m])`` and ``t = fl(t * weight_scale[n])``.

        ``group(128)`` with ``block(128, 128)``: slices join by their scales instead,
        ``t = fma(slice, fl(input_scale[m, s] * weight_scale[n // 128, s]), t)`` from +0.

        Then ``t = fl(t + bias[n])``, ``t = fl(t + residual[m, n])`` where there are such, and one
        rounding to ``output_dtype``.

    Dtypes:
        input and weight float8_e4m3fn or float8_e5m2, one and the same or two; scales float32;
        output float16, bfloat16, float32; bias and residual float16, bfloat16, float32, float64.

    Shapes:
        ``input_shape`` is ``(..., m, k)``, of rank 2 to 8, ``weight_shape`` ``(n, k)``; any
        extents, 0 included. ``output`` and ``residual`` have ``(..., m, n)``, ``bias`` ``(n,)``.
        ``input_scale``: ``(..., m)``, ``(1,)`` for ``tensor()``, ``(..., m, ceil(k / 128))`` for
        ``group(128)``; ``weight_scale``: ``(n,)``, ``(1,)``, ``(ceil(n / 128), ceil(k / 128))`` for
        ``block(128, 128)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is batch-invariant, and BIT_EXACT but for ``linear_fp8/cuda/mma``:
        TENSOR_SM90's steps on the tensor cores of any GPU, whose own sums are RUN_TO_RUN within an
        ``error_bound``. Ask for BIT_EXACT to have the same bits on every GPU. The codes
        become float16, which holds them exactly.

    Attributes:
        input_shape: Shape of ``input``.
        weight_shape: Shape of ``weight``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``.
        input_scope: ``token()``, ``tensor()`` or ``group(128)``: which codes share a scale.
        weight_scope: ``channel(0)``, ``tensor()``, or ``block(128, 128)`` beside ``group(128)``.
        accumulation: The order of sums: TENSOR_SM90.
        bias_dtype: Element type of ``bias``; None: there is none.
        residual_dtype: Element type of ``residual``; None: there is none.

    Raises:
        DescriptorError: Shapes or scopes that do not fit together, another dtype, another
            accumulation.

    Source:
        torch ``_scaled_mm``; DeepSeek-V3's blocks of 128 x 128.
    """

    operator: ClassVar[str] = "linear_fp8"

    input_shape: Shape
    weight_shape: Shape
    input_dtype: DTypeField = "float8_e4m3fn"
    weight_dtype: DTypeField = "float8_e4m3fn"
    output_dtype: DTypeField
    input_scope: Scope = Scope.token()
    weight_scope: Scope = Scope.channel(0)
    accumulation: Accumulation = Accumulation.TENSOR_SM90
    bias_dtype: DTypeField = None
    residual_dtype: DTypeField = None


@args_class
class LinearFp8Args:
    """Operands of :class:`LinearFp8Descriptor`.

    Attributes:
        input: The codes of the activations; any outer strides, innermost stride 1.
        weight: The codes of the weights; likewise.
        output: Where the results go; likewise.
        input_scale: The scales of the rows, of all of them, or of their groups.
        weight_scale: The scales of the columns, of all of them, or of their blocks.
        bias: What is added to each column; None without ``bias_dtype``.
        residual: What is added to each output; None without ``residual_dtype``.
    """

    input: Tensor
    weight: Tensor
    output: Tensor
    input_scale: Tensor
    weight_scale: Tensor
    bias: Tensor | None = None
    residual: Tensor | None = None


class LinearFp8Plan(Plan):
    """A plan for :class:`LinearFp8Descriptor`."""

    __slots__ = ()


register(LinearFp8Descriptor, LinearFp8Args, LinearFp8Plan)
