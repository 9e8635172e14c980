"""References and cases of linear_fp8."""
