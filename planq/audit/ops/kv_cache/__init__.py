"""References and cases of the kv_cache family."""
