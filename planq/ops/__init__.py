"""Descriptors and args of the operators, one package per family, one module per operator."""
