"""References and cases of reorder_mixed_dtype_weight."""
