"""References and cases of matmul_int8."""
