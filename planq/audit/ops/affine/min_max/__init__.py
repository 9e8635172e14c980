"""References and cases of min_max."""
