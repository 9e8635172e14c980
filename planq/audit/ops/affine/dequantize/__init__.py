"""References and cases of dequantize."""
