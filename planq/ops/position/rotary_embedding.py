"""The classes of `rotary_embedding`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import DType
from planq.ops.position.vocabulary import RotaryPairs
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class RotaryEmbeddingDescriptor(Descriptor):
    """Turn pairs of elements of queries and keys by the positions of their tokens, in place.

    When to use:
        Before attention, in networks with rotary positions: Llama, Qwen, Gemma, GPT-NeoX, GPT-J,
        and the rotary part of DeepSeek's heads. With weights of a norm, each head is normalised
        first, as in Qwen3 and Gemma3.

    Formula:
        ``fl`` is one IEEE operation in float32, ``fma`` a fused one. ``c = cos_sin[p, i]`` and
        ``s = cos_sin[p, rotary_dim / 2 + i]`` for the position ``p`` of the token and pair ``i`` of
        the head: ``(a, b) -> (round(fma(a, c, -fl(b * s))), round(fma(b, c, fl(a * s))))``. Pair
        ``i`` is columns ``i`` and ``i + rotary_dim / 2`` (NEOX) or ``2 i`` and ``2 i + 1``
        (INTERLEAVED). Columns from ``rotary_dim`` on stay.

        With ``norm_weight_dtype``, a head is first ``rms_norm`` of itself over its columns, by
        :class:`RmsNormDescriptor` with the weight of queries or of keys, rounded to ``dtype``.

        A position outside of the table makes all columns of the token's heads NaN. ``invalid`` is
        how many such positions there are. A NaN that is computed becomes the canonical one.

    Dtypes:
        query and key float16, bfloat16 or float32, of one type; cos_sin float32; position int32 or
        int64; the weights float16, bfloat16 or float32; eps float64; invalid int64.

    Shapes:
        ``query`` is ``(tokens, heads, columns)``; ``key`` is ``(tokens, key_heads, columns)``;
        ``cos_sin`` is ``(max_position, rotary_dim)``, with the cosines in the first half;
        ``position`` is ``(tokens,)``; the weights are ``(columns,)``; ``invalid`` is ``(1,)``.
        Heads have 2 to 1024 columns.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: a token's heads depend on themselves and on
        its position alone. ``invalid`` is of all tokens.

    Attributes:
        query_shape: Shape of ``query``. The number of tokens may be a ``Dim``.
        key_heads: How many heads ``key`` has. None: there is no key.
        rotary_dim: How many columns of a head are turned, an even number. Default: all.
        pairs: Which columns are a pair.
        dtype: Element type of ``query`` and ``key``.
        position_dtype: Element type of the positions.
        max_position: How many rows ``cos_sin`` has: positions are 0 to ``max_position - 1``.
        norm_weight_dtype: Element type of the weights of the norms. None: there is no norm.

    Raises:
        DescriptorError: A type that is not listed, a query without three axes, heads of other
            sizes, ``rotary_dim`` odd or beyond the head, or ``max_position`` below 0.

    Source:
        vLLM ``rotary_embedding``; transformers ``apply_rotary_pos_emb``, whose products are rounded
        one by one. :func:`planq.positions.cos_sin` makes the table.
    """

    operator: ClassVar[str] = "rotary_embedding"

    query_shape: Shape
    key_heads: int | None = None
    rotary_dim: int | None = None
    pairs: EnumerationField = RotaryPairs.NEOX
    dtype: DTypeField
    position_dtype: DTypeField = DType.INT64
    max_position: int
    norm_weight_dtype: DTypeField = None


@args_class
class RotaryEmbeddingArgs:
    """Operands of :class:`RotaryEmbeddingDescriptor`.

    Attributes:
        query: The queries, which are overwritten; any outer strides, innermost stride 1.
        key: The keys, likewise; only with ``key_heads``.
        cos_sin: Cosines and sines of every position; likewise.
        position: The positions, of any value.
        query_weight: The weight of the queries' norm; only with ``norm_weight_dtype``.
        key_weight: That of the keys' norm; only with ``norm_weight_dtype`` and ``key_heads``.
        eps: What is added to the mean square; only with ``norm_weight_dtype``. It is rounded to
            float32.
        invalid: Where the number of positions outside of the table goes.
    """

    query: Tensor
    key: Tensor | None = None
    cos_sin: Tensor
    position: Tensor
    query_weight: Tensor | None = None
    key_weight: Tensor | None = None
    eps: Scalar | None = None
    invalid: Tensor


class RotaryEmbeddingPlan(Plan):
    """A plan for :class:`RotaryEmbeddingDescriptor`."""

    __slots__ = ()


register(RotaryEmbeddingDescriptor, RotaryEmbeddingArgs, RotaryEmbeddingPlan)
