"""References and cases of estimate_quantiles."""
