"""References and cases of llm_int8_quantize."""
