"""References and cases of gguf_quantize."""
