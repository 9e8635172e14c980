"""What operators compute, as torch operations."""
