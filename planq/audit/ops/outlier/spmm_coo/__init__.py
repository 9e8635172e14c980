"""References and cases of spmm_coo."""
