"""References and cases of moe_permute."""
