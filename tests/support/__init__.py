"""What the tests share: descriptors from problems, guarded memory, running a plan."""
