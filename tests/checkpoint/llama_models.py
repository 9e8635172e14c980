"""Small random models in Hugging Face folders, with tokenizers, as they may be found."""

from __future__ import annotations

import json
import logging
import struct
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from support.docs import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    import transformers
    from transformers import BertModel, Gemma3ForCausalLM, LlamaForCausalLM, Qwen3ForCausalLM

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VOCABULARY = 512
_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 128,
    "initializer_range": 0.05,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_DECODER = {**_SIZES, "num_key_value_heads": 2}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
# Each with what its architecture alone has: reordered rows and factors of frequencies, windows and
# norms that start at 1, norms of heads that are wider than usual.
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, {**_DECODER, "rope_parameters": _LLAMA3}),
    "gemma3": (
        Gemma3ForCausalLM,
        {
            **_DECODER,
            "num_hidden_layers": 6,
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "sliding_window": 8,
        },
    ),
    "qwen3": (Qwen3ForCausalLM, {**_DECODER, "head_dim": 128, "tie_word_embeddings": True}),
    "bert": (BertModel, {**_SIZES, "layer_norm_eps": 1e-6}),
}
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


def folder(path: Path, name: str, dtype: torch.dtype = torch.float32) -> Any:
    """Makes a model's folder; returns the model, in the values that the folder has."""
    made, options = MODELS[name]
    torch.manual_seed(len(name))
    model = made(made.config_class(**options)).to(dtype)
    with torch.no_grad():
        for key, values in model.named_parameters():
            if "norm" in key.lower() and key.endswith("weight"):
                values += torch.rand_like(values) - 0.5
            elif key.endswith("bias"):
                values += torch.randn_like(values) / 4
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(path)
    TOKENIZERS[name](path)
    return model.float().eval()


def text() -> str:
    """Some text of this repository."""
    return (ROOT / "CONTRIBUTING.md").read_text()


def _train(path: Path, tokenizer: Tokenizer, trainer: Any) -> None:
    tokenizer.train_from_iterator(text().splitlines(), trainer)
    assert tokenizer.get_vocab_size() == VOCABULARY
    tokenizer.save(str(path / "tokenizer.json"))


def _bytewise(path: Path) -> None:
    """BPE on bytes, split as Qwen does."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=alphabet,
        special_tokens=_SPECIAL,
        show_progress=False,
    )
    _train(path, tokenizer, trainer)


def _merged(path: Path) -> None:
    """BPE with bytes as a way out, as Llama 2 has it in JSON; a space before every text."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.ByteFallback()
    special = [*_SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False
    )
    words = [word for line in text().splitlines() for word in line.split()]
    tokenizer.train_from_iterator(words, trainer)
    values = json.loads(tokenizer.to_str())
    values["added_tokens"] = values["added_tokens"][:4]
    (path / "tokenizer.json").write_text(json.dumps(values))


def _words(path: Path) -> None:
    """WordPiece of lower-case letters."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=special, show_progress=False
    )
    _train(path, tokenizer, trainer)
    _mean(path)
    names = ("pad", "unk", "cls", "sep", "mask")
    settings = {f"{name}_token": token for name, token in zip(names, special, strict=True)}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))


def _mean(path: Path) -> None:
    """sentence-transformers' word that a text's vector is the mean of its tokens'."""
    modules = [{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    told = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(told))


def _pieces(path: Path) -> None:
    """A ``tokenizer.model`` of SentencePiece, field by field, with no space before a text."""
    _merged(path)
    values = json.loads((path / "tokenizer.json").read_text())["model"]
    (path / "tokenizer.json").unlink()
    ranks = {"".join(merge): -float(rank) for rank, merge in enumerate(values["merges"])}
    kinds = {"<unk>": 2, **dict.fromkeys(("<pad>", "<s>", "</s>"), 3)}
    kinds |= {f"<0x{byte:02X}>": 6 for byte in range(256)}
    content = b""
    for piece in sorted(values["vocab"], key=lambda piece: values["vocab"][piece]):
        letters = piece.encode()
        message = b"\x0a" + bytes([len(letters)]) + letters
        message += b"\x15" + struct.pack("<f", ranks.get(piece, -1e9))
        message += b"\x18" + bytes([kinds[piece]]) if piece in kinds else b""
        content += b"\x0a" + bytes([len(message)]) + message
    content += b"\x1a\x02\x18\x00"  # normalizer_spec { add_dummy_prefix: false }
    (path / "tokenizer.model").write_bytes(content)


TOKENIZERS = {"llama": _merged, "gemma3": _pieces, "qwen3": _bytewise, "bert": _words}


def prompts(count: int, length: int) -> Iterator[list[int]]:
    """Tokens that are neither special nor bytes, after the one that begins a text."""
    generator = np.random.default_rng(count)
    for _ in range(count):
        yield [1, *generator.integers(300, VOCABULARY, length - 1).tolist()]
