"""References and cases of pipeline_copy."""
