"""The classes of `rms_norm`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class RmsNormDescriptor(Descriptor):
    """Divide rows by the root of the mean of their squares, and weight their columns.

    When to use:
        The norms of most language models. With ``residual_dtype`` the addition before the norm is
        part of it, and its result is kept.

    Formula:
        ``x`` is ``input`` in float32. With a residual, ``x`` is ``input + residual``, rounded to
        float32 and then to the residual's type, and is stored in ``residual``. For each row of H
        elements, every operation rounded to float32::

            r = rsqrt(sum(x * x) / H + eps)
            y = (x * r) * (weight + weight_offset)

        ``rsqrt`` is correctly rounded. ``sum`` adds neighbours in pairs, then pairs of sums.
        ``eps`` is rounded to float32. With ``round_before_weight``, ``x * r`` is rounded to the
        input's type before it is weighted. ``output`` is ``y``, rounded once to its type; a NaN
        becomes the canonical one. docs/numerics/norm.md holds the contract.

    Dtypes:
        float16, bfloat16, float32, each tensor any of these.

    Shapes:
        Rank 1 to 8; the last axis has H elements, 1 to 65536; the others any extents, 0 included.
        ``weight`` is ``(H,)``, other tensors have the shape of the input.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant. A NaN makes its row NaN, and no other.

    Attributes:
        shape: Shape of ``input``.
        input_dtype: Element type of ``input``.
        weight_dtype: Element type of ``weight``.
        output_dtype: Element type of ``output``; None: the input's.
        residual_dtype: Element type of ``residual``; None: there is none.
        weight_offset: What is added to the weights, rounded to float32: 1 where a checkpoint stores
            weights less 1.
        round_before_weight: Whether results are rounded to the input's type before the weight.

    Raises:
        DescriptorError: Another dtype, a last axis of other lengths, or a ``weight_offset`` that
            float32 does not hold.

    Source:
        Zhang and Sennrich, Root Mean Square Layer Normalization; torch ``rms_norm``; with
        ``round_before_weight`` the ``LlamaRMSNorm`` of transformers.
    """

    operator: ClassVar[str] = "rms_norm"

    shape: Shape
    input_dtype: DTypeField
    weight_dtype: DTypeField
    output_dtype: DTypeField = None
    residual_dtype: DTypeField = None
    weight_offset: float = 0
    round_before_weight: bool = False


@args_class
class RmsNormArgs:
    """Operands of :class:`RmsNormDescriptor`.

    Attributes:
        input: The rows; any outer strides, innermost stride 1.
        weight: What columns are multiplied by.
        residual: What is added to the rows first, and then holds the sum; any outer strides,
            innermost stride 1; None without ``residual_dtype``.
        output: Where the results go; likewise; it may be ``input`` itself.
        eps: What is added to the mean of the squares.
    """

    input: Tensor
    weight: Tensor
    residual: Tensor | None = None
    output: Tensor
    eps: Scalar


class RmsNormPlan(Plan):
    """A plan for :class:`RmsNormDescriptor`."""

    __slots__ = ()


register(RmsNormDescriptor, RmsNormArgs, RmsNormPlan)
