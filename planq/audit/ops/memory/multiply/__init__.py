"""References and cases of multiply."""
