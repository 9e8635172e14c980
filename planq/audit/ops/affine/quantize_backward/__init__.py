"""References and cases of quantize_backward."""
