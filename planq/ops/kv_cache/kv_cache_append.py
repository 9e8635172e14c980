"""The classes of `kv_cache_append`."""

from __future__ import annotations

from typing import ClassVar

from planq._constructors import args_class, descriptor_class
from planq.arguments import DTypeField, EnumerationField, Shape, Tensor
from planq.descriptor import Descriptor
from planq.ops.kv_cache.vocabulary import CacheLayout
from planq.plan import Plan
from planq.registry import register


@descriptor_class
class KvCacheAppendDescriptor(Descriptor):
    """Write keys and values of tokens into the pages of a cache, as they are or quantized.

    When to use:
        Before attention, in an engine whose sequences have pages of one cache. Slots are data on
        the device, so a captured graph serves every step.

    Formula:
        ``slot[t] = page * page_size + place``. For each head ``h`` of a token ``t``:
        ``key_cache[page, place, h] = code(key[t, h])`` with NHD, and ``key_cache[page, h, place]``
        with HND; values likewise. A cache of the inputs' type takes copies, whose bits stay. One
        of float16 or bfloat16 takes float32 rounded to nearest even, with overflow to infinity and
        the canonical NaN. Codes are those of :class:`QuantizeDescriptor`, symmetric, with its
        defaults: ``clamp(round(fl(x / scale)))``.

        With ``scale_scope`` TOKEN, scales are measured: ``scale`` is that of
        :class:`DynamicRangeQuantizeDescriptor` for the columns of a token's head, symmetric, with
        its defaults, ``fl(max |x| / q_max)`` or 1 where all are 0. It goes where the codes go:
        ``key_scale[page, place, h]`` or ``key_scale[page, h, place]``. A head with a NaN or an
        infinity has the scale NaN.

        A negative slot is skipped: padding. A slot of ``pages * page_size`` or beyond is skipped,
        too, and ``invalid`` is how many of these there are. Of two tokens with one slot the later
        one counts, always. All other slots of the cache keep their bits.

    Dtypes:
        key and value float16, bfloat16 or float32, of one type; the caches that type, int8,
        float8_e4m3fn or float8_e5m2, and float16 or bfloat16 if that type is float32; slot int64;
        the scales float32; invalid int64.

    Shapes:
        ``key`` is ``(tokens, heads, columns)`` and ``value`` ``(tokens, heads, value_dim)``. A
        cache is ``(pages, page_size, heads, columns)`` (NHD) or ``(pages, heads, page_size,
        columns)`` (HND). ``slot`` is ``(tokens,)``. A scale is ``(1,)``, ``(heads,)``
        or, measured, a cache without columns: ``(pages, page_size, heads)`` or ``(pages, heads,
        page_size)``; ``invalid`` is ``(1,)``. Extents may be 0, but ``page_size`` may not.

    Workspace:
        None.

    Guarantee:
        Every kernel is BIT_EXACT and batch-invariant: what a token writes depends on itself alone.
        ``invalid`` is of all tokens.

    Attributes:
        key_shape: Shape of ``key``. The number of tokens may be a ``Dim``.
        value_dim: How many columns a value's head has. None: there is no value, as where one
            latent vector of a token holds both (DeepSeek's MLA: one head).
        pages: How many pages the cache has.
        page_size: How many tokens a page holds.
        layout: The order of the axes of a page.
        input_dtype: Element type of ``key`` and ``value``.
        cache_dtype: Element type of the caches; that of the inputs by default.
        scale_scope: Caches of codes: which codes share a scale; TENSOR by default.

    Raises:
        DescriptorError: A type that is not listed, a key without three axes, a negative number, or
            scales for a cache of floats.

    Source:
        vLLM ``reshape_and_cache_flash`` (NHD) and ``concat_and_cache_mla``; FlashInfer
        ``append_paged_kv_cache``.
    """

    operator: ClassVar[str] = "kv_cache_append"

    key_shape: Shape
    value_dim: int | None = None
    pages: int
    page_size: int
    layout: EnumerationField = CacheLayout.NHD
    input_dtype: DTypeField
    cache_dtype: DTypeField = None
    scale_scope: EnumerationField = None


@args_class
class KvCacheAppendArgs:
    """Operands of :class:`KvCacheAppendDescriptor`.

    Attributes:
        key: The keys; any outer strides, innermost stride 1.
        value: The values, likewise; only with ``value_dim``.
        key_cache: The pages of keys, which are updated; likewise.
        value_cache: The pages of values, likewise; only with ``value_dim``.
        slot: Where each token goes, of any value.
        key_scale: Scales of the keys; only with a cache of codes. They are updated if they are
            measured.
        value_scale: Those of the values; only with a cache of codes and ``value_dim``.
        invalid: Where the number of slots beyond the cache goes.
    """

    key: Tensor
    value: Tensor | None = None
    key_cache: Tensor
    value_cache: Tensor | None = None
    slot: Tensor
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None
    invalid: Tensor


class KvCacheAppendPlan(Plan):
    """A plan for :class:`KvCacheAppendDescriptor`."""

    __slots__ = ()


register(KvCacheAppendDescriptor, KvCacheAppendArgs, KvCacheAppendPlan)
