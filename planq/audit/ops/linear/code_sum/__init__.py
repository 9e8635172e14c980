"""References and cases of code_sum."""
