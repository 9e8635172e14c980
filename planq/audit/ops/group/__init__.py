"""References and cases of group operators."""
