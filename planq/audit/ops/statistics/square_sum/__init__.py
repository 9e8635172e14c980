"""References and cases of square_sum."""
