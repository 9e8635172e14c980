"""References and cases of vectorwise_quantize."""
