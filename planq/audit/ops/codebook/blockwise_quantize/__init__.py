"""References and cases of blockwise_quantize."""
