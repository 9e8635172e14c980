"""References and cases of norms of rows."""
