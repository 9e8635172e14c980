"""References and cases of linear_gguf_merged."""
