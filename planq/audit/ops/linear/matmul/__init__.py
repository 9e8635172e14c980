"""References and cases of matmul."""
