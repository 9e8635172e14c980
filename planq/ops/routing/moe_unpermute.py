"""The classes of `moe_unpermute`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MoeUnpermuteDescriptor(Descriptor):
    """Add up the rows that a token's experts made, each with its weight.

    When to use:
        Behind the layers of a mixture of experts, whose rows lie as
        :class:`planq.MoePermuteDescriptor` has put their inputs. ``destination`` is what that
        wrote, ``weight`` what the router gives to each expert of a token.

    Formula:
        ``s = +0``; then for each rank ``j``, ascending, ``s = fma(x, weight[t, j], s)`` in float32,
        where ``x`` is the element of row ``destination[t, j]`` of ``input``, widened to float32.
        ``output[t]`` is ``s``, rounded once to the output's type; a NaN becomes its canonical one.

        A destination below 0, or beyond the last row, takes no part, whatever its weight.

        Row ``r`` of ``input`` is ``input[r // top_k, r % top_k]``.

    Dtypes:
        input and output float16, bfloat16, float32, in any combination; weight float32;
        destination int32.

    Shapes:
        ``input_shape`` is ``(tokens, top_k, width)``, any extents, 0 included; tokens times
        ``top_k`` is at most 2^31 - 1. ``destination`` and ``weight`` are ``(tokens, top_k)``,
        ``output`` is ``(tokens, width)``.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: a token's sum is of the rows that its
        destinations name, in the order of its ranks, whatever other tokens there are and wherever
        the rows lie.

    Attributes:
        input_shape: Shape of the rows, ``(tokens, top_k, width)``.
        input_dtype: Their element type.
        output_dtype: Element type of ``output``.

    Raises:
        DescriptorError: Another dtype, a shape of other than three axes, or more pairs than int32
            numbers.

    Source:
        vLLM ``moe_unpermute``.
    """

    operator: ClassVar[str] = "moe_unpermute"

    input_shape: Shape
    input_dtype: DTypeField
    output_dtype: DTypeField


@args_class
class MoeUnpermuteArgs:
    """Operands of :class:`MoeUnpermuteDescriptor`.

    Attributes:
        input: The rows that the experts made; any outer strides, innermost stride 1.
        destination: The row of each pair, of any value; likewise.
        weight: The weight of each pair; likewise.
        output: Where the sums go; likewise.
    """

    input: Tensor
    destination: Tensor
    weight: Tensor
    output: Tensor


class MoeUnpermutePlan(Plan):
    """A plan for :class:`MoeUnpermuteDescriptor`."""

    __slots__ = ()


register(MoeUnpermuteDescriptor, MoeUnpermuteArgs, MoeUnpermutePlan)
