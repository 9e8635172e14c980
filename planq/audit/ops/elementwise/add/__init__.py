"""References and cases of add."""
