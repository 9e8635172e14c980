"""References and cases of dequantize_reduce."""
