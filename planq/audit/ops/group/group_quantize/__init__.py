"""References and cases of group_quantize."""
