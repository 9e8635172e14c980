"""References and cases of double_quantize."""
