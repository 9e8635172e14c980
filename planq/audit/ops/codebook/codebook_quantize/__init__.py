"""References and cases of codebook_quantize."""
