"""References and cases of optimizer_step."""
