"""References and cases of the attention family."""
