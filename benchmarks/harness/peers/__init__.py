"""What else computes the same, and what each is called with."""
