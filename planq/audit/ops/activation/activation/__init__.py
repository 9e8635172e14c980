"""References and cases of activation."""
