"""References and cases of blockwise_dequantize."""
