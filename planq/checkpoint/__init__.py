"""Quantized checkpoints: quantizing, verifying and restoring safetensors files and model folders.

It needs NumPy and planq alone. If transformers is installed, it is asked which module each weight
of a model's folder belongs to. The command line is built on this package.
"""
