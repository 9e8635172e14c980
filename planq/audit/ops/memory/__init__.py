"""References and cases of memory operators."""
