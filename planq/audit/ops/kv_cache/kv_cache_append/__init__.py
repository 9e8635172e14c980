"""References and cases of kv_cache_append."""
