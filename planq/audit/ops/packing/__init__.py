"""References and cases of codes in other orders."""
