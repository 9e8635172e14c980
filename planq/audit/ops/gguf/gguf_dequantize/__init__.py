"""References and cases of gguf_dequantize."""
