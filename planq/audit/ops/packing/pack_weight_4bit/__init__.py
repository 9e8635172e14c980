"""References and cases of pack_weight_4bit."""
