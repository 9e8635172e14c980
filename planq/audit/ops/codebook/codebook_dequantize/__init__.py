"""References and cases of codebook_dequantize."""
