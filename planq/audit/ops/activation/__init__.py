"""References and cases of the activation family."""
