"""Models of Hugging Face folders as llama.cpp reads them: names of tensors, and hyperparameters.

The package ``gguf`` has the names: those of tensors for each architecture, and those of metadata.
This module reads ``config.json``, and refuses what llama.cpp would compute otherwise than
transformers does.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planq.checkpoint.failure import CheckpointError, TensorError
from planq.checkpoint.shards import CONFIG, read_json
from planq.checkpoint.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planq.checkpoint.files import TensorEntry
    from planq.checkpoint.gguf_header import Value

# Tensors that llama.cpp makes itself, or has no use for.
_LEFT_OUT = (".attention.masked_bias", ".rotary_emb.inv_freq", "embeddings.position_ids")
_BERT_HEADS = ("pooler.", "cls.predictions.", "cls.seq_relationship.")
# Every layer of Gemma 3 but each sixth has a window.
_GEMMA_PATTERN = 6


def package() -> Any:
    """Returns the package ``gguf``.

    Raises:
        CheckpointError: It is not installed.
    """
    try:
        return importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        if error.name != "gguf":
            raise
        what = "GGUF files are written with the package 'gguf': pip install 'planq[gguf]'"
        raise CheckpointError(what) from error


@dataclass(frozen=True, slots=True)
class Renamed:
    """A tensor of the source in the file.

    Attributes:
        name: Its name there.
        source: The tensor of the source.
        heads: How many heads its rows belong to, if these are to be reordered; else 0.
        shift: What is added to its values.
        floating: Whether llama.cpp reads it as float32 alone.
    """

    name: str
    source: TensorEntry
    heads: int
    shift: float
    floating: bool


@dataclass(frozen=True, slots=True)
class Model:
    """A model as llama.cpp reads it.

    Attributes:
        arch: llama.cpp's name of the architecture.
        metadata: Its hyperparameters, by key.
        tensors: The tensors of the source that it has.
        made: Tensors that the source does not have, by name.
        layers: How many blocks it has.
        heads: How many heads of queries, and of keys and values, a layer has.
        tied: Whether the embedding is the output layer, too.
        left_out: The names of tensors of the source that it does not have.
    """

    arch: str
    metadata: dict[str, Value]
    tensors: list[Renamed]
    made: dict[str, np.ndarray[Any, np.dtype[np.float32]]]
    layers: int
    heads: tuple[int, int]
    tied: bool
    left_out: tuple[str, ...]


class Config:
    """What ``config.json`` holds; errors name the file and the key.

    Args:
        path: The file.
        values: What it holds.
    """

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values

    def wrong(self, key: str, expected: str) -> CheckpointError:
        """Returns the error of a value."""
        found = self.values.get(key)
        got = "nothing" if found is None else repr(found)[:60]
        return CheckpointError(f"{self.path}: {key}: expected {expected}, got {got}")

    def count(self, key: str, default: int | None = None) -> int:
        """Returns a number from 1 on."""
        found = self.values.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not int or not 0 < found < 2**31:
            raise self.wrong(key, "a number from 1 on")
        return found

    def real(self, key: str, default: float | None = None) -> float:
        """Returns a positive number, rounded to float32."""
        return _real(self, key, self.values.get(key, default))

    def only(self, key: str, *allowed: object) -> None:
        """Refuses a value that is there, and none of these."""
        found = self.values.get(key)
        if found is not None and found not in allowed:
            raise self.wrong(key, " or ".join(map(repr, allowed)) or "nothing")


def _real(config: Config, key: str, found: Any) -> float:
    if type(found) not in (int, float) or not 0 < found < 2.0**127:
        raise config.wrong(key, "a positive number")
    return float(np.float32(found))


def read_model(path: Path, values: Mapping[str, Any], entries: list[TensorEntry]) -> Model:
    """Returns a model as llama.cpp reads it.

    Args:
        path: The ``config.json``.
        values: What it holds.
        entries: The tensors of the model's files.

    Raises:
        CheckpointError: The architecture is unknown, the config lacks something, or llama.cpp
            would compute something else; a `TensorError` if a tensor is missing or has no name.
    """
    config = Config(path, values)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise config.wrong("model_type", f"an architecture that planq writes as GGUF ({known})")
    gguf = package()
    describe = _KINDS[kind]
    found = describe(gguf, config)
    names = gguf.get_tensor_name_map(found.number, found.layers)
    tied = values.get("tie_word_embeddings", kind == "gemma3_text") is True or kind == "bert"
    left_out = [
        entry.name
        for entry in entries
        if _has_no_place(entry.name, kind) or (tied and entry.name == "lm_head.weight")
    ]
    tensors = [
        _renamed(config, found, names, entry) for entry in entries if entry.name not in left_out
    ]
    _check_blocks(config, found, tensors)
    has_output = any(tensor.name == "output.weight" for tensor in tensors)
    if not has_output and not tied:  # where llama.cpp takes the embedding
        raise config.wrong("tie_word_embeddings", "True, as there is no lm_head.weight")
    arch = gguf.MODEL_ARCH_NAMES[found.number]
    return Model(
        arch=arch,
        metadata={key.format(arch=arch): value for key, value in found.metadata.items()},
        tensors=tensors,
        made=found.made,
        layers=found.layers,
        heads=found.heads,
        tied=not has_output,
        left_out=tuple(left_out),
    )


@dataclass(slots=True)
class _Described:
    """What a config tells: number of the architecture, and keys with a place for its name."""

    number: Any
    layers: int
    heads: tuple[int, int]
    head_dim: int
    metadata: dict[str, Value]
    reordered: bool = False
    shift: float = 0.0
    made: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = field(default_factory=dict)


def _common(gguf: Any, config: Config, number: Any) -> _Described:
    """The hyperparameters that every architecture has."""
    keys = gguf.Keys
    heads, width = config.count("num_attention_heads"), config.count("hidden_size")
    shared = config.count("num_key_value_heads", heads)
    head_dim = config.count("head_dim", max(1, width // heads))
    layers = config.count("num_hidden_layers")
    metadata: dict[str, Value] = {
        keys.LLM.BLOCK_COUNT: layers,
        keys.LLM.CONTEXT_LENGTH: config.count("max_position_embeddings"),
        keys.LLM.EMBEDDING_LENGTH: width,
        keys.LLM.FEED_FORWARD_LENGTH: config.count("intermediate_size"),
        keys.LLM.VOCAB_SIZE: config.count("vocab_size"),
        keys.Attention.HEAD_COUNT: heads,
    }
    return _Described(number, layers, (heads, shared), head_dim, metadata)


def _decoder(gguf: Any, config: Config, number: Any, activation: str) -> _Described:
    """The same, with those of decoders: heads, their norm, and rotation."""
    keys = gguf.Keys
    config.only("hidden_act", activation)
    config.only("hidden_activation", activation)
    found = _common(gguf, config, number)
    found.metadata |= {
        keys.Attention.HEAD_COUNT_KV: found.heads[1],
        keys.Attention.KEY_LENGTH: found.head_dim,
        keys.Attention.VALUE_LENGTH: found.head_dim,
        keys.Attention.LAYERNORM_RMS_EPS: config.real("rms_norm_eps"),
        keys.Rope.DIMENSION_COUNT: found.head_dim,
    }
    return found


def _llama(gguf: Any, config: Config) -> _Described:
    found = _decoder(gguf, config, gguf.MODEL_ARCH.LLAMA, "silu")
    found.reordered = True
    _rotate(gguf, config, found)
    return found


def _qwen3(gguf: Any, config: Config) -> _Described:
    config.only("use_sliding_window", False)
    found = _decoder(gguf, config, gguf.MODEL_ARCH.QWEN3, "silu")
    _rotate(gguf, config, found)
    return found


def _gemma3(gguf: Any, config: Config) -> _Described:
    values = config.values
    config.only("use_bidirectional_attention", False)
    config.only("attn_logit_softcapping")
    config.only("final_logit_softcapping")
    found = _decoder(gguf, config, gguf.MODEL_ARCH.GEMMA3, "gelu_pytorch_tanh")
    found.shift = 1.0
    windows = [(layer + 1) % _GEMMA_PATTERN != 0 for layer in range(found.layers)]
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    if values.get("layer_types") not in (None, kinds):
        wanted = "full_attention in each sixth layer, and sliding_attention in the others"
        raise config.wrong("layer_types", wanted)
    config.only("sliding_window_pattern", _GEMMA_PATTERN)
    large = found.layers == 62  # Gemma 3 27B, which llama.cpp knows by this
    width = config.count("hidden_size") // found.heads[0] if large else found.head_dim
    config.only("query_pre_attn_scalar", width)
    _rotate(gguf, config, found)
    found.metadata[gguf.Keys.Attention.SLIDING_WINDOW] = config.count("sliding_window")
    return found


def _bert(gguf: Any, config: Config) -> _Described:
    config.only("hidden_act", "gelu")
    config.only("position_embedding_type", "absolute")
    found = _common(gguf, config, gguf.MODEL_ARCH.BERT)
    found.metadata |= {
        gguf.Keys.Attention.LAYERNORM_EPS: config.real("layer_norm_eps"),
        gguf.Keys.Attention.CAUSAL: False,
        gguf.Keys.Tokenizer.TOKEN_TYPE_COUNT: config.count("type_vocab_size", 1),
    }
    pooling = _pooling(gguf, config.path.parent)
    if pooling is not None:
        found.metadata[gguf.Keys.LLM.POOLING_TYPE] = pooling
    return found


def _pooling(gguf: Any, folder: Path) -> int | None:
    """How sentence-transformers makes one vector of those of all tokens, if the folder tells."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        modules = parse(path.read_bytes())
        found = [each["path"] for each in modules if each["type"].endswith("Pooling")]
        if not found:
            return None
        path = folder / Path(found[0]).name / CONFIG
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: no list of modules: {error}") from error
    told, types = read_json(path), gguf.PoolingType
    for key, kind in (
        ("pooling_mode_mean_tokens", types.MEAN),
        ("pooling_mode_cls_token", types.CLS),
        ("pooling_mode_lasttoken", types.LAST),
    ):
        if told.get(key) is True:
            return int(kind)
    raise CheckpointError(f"{path}: expected the mean, the first or the last token")


_KINDS: dict[str, Callable[[Any, Config], _Described]] = {
    "llama": _llama,
    "gemma3_text": _gemma3,
    "qwen3": _qwen3,
    "bert": _bert,
}


def _rotate(gguf: Any, config: Config, found: _Described) -> None:
    """Adds how positions rotate; transformers 5 has it in one object, 4 in several keys."""
    keys, values = gguf.Keys.Rope, config.values
    told = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(told, dict):
        raise config.wrong("rope_parameters", "an object")
    windowed = told.get("sliding_attention")
    rope = told.get("full_attention", told)
    for each in (rope, windowed):
        if each is not None and not isinstance(each, dict):
            raise config.wrong("rope_parameters", "an object for each kind of layer")
    base = rope.get("rope_theta", values.get("rope_theta"))
    found.metadata[keys.FREQ_BASE] = _real(config, "rope_theta", base)
    local = (windowed or {}).get("rope_theta", values.get("rope_local_base_freq"))
    if local is not None:
        found.metadata[keys.FREQ_BASE_SWA] = _real(config, "rope_local_base_freq", local)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        found.metadata[keys.SCALING_TYPE] = "linear"
        found.metadata[keys.SCALING_FACTOR] = _real(config, "factor", rope.get("factor"))
    elif kind == "llama3" and found.reordered:
        found.made["rope_freqs.weight"] = _llama3_factors(config, rope, found.head_dim, base)
    elif kind != "default":
        what = "a rope_type of default or linear, or for Llama llama3"
        raise CheckpointError(f"{config.path}: expected {what}, got {str(kind)[:40]!r}")


def _llama3_factors(
    config: Config, rope: Mapping[str, Any], width: int, base: float
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What llama.cpp divides the frequencies by: long waves by ``factor``, short ones by 1."""
    factor, low, high, length = (
        _real(config, key, rope.get(key))
        for key in (
            *("factor", "low_freq_factor", "high_freq_factor"),
            "original_max_position_embeddings",
        )
    )
    if not low < high:
        raise CheckpointError(f"{config.path}: expected a low_freq_factor below high_freq_factor")
    waves = 2 * math.pi * np.float64(base) ** (np.arange(0, width, 2) / width)
    share = np.clip((length / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - share) / factor + share)).astype(np.float32)


def _has_no_place(name: str, kind: object) -> bool:
    if kind == "bert" and name.removeprefix("bert.").startswith(_BERT_HEADS):
        return True
    return name.endswith(_LEFT_OUT)


def _renamed(config: Config, found: _Described, names: Any, entry: TensorEntry) -> Renamed:
    """Returns what becomes of a tensor."""
    plain = entry.name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if plain.endswith(old):
            plain = plain.removesuffix(old) + new
    name = names.get_name(plain, (".weight", ".bias"))
    if name is None:
        expected = "a tensor of the architecture, which llama.cpp has a name for"
        raise TensorError(config.path.parent, entry.name, expected, entry.words)
    if len(entry.shape) not in (1, 2):
        raise TensorError(config.path.parent, entry.name, "one or two axes", entry.words)
    _, _, part = name.rpartition("blk.")
    part = part.partition(".")[2]
    heads = 0
    if part.split(".")[0] in ("attn_q", "attn_k"):
        heads = found.heads[part.startswith("attn_k")]
        if entry.shape[0] != heads * found.head_dim or found.head_dim % 2:
            rows = f"{heads} heads of {found.head_dim} rows, an even number"
            raise TensorError(config.path.parent, entry.name, rows, entry.words)
    norm = name.endswith("_norm.weight")
    places = name in ("position_embd.weight", "token_types.weight")
    return Renamed(
        name=name,
        source=entry,
        heads=heads if found.reordered else 0,
        shift=found.shift if norm else 0.0,
        floating=len(entry.shape) == 1 or norm or places or not name.endswith(".weight"),
    )


def _check_blocks(config: Config, found: _Described, tensors: list[Renamed]) -> None:
    """Refuses a model without embedding, and blocks that do not all have the same tensors."""
    names = {tensor.name for tensor in tensors}
    parts = {name.split(".", 2)[2] for name in names if name.startswith("blk.")}
    wanted = {f"blk.{layer}.{part}" for layer in range(found.layers) for part in parts}
    missing = sorted({"token_embd.weight", "blk.0.attn_q.weight", *wanted} - names)
    if missing:
        what = f"a tensor for llama.cpp's {missing[0]}"
        raise CheckpointError(f"{config.path.parent}: expected {what}, found none")
