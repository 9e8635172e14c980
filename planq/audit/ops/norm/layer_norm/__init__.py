"""References and cases of layer_norm."""
