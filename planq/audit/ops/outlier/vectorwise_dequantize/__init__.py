"""References and cases of vectorwise_dequantize."""
