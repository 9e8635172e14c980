"""References and cases of the gather family."""
