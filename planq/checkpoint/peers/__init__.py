"""Formats of quantized layers that other programs write: one module for each."""
