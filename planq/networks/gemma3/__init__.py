"""Gemma 3 from a GGUF file, its products on the file's own blocks.

::

    with planq.checkpoint.read_gguf("model.gguf") as files:
        network = Gemma3(files, "cuda")
    text = network.text(1024)
    for token in network.continued(text, [2, 818, 5279, 529, 7001, 563], most=32):
        print(token)

A text takes the likeliest tokens, or samples them: ``network.text(1024, sampling=Sampling(0.8))``.
"""

from __future__ import annotations

from planq.networks.gemma3.network import Gemma3
from planq.networks.gemma3.plans import Limits
from planq.networks.gemma3.sizes import Sizes
from planq.networks.gemma3.texts import GREEDY, LogitsError, Made, Part, Sampling, Text

__all__ = ["GREEDY", "Gemma3", "Limits", "LogitsError", "Made", "Part", "Sampling", "Sizes", "Text"]
