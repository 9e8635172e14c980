"""References and cases of attention."""
