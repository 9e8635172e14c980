"""References and cases of transform_layout."""
