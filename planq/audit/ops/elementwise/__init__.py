"""References and cases of the elementwise family."""
