"""References and cases of linear_mixed."""
