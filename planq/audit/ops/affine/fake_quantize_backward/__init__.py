"""References and cases of fake_quantize_backward."""
