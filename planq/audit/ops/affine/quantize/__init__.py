"""References and cases of quantize."""
