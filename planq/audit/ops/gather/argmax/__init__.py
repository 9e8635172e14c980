"""References and cases of argmax."""
