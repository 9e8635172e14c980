"""The classes of `rotary_kv_cache_append`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Scalar, Shape, Tensor
from planq.descriptor import Descriptor
from planq.dtypes import DType
from planq.ops.kv_cache.vocabulary import CacheLayout
from planq.ops.position.vocabulary import RotaryPairs
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class RotaryKvCacheAppendDescriptor(Descriptor):
    """Turn queries and keys by their positions, and write these keys and values into a cache.

    When to use:
        Before attention, in the place of :class:`RotaryEmbeddingDescriptor` and
        :class:`KvCacheAppendDescriptor`: one plan, which reads the keys once.

    Formula:
        That of :class:`RotaryEmbeddingDescriptor` for ``query`` and ``key``, with its norm of each
        head if wanted; then that of :class:`KvCacheAppendDescriptor` for the ``key`` that this
        leaves, rounded to ``dtype``, and for ``value``. So ``key`` holds the turned keys
        afterwards, those of tokens without a slot among them, and a key whose position the table
        lacks goes into the cache as NaN.

        With an ``output_dtype``, ``query`` and ``key`` are read alone. Turned queries, rounded to
        ``dtype``, go to ``query_output``, rounded once more if its type is another: to nearest
        even, with overflow to infinity and the canonical NaN. Turned keys go to the cache alone,
        with the same bits as otherwise.

        ``invalid[0]`` is how many positions the table lacks, and ``invalid[1]`` how many slots are
        beyond the cache.

    Dtypes:
        query, key and value float16, bfloat16 or float32, of one type; query_output that type, and
        float16 or bfloat16 if it is float32; the caches what query_output may be, int8,
        float8_e4m3fn or float8_e5m2; cos_sin and the scales float32; position int32 or int64; slot
        int64; the weights float16, bfloat16 or float32; eps float64; invalid int64.

    Shapes:
        ``query`` and ``query_output`` are ``(tokens, heads, columns)``, ``key`` ``(tokens,
        key_heads, columns)`` and ``value`` ``(tokens, key_heads, value_dim)``. A cache is ``(pages,
        page_size, key_heads, columns)`` (NHD) or ``(pages, key_heads, page_size, columns)`` (HND);
        ``cos_sin`` is ``(max_position, rotary_dim)``, with the cosines in the first half;
        ``position`` and ``slot`` are ``(tokens,)``; the weights are ``(columns,)``. A scale is
        ``(1,)``, ``(key_heads,)`` or, measured, a cache without columns; ``invalid`` is ``(2,)``.
        Heads have 2 to 1024 columns.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant, and has the bits of the two plans one after
        the other. ``invalid`` is of all tokens.

    Attributes:
        query_shape: Shape of ``query``. The number of tokens may be a ``Dim``.
        key_heads: How many heads ``key`` and ``value`` have.
        value_dim: How many columns a value's head has. None: there is no value.
        rotary_dim: How many columns of a head are turned, an even number. Default: all.
        pairs: Which columns are a pair.
        dtype: Element type of ``query``, ``key`` and ``value``.
        position_dtype: Element type of the positions.
        max_position: How many rows ``cos_sin`` has: positions are 0 to ``max_position - 1``.
        norm_weight_dtype: Element type of the weights of the norms. None: there is no norm.
        pages: How many pages the cache has.
        page_size: How many tokens a page holds.
        layout: The order of the axes of a page.
        cache_dtype: Element type of the caches; ``dtype`` by default.
        scale_scope: Caches of codes: which codes share a scale; TENSOR by default.
        output_dtype: Element type of ``query_output``. None: there is none, and queries and keys
            are turned in place.

    Raises:
        DescriptorError: What the two operators refuse; no key; an output of another type; or a
            number of heads that is a ``Dim``.

    Source:
        FlashInfer ``rope_quantize_fp8_append_paged_kv_cache``; vLLM's pass that fuses
        ``rotary_embedding`` and ``reshape_and_cache``.
    """

    operator: ClassVar[str] = "rotary_kv_cache_append"

    query_shape: Shape
    key_heads: int
    value_dim: int | None = None
    rotary_dim: int | None = None
    pairs: EnumerationField = RotaryPairs.NEOX
    dtype: DTypeField
    position_dtype: DTypeField = DType.INT64
    max_position: int
    norm_weight_dtype: DTypeField = None
    pages: int
    page_size: int
    layout: EnumerationField = CacheLayout.NHD
    cache_dtype: DTypeField = None
    scale_scope: EnumerationField = None
    output_dtype: DTypeField = None


@args_class
class RotaryKvCacheAppendArgs:
    """Operands of :class:`RotaryKvCacheAppendDescriptor`.

    Attributes:
        query: The queries, which are overwritten unless there is an output for them; any outer
            strides, innermost stride 1.
        key: The keys, likewise.
        value: The values, which stay; likewise. Only with ``value_dim``.
        key_cache: The pages of keys, which are updated; likewise.
        value_cache: The pages of values, likewise; only with ``value_dim``.
        cos_sin: Cosines and sines of every position; likewise.
        position: The positions, of any value.
        slot: Where each token goes in the cache, of any value.
        query_weight: The weight of the queries' norm; only with ``norm_weight_dtype``.
        key_weight: That of the keys' norm; only with ``norm_weight_dtype``.
        eps: What is added to the mean square; only with ``norm_weight_dtype``. It is rounded to
            float32.
        key_scale: Scales of the keys; only with a cache of codes. They are updated if they are
            measured.
        value_scale: Those of the values; only with a cache of codes and ``value_dim``.
        query_output: Where the turned queries go; likewise. Only with ``output_dtype``.
        invalid: Where the numbers of positions outside of the table and of slots beyond the cache
            go.
    """

    query: Tensor
    key: Tensor
    value: Tensor | None = None
    key_cache: Tensor
    value_cache: Tensor | None = None
    cos_sin: Tensor
    position: Tensor
    slot: Tensor
    query_weight: Tensor | None = None
    key_weight: Tensor | None = None
    eps: Scalar | None = None
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None
    query_output: Tensor | None = None
    invalid: Tensor


class RotaryKvCacheAppendPlan(Plan):
    """A plan for :class:`RotaryKvCacheAppendDescriptor`."""

    __slots__ = ()


register(RotaryKvCacheAppendDescriptor, RotaryKvCacheAppendArgs, RotaryKvCacheAppendPlan)
