"""Quantized checkpoints: quantizing, verifying and restoring safetensors files and model folders.

It needs the package safetensors, and no other: ``pip install 'planq[checkpoint]'``. The command
line is made of what is here.
"""
