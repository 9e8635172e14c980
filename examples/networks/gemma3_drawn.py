"""A model with the shapes and the types of Gemma 3 270M in Q4_K_M that needs no file.

Its weights are drawn: whole numbers from a seed, which every machine draws alike, and blocks that
`gguf_quantize` makes of them. It says nothing sensible, but its products are as large as the real
ones, and of the same types.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import planq

Array = np.ndarray[Any, Any]
LAYERS, HIDDEN, INNER = 18, 640, 2048
HEADS, KEY_HEADS, HEAD = 4, 1, 256
WINDOW = 512
# A share of the file's 262144 tokens.
VOCABULARY = 32768
# Layers whose values and whose way down the file has in more bits: an eighth at both ends, and
# every third.
MORE_BITS = (0, 1, 4, 7, 10, 13, 15, 16, 17)
NORMS = {
    **dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), HIDDEN),
    **dict.fromkeys(("attn_q_norm", "attn_k_norm"), HEAD),
}


class Entry(NamedTuple):
    """A tensor, as those of files are told."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def products_of(layer: int) -> dict[str, tuple[str, tuple[int, int]]]:
    """The types and the shapes of a layer's weights."""
    more = layer in MORE_BITS
    return {
        "attn_q": ("Q5_0", (HEADS * HEAD, HIDDEN)),
        "attn_k": ("Q5_0", (KEY_HEADS * HEAD, HIDDEN)),
        "attn_v": ("Q8_0" if more else "Q5_0", (KEY_HEADS * HEAD, HIDDEN)),
        "attn_output": ("Q4_K", (HIDDEN, HEADS * HEAD)),
        "ffn_gate": ("Q5_0", (INNER, HIDDEN)),
        "ffn_up": ("Q5_0", (INNER, HIDDEN)),
        "ffn_down": ("Q6_K" if more else "Q4_K", (HIDDEN, INNER)),
    }


class Drawn:
    """The model, as :class:`planq.networks.gemma3.Gemma3` takes open files.

    Args:
        layers: Fewer than all, for a quick run.
        vocabulary: Tokens that there are.
        window: How many tokens a windowed layer sees.
        seed: Of all weights.
    """

    def __init__(
        self,
        layers: int = LAYERS,
        vocabulary: int = VOCABULARY,
        window: int = WINDOW,
        seed: int = 1,
    ) -> None:
        self.path, self.seed = Path("drawn"), seed
        sizes = {
            "block_count": layers,
            "context_length": 32768,
            "embedding_length": HIDDEN,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KEY_HEADS,
            "attention.key_length": HEAD,
            "feed_forward_length": INNER,
            "attention.sliding_window": window,
            "attention.layer_norm_rms_epsilon": float(np.float32(1e-6)),
            "rope.freq_base": 1e6,
        }
        self.metadata: dict[str, Any] = {f"gemma3.{name}": size for name, size in sizes.items()}
        self.metadata["general.architecture"] = "gemma3"
        self.entries = [
            Entry("token_embd.weight", "Q8_0", (vocabulary, HIDDEN)),
            Entry("output_norm.weight", "F32", (HIDDEN,)),
        ]
        for layer in range(layers):
            self.entries += [
                Entry(f"blk.{layer}.{name}.weight", kind, shape)
                for name, (kind, shape) in products_of(layer).items()
            ]
            self.entries += [
                Entry(f"blk.{layer}.{name}.weight", "F32", (width,))
                for name, width in NORMS.items()
            ]
        self.by_name = {entry.name: entry for entry in self.entries}

    def tensor(self, entry: Entry) -> Array:
        """The bytes of a tensor."""
        key = hashlib.sha256(f"{self.seed} {entry.name}".encode()).digest()
        draw = np.random.Generator(np.random.PCG64(int.from_bytes(key[:16], "little")))
        # Sums of bytes are nearly normal. All of this is exact.
        sums = draw.integers(0, 256, (4, *entry.shape), np.uint8).sum(axis=0, dtype=np.int32) - 510
        if entry.dtype == "F32":
            return (1 + sums.astype(np.float32) / 2048).view(np.uint8)
        return quantized(entry.dtype.lower(), sums.astype(np.float32) * np.float32(2.0**-13))


def quantized(kind: str, x: Array) -> Array:
    """Rows of blocks."""
    desc = planq.GgufQuantizeDescriptor(shape=x.shape, input_dtype="float32", type=kind)
    plan = planq.Plan.select(planq.HOST, desc)
    outputs = plan.empty_outputs(np)
    plan.run(planq.HOST, plan.empty_workspace(np), planq.GgufQuantizeArgs(input=x, **outputs))
    made: Array = outputs["output"]
    return made
