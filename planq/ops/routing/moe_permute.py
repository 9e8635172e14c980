"""The classes of `moe_permute`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MoePermuteDescriptor(Descriptor):
    """Copy rows of tokens to the experts chosen for them, the rows of an expert side by side.

    When to use:
        Before the layers of a mixture of experts: each expert's product then reads rows that follow
        one another, from ``expert_offset[e]`` on. :class:`planq.MoeUnpermuteDescriptor` brings the
        results back.

    Formula:
        A pair ``(t, j)`` is rank ``j`` of token ``t``. Pairs whose ``expert_index`` is 0 to
        ``experts - 1`` are sorted by it, stably: those of an expert stay in the order of their
        tokens, and of a token in that of its ranks. ``destination[t, j]`` is a pair's place in that
        order, and row ``destination[t, j]`` of ``output`` is row ``t`` of ``input``, byte by byte.
        ``expert_offset[e]`` is the number of pairs with an expert below ``e``, for ``e`` from 0 to
        ``experts``.

        Another index, such as -1 for an expert on another GPU, puts its pair nowhere: its
        destination is -1. The rows from ``expert_offset[experts]`` on are 0.

        Row ``r`` of ``output`` is ``output[r // top_k, r % top_k]``; where the output is
        contiguous, ``output.view(-1, width)`` has the rows one after another. A scale travels with
        its row: ``permuted_scale`` has it at the same place.

    Dtypes:
        input float16, bfloat16, float32, int8, float8_e4m3fn; the output has the same. Scales
        float32; indices, offsets and destinations int32.

    Shapes:
        ``input_shape`` is ``(tokens, width)``, any extents, 0 included; tokens times ``top_k`` is
        at most 2^31 - 1. ``output`` is ``(tokens, top_k, width)``; ``expert_index``,
        ``destination`` and ``permuted_scale`` are ``(tokens, top_k)``, ``scale`` is ``(tokens,)``,
        ``expert_offset`` is ``(experts + 1,)``.

    Workspace:
        On CUDA none up to 2048 pairs; of more, counts of each expert in chunks of 256 pairs, and a
        number for each pair. ``plan.workspace_size()`` says how much.

    Guarantee:
        Every kernel is BIT_EXACT; no arithmetic is done. None is batch-invariant: the experts of
        all tokens decide where a row goes. No other token decides which bits it has.

    Attributes:
        input_shape: Shape of the rows, ``(tokens, width)``.
        input_dtype: Their element type.
        top_k: How many experts are chosen for each token, 1 or more.
        experts: How many experts there are, 1 to 65536.
        scale_dtype: Element type of scales that travel with the rows. Default: there are none.

    Raises:
        DescriptorError: Another dtype, a shape of other than two axes, a count out of its range, or
            more pairs than int32 numbers.

    Source:
        vLLM ``moe_permute``, whose order of the rows of an expert is that of its sort.
    """

    operator: ClassVar[str] = "moe_permute"

    input_shape: Shape
    input_dtype: DTypeField
    top_k: int
    experts: int
    scale_dtype: DTypeField = None


@args_class
class MoePermuteArgs:
    """Operands of :class:`MoePermuteDescriptor`.

    Attributes:
        input: The rows of the tokens; any outer strides, innermost stride 1.
        expert_index: The experts of each token, of any value; likewise.
        scale: A scale of each row; only with ``scale_dtype``.
        output: Where the rows go; any outer strides, innermost stride 1.
        expert_offset: Where the first row of each expert goes, and behind them the end of the last.
        destination: Where the number of each pair's row goes; any outer strides, innermost
            stride 1.
        permuted_scale: Where the scales go; likewise; only with ``scale_dtype``.
    """

    input: Tensor
    expert_index: Tensor
    scale: Tensor | None = None
    output: Tensor
    expert_offset: Tensor
    destination: Tensor
    permuted_scale: Tensor | None = None


class MoePermutePlan(Plan):
    """A plan for :class:`MoePermuteDescriptor`."""

    __slots__ = ()


register(MoePermuteDescriptor, MoePermuteArgs, MoePermutePlan)
