"""References and cases of norm."""
