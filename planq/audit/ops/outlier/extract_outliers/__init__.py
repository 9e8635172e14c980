"""References and cases of extract_outliers."""
