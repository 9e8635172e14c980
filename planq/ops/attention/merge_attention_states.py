"""The classes of `merge_attention_states`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class MergeAttentionStatesDescriptor(Descriptor):
    """Merge what two sets of keys make of the same queries.

    When to use:
        After two plans of :class:`AttentionDescriptor` with ``with_lse``, over a prefix that
        sequences share and over the keys of their own, or over parts that lie on several devices.

    Formula:
        ``m = max(lse_a, lse_b)``, ``a = exp(lse_a - m)``, ``b = exp(lse_b - m)``; ``output =
        (a * output_a + b * output_b) / (a + b)``, ``lse = m + log(a + b)``.
        ``docs/numerics/attention.md`` has every operation.

        A side whose ``lse`` is ``-inf`` takes no part, whatever its outputs are. If both are, the
        output is ``+0``. A row is NaN if an ``lse`` of its is NaN or ``+inf``.

    Dtypes:
        the outputs float16, bfloat16 or float32, of one type; the logarithms float32.

    Shapes:
        Outputs are ``(tokens, heads, columns)``, logarithms ``(tokens, heads)``. Extents may be 0.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant.

    Attributes:
        shape: Shape of the outputs. Tokens and heads may be a ``Dim``.
        dtype: Element type of the outputs.

    Raises:
        DescriptorError: A type that is not listed, or a shape without three axes.

    Source:
        FlashInfer ``merge_state``; vLLM ``merge_attn_states``.
    """

    operator: ClassVar[str] = "merge_attention_states"

    shape: Shape
    dtype: DTypeField


@args_class
class MergeAttentionStatesArgs:
    """Operands of :class:`MergeAttentionStatesDescriptor`.

    Attributes:
        output_a: Outputs of the first set of keys; any outer strides, innermost stride 1.
        lse_a: The logarithms of their sums, natural ones; likewise.
        output_b: Outputs of the second set, likewise.
        lse_b: Their logarithms, likewise.
        output: Where the merged outputs go, likewise.
        lse: Where their logarithms go, likewise.
    """

    output_a: Tensor
    lse_a: Tensor
    output_b: Tensor
    lse_b: Tensor
    output: Tensor
    lse: Tensor


class MergeAttentionStatesPlan(Plan):
    """A plan for :class:`MergeAttentionStatesDescriptor`."""

    __slots__ = ()


register(MergeAttentionStatesDescriptor, MergeAttentionStatesArgs, MergeAttentionStatesPlan)
