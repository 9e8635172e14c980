"""References and cases of rms_norm."""
