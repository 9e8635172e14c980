"""Descriptors and args of the operators, one module per family."""
