"""References and cases of unary."""
