"""References and cases of pack_int4."""
