"""What a file says of a Gemma 3, and whether it has the tensors that this network needs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import planq
from planq.checkpoint.failure import CheckpointError, TensorError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Array = np.ndarray[Any, Any]
BLOCKS = {kind.value.upper(): kind for kind in planq.GgufType}
# Layers of one input, which are one product; its columns are called as they are.
TOGETHER = {"qkv": ("attn_q", "attn_k", "attn_v"), "gate up": ("ffn_gate", "ffn_up")}
PRODUCTS = (*TOGETHER["qkv"], "attn_output", *TOGETHER["gate up"], "ffn_down")
# Of the layers that see the whole text, each is the last of so many; not in every file.
PATTERN, WINDOWED_BASE = 6, 10_000.0
# The model of 27B divides scores by another number than the root of a head's size.
LAYERS_OF_27B = 62


class Entry(Protocol):
    """A tensor of a model."""

    @property
    def name(self) -> str:
        """As the format calls it."""

    @property
    def dtype(self) -> str:
        """Such as `Q4_K`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its numbers."""


class Source(Protocol):
    """Where a model comes from: an open file (:func:`planq.checkpoint.read_gguf`), for one."""

    @property
    def path(self) -> Path:
        """As errors name it."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its sizes, by the format's names."""

    @property
    def entries(self) -> Sequence[Any]:
        """Its tensors."""

    @property
    def by_name(self) -> Mapping[str, Any]:
        """The same, by name."""

    def tensor(self, entry: Any) -> Array:
        """The bytes of one."""


@dataclass(frozen=True)
class Sizes:
    """Of a model, as its file says.

    Attributes:
        layers: Their number.
        hidden: Elements of a token.
        heads: Heads of queries.
        key_heads: Heads of keys and of values.
        head: Elements of a head.
        inner: Elements between up and down.
        vocabulary: Tokens that there are.
        context: The most tokens of a text.
        window: How many tokens a windowed layer sees, the own one among them.
        epsilon: Of every norm.
        base: Of the positions in layers that see the whole text.
        windowed_base: In the others.
    """

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head: int
    inner: int
    vocabulary: int
    context: int
    window: int
    epsilon: float
    base: float
    windowed_base: float

    @classmethod
    def of(cls, files: Source) -> Sizes:
        """Those of a file.

        Raises:
            CheckpointError: It is no Gemma 3, or a kind of it that this network does not compute.
        """
        _require_text_model(files)
        sizes = cls(
            layers=_number(files, "block_count"),
            hidden=_number(files, "embedding_length"),
            heads=_number(files, "attention.head_count"),
            key_heads=_number(files, "attention.head_count_kv"),
            head=_number(files, "attention.key_length"),
            inner=_number(files, "feed_forward_length"),
            vocabulary=_rows(files, "token_embd.weight"),
            context=_number(files, "context_length"),
            window=_number(files, "attention.sliding_window"),
            epsilon=_number(files, "attention.layer_norm_rms_epsilon"),
            base=_number(files, "rope.freq_base"),
            windowed_base=files.metadata.get("gemma3.rope.freq_base_swa", WINDOWED_BASE),
        )
        if sizes.layers == LAYERS_OF_27B:
            raise _refused(files, "gemma3.block_count", f"other than {LAYERS_OF_27B} layers", "it")
        return sizes

    def windowed(self, layer: int) -> bool:
        """Whether a layer sees a window alone."""
        return (layer + 1) % PATTERN != 0

    @property
    def widths(self) -> dict[str, tuple[int, int]]:
        """The shape of each product of a layer: rows and columns of its weight."""
        query, key = self.heads * self.head, self.key_heads * self.head
        return {
            "attn_q": (query, self.hidden),
            "attn_k": (key, self.hidden),
            "attn_v": (key, self.hidden),
            "attn_output": (self.hidden, query),
            "ffn_gate": (self.inner, self.hidden),
            "ffn_up": (self.inner, self.hidden),
            "ffn_down": (self.hidden, self.inner),
        }

    def columns(self, together: str) -> dict[str, slice]:
        """Of layers that are one product, the columns of each."""
        widths = [self.widths[name][0] for name in TOGETHER[together]]
        ends = itertools.accumulate(widths)
        return {
            name: slice(end - width, end)
            for name, width, end in zip(TOGETHER[together], widths, ends, strict=True)
        }

    @property
    def norms(self) -> dict[str, int]:
        """The length of each norm's weight in a layer."""
        names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        heads = dict.fromkeys(("attn_q_norm", "attn_k_norm"), self.head)
        return dict.fromkeys(names, self.hidden) | heads


def weights_of(files: Source, sizes: Sizes) -> dict[str, Entry]:
    """The tensors that the network reads, by their names without ``.weight``.

    Raises:
        TensorError: One is missing, or has another type or shape.
    """
    products = {"token_embd": (sizes.vocabulary, sizes.hidden)}
    norms = {"output_norm": sizes.hidden}
    for layer in range(sizes.layers):
        products |= {f"blk.{layer}.{name}": shape for name, shape in sizes.widths.items()}
        norms |= {f"blk.{layer}.{name}": width for name, width in sizes.norms.items()}
    found = {name: _entry(files, name, shape, BLOCKS) for name, shape in products.items()}
    return found | {name: _entry(files, name, (width,), ("F32",)) for name, width in norms.items()}


def stored(entry: Entry) -> tuple[tuple[int, ...], str]:
    """Shape and type of a tensor as plans take it: rows of blocks as bytes, or float32."""
    if entry.dtype not in BLOCKS:
        return entry.shape, "float32"
    blocks = planq.GgufDequantizeDescriptor(
        shape=entry.shape, type=BLOCKS[entry.dtype], output_dtype="float32"
    )
    return blocks.operands()["input"].shape, "uint8"


def _entry(files: Source, name: str, shape: tuple[int, ...], types: Any) -> Entry:
    found: Entry | None = files.by_name.get(f"{name}.weight")
    kinds = "F32" if "F32" in types else "a type of blocks"
    if found is not None and found.dtype in types and found.shape == shape:
        return found
    got = None if found is None else f"{found.dtype} {list(found.shape)}"
    raise TensorError(files.path, f"{name}.weight", f"{kinds} {list(shape)}", got)


def _require_text_model(files: Source) -> None:
    """Raises CheckpointError for files of other networks."""
    for key, expected in (("general.architecture", "gemma3"), ("gemma3.rope.scaling.type", None)):
        found = files.metadata.get(key)
        if found != expected and not (expected is None and found == "none"):
            raise _refused(files, key, repr(expected) if expected else "none", repr(found))


def _number(files: Source, name: str) -> Any:
    key = f"gemma3.{name}"
    found = files.metadata.get(key)
    if isinstance(found, (int, float)) and not isinstance(found, bool) and found > 0:
        return found
    raise _refused(files, key, "a positive number", "nothing" if found is None else repr(found))


def _rows(files: Source, name: str) -> int:
    """How many rows a matrix has."""
    found = files.by_name.get(name)
    if found is None or len(found.shape) != 2:
        got = None if found is None else f"{found.dtype} {list(found.shape)}"
        raise TensorError(files.path, name, "a matrix", got)
    return int(found.shape[0])


def _refused(files: Source, key: str, expected: str, got: str) -> CheckpointError:
    return CheckpointError(f"{files.path}: metadata {key!r}: expected {expected}, got {got}")
