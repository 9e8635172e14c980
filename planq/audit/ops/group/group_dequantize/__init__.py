"""References and cases of group_dequantize."""
