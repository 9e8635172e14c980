"""References and cases of unpack_int4."""
