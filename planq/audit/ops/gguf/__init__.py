"""References and cases of the gguf family."""
