"""References and cases of fill."""
