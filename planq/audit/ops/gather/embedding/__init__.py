"""References and cases of embedding."""
