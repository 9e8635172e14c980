"""Quantized checkpoints: quantizing, verifying and restoring safetensors files and model folders.

It needs NumPy and planq alone. If transformers is installed, it is asked which module each weight
of a model's folder belongs to. The command line is built on this package.

:func:`read_layers` opens the quantized layers of checkpoints that other programs made, and
:func:`read_gguf` GGUF files, whatever the types of their tensors.
"""

from planq.checkpoint.gguf_files import GgufFiles, read_gguf
from planq.checkpoint.layers import Layers, read_layers
from planq.checkpoint.peers.layer import Layer, StoredAs

__all__ = ["GgufFiles", "Layer", "Layers", "StoredAs", "read_gguf", "read_layers"]
