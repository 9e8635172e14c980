"""References and cases of percentile_clip."""
