"""References and cases of optimizers."""
