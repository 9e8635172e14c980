"""References and cases of arange."""
