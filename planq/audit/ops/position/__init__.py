"""References and cases of the position family."""
