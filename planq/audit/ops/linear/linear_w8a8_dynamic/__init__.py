"""References and cases of linear_w8a8_dynamic."""
