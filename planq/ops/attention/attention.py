"""The classes of `attention`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.kv_cache.vocabulary import CacheLayout
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class AttentionDescriptor(Descriptor):
    """Let queries of ragged sequences attend to the keys and values of a cache.

    When to use:
        In every layer of a transformer, after :class:`KvCacheAppendDescriptor`: prefill, chunked
        prefill and decode are one operator, and a token has the same bits in each of them.
        Starts, lengths and tables are data on the device, so a captured graph serves every step.

    Formula:
        Sequence ``b`` has the tokens ``query_start[b]`` to ``query_start[b + 1] - 1`` and
        ``key_length[b]`` keys. The position of its token ``t`` is ``p = key_length[b] -
        (query_start[b + 1] - t)``. The token sees the keys ``j < key_length[b]``, with ``causal``
        those with ``j <= p``, and with ``window`` those with ``j > p - window``. Query head ``h``
        has the key head ``h * key_heads // heads``.

        ``s[j] = sum(query * key[j])``, with ``soft_cap`` then ``s[j] = soft_cap * tanh(s[j] /
        soft_cap)``. The weights are the softmax of ``scale * s[j]`` over what the token sees, and
        ``output`` is the sum of the values, each times its weight. ``lse`` is the natural logarithm
        of the sum of ``exp(scale * s[j])``. A ``sink`` is one more score of each head, without a
        value, to which ``scale`` is not applied.

        Keys are taken in blocks of 128 and spans of 1024 by their positions in the sequence, and
        the products are those of the tensor cores of sm_90. ``docs/numerics/attention.md`` has
        every operation. So a token's bits depend on its own keys and values alone: not on other
        sequences, nor on pages, nor on how many tokens of a sequence are computed at a time.

        Codes are multiplied by their scales: of all, of a head, or of a head of a key.

        A token that sees no key has ``+0`` and, without a sink, the ``lse`` of ``-inf``. So has a
        token that no sequence has. A NaN or an infinity among the scores that a row sees makes the
        row NaN, and no other row. NaN also is each token of a sequence with more than
        ``max_query`` tokens, or with a length that is negative or larger than ``max_key``; each
        token that sees a key in a page which the cache lacks; and, if starts descend or leave the
        tokens, every token. ``invalid`` is how many such tokens there are.

    Dtypes:
        query float16 or bfloat16; the caches that type, int8, float8_e4m3fn or float8_e5m2; output
        float16, bfloat16 or float32; query_start, key_length and block_table int32; the scales of
        the caches, sink and lse float32; scale float64; invalid int64.

    Shapes:
        ``query`` is ``(tokens, heads, columns)`` and ``output`` ``(tokens, heads, value_dim)``.
        A cache is ``(pages, page_size, key_heads, columns)`` (NHD) or ``(pages, key_heads,
        page_size, columns)`` (HND); without pages ``(batch, max_key, key_heads, columns)`` or
        ``(batch, key_heads, max_key, columns)``; values have ``value_dim`` columns. The values may
        be a part of the keys, as in DeepSeek's MLA. ``query_start`` is ``(batch + 1,)``,
        ``key_length`` ``(batch,)`` and ``block_table`` ``(batch, max_key / page_size)``, rounded
        up. A scale of a cache is ``(1,)``, ``(key_heads,)`` or a cache without columns. ``sink`` is
        ``(heads,)``, ``lse`` ``(tokens, heads)`` and ``invalid`` ``(1,)``. Columns are multiples
        of 16: up to 576 of keys, up to 512 of values.

    Workspace:
        None on the host. On CUDA a few bytes; with more than 1024 keys and up to 4096 rows, also
        what each span of 1024 keys makes of each row: ``value_dim + 2`` numbers of float32.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant. ``invalid`` is of all tokens. On GPUs other
        than those of compute capability 9.0, each step of a tensor core is computed, which is slow.

    Attributes:
        query_shape: Shape of ``query``. The number of tokens may be a ``Dim``.
        key_heads: How many heads keys and values have, of which that of queries is a multiple.
        value_dim: How many columns a value's head has. Default: as many as a query's.
        batch: How many sequences there are.
        max_query: The most tokens of a sequence.
        max_key: The most keys of a sequence.
        pages: How many pages the cache has; with ``page_size`` by default as many as all
            sequences may have together. None: there are no pages.
        page_size: How many keys a page holds. None: there are no pages.
        layout: The order of the axes of a page.
        input_dtype: Element type of ``query``.
        cache_dtype: Element type of the caches; ``input_dtype`` by default.
        output_dtype: Element type of ``output``; ``input_dtype`` by default.
        causal: Tokens see no keys behind their own position.
        window: How many keys up to its position a token sees. None: all.
        soft_cap: What scores are bounded by, before ``scale``: a model that bounds scaled scores by
            ``c`` has ``c / scale``. None: nothing.
        scale_scope: Caches of codes: which codes share a scale; TENSOR by default.
        with_lse: ``lse`` is an output.
        with_sink: There are sinks.

    Raises:
        DescriptorError: A type that is not listed, a query without three axes, heads that are no
            multiple of ``key_heads``, columns that tensor cores do not take, a number that is not
            positive, pages without a size, or scales for a cache of floats.

    Source:
        FlashAttention ``flash_attn_varlen_func`` and ``flash_attn_with_kvcache``; FlashInfer
        ``BatchPrefillWithPagedKVCache`` and ``BatchDecodeWithPagedKVCache``; vLLM's attention
        backends.
    """

    operator: ClassVar[str] = "attention"

    query_shape: Shape
    key_heads: int
    value_dim: int | None = None
    batch: int
    max_query: int
    max_key: int
    pages: int | None = None
    page_size: int | None = None
    layout: EnumerationField = CacheLayout.NHD
    input_dtype: DTypeField
    cache_dtype: DTypeField = None
    output_dtype: DTypeField = None
    causal: bool = False
    window: int | None = None
    soft_cap: float | None = None
    scale_scope: EnumerationField = None
    with_lse: bool = False
    with_sink: bool = False


@args_class
class AttentionArgs:
    """Operands of :class:`AttentionDescriptor`.

    Attributes:
        query: The queries; any outer strides, innermost stride 1.
        key_cache: The keys, likewise. What no token sees is not read.
        value_cache: The values, likewise; they may be the memory of the keys.
        output: Where results go, likewise.
        query_start: Where the tokens of each sequence begin, and the end; ascending.
        key_length: How many keys each sequence has.
        block_table: The pages of each sequence, in order; only with pages. What no token sees may
            have any value.
        key_scale: Scales of the keys; only with a cache of codes.
        value_scale: Those of the values, likewise.
        sink: A score of each head; only with ``with_sink``.
        lse: Where logarithms go; only with ``with_lse``.
        scale: What scores are multiplied by, a positive number; it is rounded to float32.
        invalid: Where the number of tokens without an answer goes; it may be left out.
    """

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    output: Tensor
    query_start: Tensor
    key_length: Tensor
    block_table: Tensor | None = None
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None
    sink: Tensor | None = None
    lse: Tensor | None = None
    scale: Scalar
    invalid: Tensor | None = None


class AttentionPlan(Plan):
    """A plan for :class:`AttentionDescriptor`."""

    __slots__ = ()


register(AttentionDescriptor, AttentionArgs, AttentionPlan)
