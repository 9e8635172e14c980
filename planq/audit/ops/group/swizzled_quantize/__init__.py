"""References and cases of swizzled_quantize."""
