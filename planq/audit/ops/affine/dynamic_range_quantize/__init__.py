"""References and cases of dynamic_range_quantize."""
