"""References and cases of statistics."""
