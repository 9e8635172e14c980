"""References and cases of histogram_scatter_add."""
