"""Where a network has a place for the inverse of scales, by its architecture.

Layers that share an input have their columns multiplied by scales, and the tensors that make this
input are divided by them. That is the same network where nothing else takes the input, and where
it is linear in these tensors:

- norms before queries, keys and values, and before gate and up: in decoders nothing else has their
  output. In BERT it goes on to the residual as well, so it is none of the places.
- values, before the output of attention. Queries that share values share their scales.
- up, before down: the gate multiplies it.

Other tensors than those of the architecture may take the input as well, as an adapter does, or
belong to what makes it, as a norm's bias or a scale of stored values. Such layers are refused.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planq.checkpoint.failure import CheckpointError, TensorError
from planq.checkpoint.gguf_models import Config
from planq.checkpoint.schemes import FLOATING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from planq.checkpoint.files import TensorEntry

_QUERIES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_GATED = ("mlp.gate_proj", "mlp.up_proj")
# An adapter that transformers adds to the layers when it loads the folder.
_ADAPTER = "adapter_config.json"

_DECODER_NAMES = (
    r"self_attn\.([qkvo]_proj\.(weight|bias)|[qk]_norm\.weight|rotary_emb\.inv_freq)"
    r"|mlp\.(gate|up|down)_proj\.(weight|bias)"
    r"|(input|post_attention|pre_feedforward|post_feedforward)_layernorm\.weight"
)
_BERT_NAMES = (
    r"(cross)?attention\.(self\.(query|key|value)|output\.dense)\.(weight|bias)"
    r"|(cross)?attention\.self\.distance_embedding\.weight"
    r"|(intermediate|output)\.dense\.(weight|bias)"
    r"|((cross)?attention\.)?output\.LayerNorm\.(weight|bias|gamma|beta)"
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """The places of one architecture.

    Attributes:
        anchor: The weight by which a layer is known.
        norms: The layers that each norm feeds.
        linear: The layer that each linear layer feeds alone, from rows to columns.
        values: Which of `linear` has heads that may have copies.
        names: The names of all tensors that a layer may have, as a regular expression.
        shift: What is added to the weights of norms.
    """

    anchor: str
    norms: Mapping[str, tuple[str, ...]]
    linear: Mapping[str, str]
    values: str
    names: str
    shift: float = 0.0


def _decoder(before_mlp: str, shift: float = 0.0) -> _Kind:
    return _Kind(
        anchor="self_attn.o_proj",
        norms={"input_layernorm": _QUERIES, before_mlp: _GATED},
        linear={"self_attn.v_proj": "self_attn.o_proj", "mlp.up_proj": "mlp.down_proj"},
        values="self_attn.v_proj",
        names=_DECODER_NAMES,
        shift=shift,
    )


_PLAIN = _decoder("post_attention_layernorm")
_SHIFTED = _decoder("pre_feedforward_layernorm", 1.0)
_KINDS = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "qwen2": _PLAIN,
    "qwen3": _PLAIN,
    "gemma": _decoder("post_attention_layernorm", 1.0),
    "gemma2": _SHIFTED,
    "gemma3_text": _SHIFTED,
    "bert": _Kind(
        anchor="attention.output.dense",
        norms={},
        linear={"attention.self.value": "attention.output.dense"},
        values="attention.self.value",
        names=_BERT_NAMES,
    ),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Layers that share an input, and what makes it.

    Attributes:
        layers: The weights, whose columns are multiplied by scales.
        makers: The tensors whose elements along axis 0 are divided by them.
        channels: The element of the makers that makes each column.
        shift: What the network adds to the makers.
    """

    layers: tuple[TensorEntry, ...]
    makers: tuple[TensorEntry, ...]
    channels: npt.NDArray[np.intp]
    shift: float = 0.0


def places_of(
    path: Path, values: Mapping[str, Any], tensors: Mapping[str, TensorEntry]
) -> list[Place]:
    """Returns the places of a model, in the order of its layers' names.

    Args:
        path: The ``config.json``.
        values: What it holds.
        tensors: The tensors of the model, by name.

    Raises:
        CheckpointError: The architecture is unknown, the config lacks something, or an adapter
            stands beside it.
        TensorError: A tensor is missing, of another type or shape than the others tell, or none
            that layers of the architecture have.
    """
    config = Config(path, values)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise config.wrong("model_type", f"an architecture with known places for scales ({known})")
    if (adapter := path.with_name(_ADAPTER)).exists():
        what = "an adapter takes the inputs that are scaled; merge it into the model first"
        raise CheckpointError(f"{adapter}: {what}")
    own = _KINDS[kind]
    end = re.escape(f".{own.anchor}.weight")
    stems = [found[1] for name in tensors if (found := re.fullmatch(rf"(.*\.\d+){end}", name))]
    if not stems:
        raise CheckpointError(f"{path.parent}: no layer with a tensor '...{own.anchor}.weight'")
    stems.sort(key=_in_order)
    _check_names(path.parent, kind, stems, tensors)
    model = _Model(config, own, tensors)
    return [place for stem in stems for place in model.places(stem)]


def _check_names(
    folder: Path, kind: str, stems: list[str], tensors: Mapping[str, TensorEntry]
) -> None:
    """Refuses layers with tensors that layers of this architecture do not have."""
    names = sorted(tensors)
    known = re.compile(_KINDS[kind].names)
    for stem in stems:
        start, end = (bisect_left(names, f"{stem}{after}") for after in "./")  # "/" follows "."
        for name in names[start:end]:
            if not known.fullmatch(name, len(stem) + 1):
                expected = f"none but those of layers of {kind}, since it may take a scaled input"
                raise TensorError(folder, name, expected, tensors[name].words)


def _in_order(stem: str) -> list[tuple[int, str]]:
    """The numbers of a name as numbers, so that 10 comes after 9."""
    parts = stem.split(".")
    return [(len(part), part) if part.isdecimal() else (0, part) for part in parts]


@dataclass(frozen=True, slots=True)
class _Model:
    config: Config
    kind: _Kind
    tensors: Mapping[str, TensorEntry]

    def places(self, stem: str) -> Iterator[Place]:
        """Yields the places of one layer."""
        for norm, fed in self.kind.norms.items():
            layers = tuple(self._weight(f"{stem}.{name}.weight") for name in fed)
            width = layers[0].shape[1]
            for layer in layers:
                self._expect(layer, (layer.shape[0], width))
            maker = self._found(f"{stem}.{norm}.weight", f"a floating tensor [{width}]")
            self._expect(maker, (width,))
            yield Place(layers, (maker,), np.arange(width), self.kind.shift)
        for source, fed_alone in self.kind.linear.items():
            yield self._between(stem, source, fed_alone)

    def _between(self, stem: str, source: str, fed: str) -> Place:
        """The place between two layers."""
        layer = self._weight(f"{stem}.{fed}.weight")
        maker = self._weight(f"{stem}.{source}.weight")
        channels = np.arange(layer.shape[1])
        if source == self.kind.values:
            channels = self._copied(layer)
        rows = int(channels[-1]) + 1
        self._expect(maker, (rows, maker.shape[1]))
        makers = [maker]
        bias = self.tensors.get(f"{stem}.{source}.bias")
        if bias is not None:
            self._expect(bias, (rows,))
            makers.append(bias)
        return Place((layer,), tuple(makers), channels)

    def _copied(self, layer: TensorEntry) -> npt.NDArray[np.intp]:
        """The row of the values that makes each column: heads of queries may share one."""
        heads = self.config.count("num_attention_heads")
        own = self.config.count("num_key_value_heads", heads)
        columns = layer.shape[1]
        if heads % own:
            raise self.config.wrong("num_key_value_heads", f"a divisor of {heads} heads")
        if columns % heads:
            expected = f"a width that is a multiple of {heads} heads"
            raise TensorError(self.config.path.parent, layer.name, expected, layer.words)
        size = columns // heads
        rows = np.arange(own * size).reshape(own, 1, size)
        return np.repeat(rows, heads // own, axis=1).reshape(-1)

    def _weight(self, name: str) -> TensorEntry:
        found = self._found(name, "a floating matrix")
        if len(found.shape) != 2 or not found.nbytes:
            raise TensorError(self.config.path.parent, name, "a floating matrix", found.words)
        return found

    def _found(self, name: str, expected: str) -> TensorEntry:
        found = self.tensors.get(name)
        if found is None or found.dtype not in FLOATING:
            what = None if found is None else found.words
            raise TensorError(self.config.path.parent, name, expected, what)
        return found

    def _expect(self, entry: TensorEntry, shape: tuple[int, ...]) -> None:
        if entry.shape != shape or entry.dtype not in FLOATING:
            expected = f"a floating tensor {list(shape)}"
            raise TensorError(self.config.path.parent, entry.name, expected, entry.words)
