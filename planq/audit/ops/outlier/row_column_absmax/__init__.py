"""References and cases of row_column_absmax."""
