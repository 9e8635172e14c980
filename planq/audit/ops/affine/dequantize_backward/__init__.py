"""References and cases of dequantize_backward."""
