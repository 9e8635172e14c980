"""Gemma 3 from a GGUF file, its products on the file's own blocks.

::

    with planq.checkpoint.read_gguf("model.gguf") as files:
        network = Gemma3(files, "cuda")
    text = network.text(1024)
    for token in network.continued(text, [2, 818, 5279, 529, 7001, 563], most=32):
        print(token)
"""

from __future__ import annotations

from planq.networks.gemma3.network import Gemma3
from planq.networks.gemma3.plans import Limits
from planq.networks.gemma3.sizes import Sizes
from planq.networks.gemma3.texts import Made, Part, Text

__all__ = ["Gemma3", "Limits", "Made", "Part", "Sizes", "Text"]
