"""References and cases of affine operators."""
