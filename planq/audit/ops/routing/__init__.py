"""References and cases of routing of experts."""
