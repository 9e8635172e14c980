"""References and cases of grouped_linear."""
