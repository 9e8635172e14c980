"""The public contract: what callers see, whatever the operator."""
