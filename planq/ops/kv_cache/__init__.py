"""The kv_cache family: keys and values of tokens in the pages of a cache."""

from planq.ops.kv_cache.kv_cache_append import (
    KvCacheAppendArgs,
    KvCacheAppendDescriptor,
    KvCacheAppendPlan,
)
from planq.ops.kv_cache.rotary_kv_cache_append import (
    RotaryKvCacheAppendArgs,
    RotaryKvCacheAppendDescriptor,
    RotaryKvCacheAppendPlan,
)
from planq.ops.kv_cache.vocabulary import CacheLayout, CacheScale

__all__ = [
    "CacheLayout",
    "CacheScale",
    "KvCacheAppendArgs",
    "KvCacheAppendDescriptor",
    "KvCacheAppendPlan",
    "RotaryKvCacheAppendArgs",
    "RotaryKvCacheAppendDescriptor",
    "RotaryKvCacheAppendPlan",
]
