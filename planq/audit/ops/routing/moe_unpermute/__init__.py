"""References and cases of moe_unpermute."""
