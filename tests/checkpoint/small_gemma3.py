"""A small Gemma 3 in a GGUF file, with random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from checkpoint.small_vocabulary import METADATA, VOCABULARY

if TYPE_CHECKING:
    from pathlib import Path

Array = np.ndarray[Any, Any]
LAYERS, HIDDEN, HEADS, HEAD, INNER, WINDOW = 7, 64, 2, 32, 256, 4
CONTEXT = 2048
EPSILON, BASE, WINDOWED_BASE = 1e-6, 1e6, 1e4
# Types that the real file has, and where.
BLOCKS = {
    "attn_q": ("Q5_0", (HEADS * HEAD, HIDDEN)),
    "attn_k": ("Q5_0", (HEAD, HIDDEN)),
    "attn_v": ("Q8_0", (HEAD, HIDDEN)),
    "attn_output": ("Q8_0", (HIDDEN, HEADS * HEAD)),
    "ffn_gate": ("Q5_0", (INNER, HIDDEN)),
    "ffn_up": ("Q5_0", (INNER, HIDDEN)),
    "ffn_down": ("Q6_K", (HIDDEN, INNER)),
}
NORMS = {
    "attn_norm": ("input_layernorm", HIDDEN),
    "attn_q_norm": ("self_attn.q_norm", HEAD),
    "attn_k_norm": ("self_attn.k_norm", HEAD),
    "post_attention_norm": ("post_attention_layernorm", HIDDEN),
    "ffn_norm": ("pre_feedforward_layernorm", HIDDEN),
    "post_ffw_norm": ("post_feedforward_layernorm", HIDDEN),
}


def blocks_of(draw: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    """Bytes of random blocks whose numbers are small."""
    rows, columns = shape
    elements, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    blocks = draw.integers(0, 256, (rows, columns // elements, nbytes), np.uint8)
    # The scales: of a Q6_K's block also those of 16 elements, which are kept below 8.
    at, unit = (208, 2.0**-10) if kind == "Q6_K" else (0, 2.0**-7 if kind == "Q5_0" else 2.0**-10)
    scale = (draw.integers(8, 16, blocks.shape[:2]) * (unit / 8)).astype(np.float16)
    blocks[..., at : at + 2] = scale[..., None].view(np.uint8)
    if kind == "Q6_K":
        blocks[..., 192:208] = draw.integers(-8, 8, (*blocks.shape[:2], 16)).astype(np.uint8)
    return blocks.reshape(rows, -1)


def write(path: Path, **others: Any) -> Path:
    """The model as a file: random weights, and metadata like that of the real one."""
    draw = np.random.default_rng(3)
    writer = gguf.GGUFWriter(path, others.get("architecture", "gemma3"))
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(BASE)
    writer.add_sliding_window(WINDOW)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(METADATA["tokenizer.ggml.tokens"])
    writer.add_token_scores(METADATA["tokenizer.ggml.scores"].tolist())
    writer.add_token_types(METADATA["tokenizer.ggml.token_type"].tolist())
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)

    def add(name: str, kind: str, shape: tuple[int, int]) -> None:
        data = blocks_of(draw, kind, shape)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name: str, width: int) -> None:
        data = (draw.integers(96, 160, width) / 128).astype(others.get("norms", np.float32))
        writer.add_tensor(f"{name}.weight", data)

    add("token_embd", "Q8_0", (len(VOCABULARY), HIDDEN))
    norm("output_norm", HIDDEN)
    for layer in range(LAYERS):
        for name, (kind, shape) in BLOCKS.items():
            add(f"blk.{layer}.{name}", kind, shape)
        for name, (_, width) in NORMS.items():
            norm(f"blk.{layer}.{name}", width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
