"""References and cases of codebook operators."""
