"""References and cases of sample."""
