"""References and cases of products."""
