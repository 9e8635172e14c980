"""References and cases of rotary_kv_cache_append."""
