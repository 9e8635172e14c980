"""Collectives among processes; a package, as benchmarks have a module of the same name."""
