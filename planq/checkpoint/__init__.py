"""Quantized checkpoints: quantizing, verifying and restoring safetensors files and model folders.

It needs no package beside planq's own. Of a model's folder, transformers is asked which module each
weight belongs to, where it is installed. The command line is made of what is here.
"""
