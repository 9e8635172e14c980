"""One module for each operator, found by its name: see support/operators.py."""
