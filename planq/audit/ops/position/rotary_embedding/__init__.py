"""References and cases of rotary_embedding."""
