"""The encoder of a sentence transformer, for the demonstration: BERT in NumPy, planq's products.

Everything but the linear layers is float32 in NumPy: embeddings, attention, layer norm, GELU and
the mean over the tokens. The rows of all sentences are concatenated, without padding.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.files import CheckpointReader
from planq.cli.failure import CommandError
from planq.executors import Executor, plan_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from planq.executors import Bytes

Array = npt.NDArray[Any]
# Computes the linear layer of this name on rows.
Dense: TypeAlias = Callable[[str, Array], Array]

_MOST_ROWS = 1024
_PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


class Encoder:
    """A model, and everything in it but the linear layers.

    Args:
        folder: Where its ``model.safetensors``, ``config.json`` and ``tokenizer.json`` are.

    Attributes:
        tensors: Its weights, by name.
        products: The names of the linear layers.
    """

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._layers = [f"encoder.layer.{n}" for n in range(config["num_hidden_layers"])]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._tokenizer = folder / "tokenizer.json"
        self.tensors = _float_tensors(folder / "model.safetensors")
        self.products = [f"{layer}.{part}" for layer in self._layers for part in _PARTS]

    def tokens(self, sentences: Iterable[str]) -> list[list[int]]:
        """Tokenizes sentences, with the special tokens that the model expects.

        Raises:
            CommandError: The package tokenizers is not installed.
        """
        try:
            library: Any = importlib.import_module("tokenizers")
        except ModuleNotFoundError as error:
            needs = "needs the package 'tokenizers': pip install 'planq[demo]'"
            raise CommandError(f"{self._tokenizer.name} {needs}") from error
        tokenizer = library.Tokenizer.from_file(str(self._tokenizer))
        tokenizer.no_padding()
        return [tokenizer.encode(sentence).ids for sentence in sentences]

    def embed(self, tokens: Sequence[Sequence[int]], dense: Dense) -> Array:
        """One unit vector for each sentence: the normalized mean over its tokens.

        Args:
            tokens: The tokens of each sentence.
            dense: Computes the linear layers.
        """
        sentences = spans(tokens)
        rows = self._look_up(tokens)
        for layer in self._layers:
            rows = self._layer(layer, rows, sentences, dense)
        means = np.stack([rows[sentence].mean(axis=0) for sentence in sentences])
        unit: Array = means / np.linalg.norm(means, axis=1, keepdims=True)
        return unit

    def _look_up(self, tokens: Sequence[Sequence[int]]) -> Array:
        words = np.concatenate([np.asarray(sentence) for sentence in tokens])
        places = np.concatenate([np.arange(len(sentence)) for sentence in tokens])
        rows = self.tensors["embeddings.word_embeddings.weight"][words]
        rows = rows + self.tensors["embeddings.position_embeddings.weight"][places]
        rows = rows + self.tensors["embeddings.token_type_embeddings.weight"][0]
        return self._norm("embeddings", rows)

    def _layer(self, name: str, rows: Array, sentences: list[slice], dense: Dense) -> Array:
        query, key, value, mix, widen, narrow = (f"{name}.{part}" for part in _PARTS)
        asked, found, told = (dense(each, rows) for each in (query, key, value))
        heard = [_attend(asked[at], found[at], told[at], self._heads) for at in sentences]
        rows = self._norm(f"{name}.attention.output", rows + dense(mix, np.concatenate(heard)))
        inner = _gelu(dense(widen, rows))
        return self._norm(f"{name}.output", rows + dense(narrow, inner))

    def _norm(self, name: str, rows: Array) -> Array:
        centred = rows - rows.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        weight, bias = (self.tensors[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        normed: Array = centred / np.sqrt(variance + np.float32(self._epsilon)) * weight + bias
        return normed


class FloatProducts:
    """The linear layers in float32 by NumPy.

    Args:
        encoder: The encoder whose layers they are.

    Attributes:
        fed: The rows that each layer was given last.
        seconds: The time that all calls have taken.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._tensors = encoder.tensors
        self.fed: dict[str, Array] = {}
        self.seconds = 0.0

    def __call__(self, name: str, rows: Array) -> Array:
        """Computes one of them on rows."""
        self.fed[name] = rows
        start = time.perf_counter()
        made: Array = rows @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]
        self.seconds += time.perf_counter() - start
        return made


@dataclass(frozen=True, slots=True)
class _Layer:
    """A linear layer's plans, and their operands beside the rows."""

    quantize: planq.Plan
    product: planq.Plan
    parameters: Mapping[str, Bytes]


class W8A8Products:
    """The linear layers in W8A8: weights quantized per channel once, rows per token in each call.

    Args:
        encoder: The encoder whose layers they are.
        executor: The device that they run on.

    Attributes:
        plans: Every plan, once; each serves any number of rows.
        seconds: The time that the plans have taken.
    """

    def __init__(self, encoder: Encoder, executor: Executor) -> None:
        self._executor = executor
        self._select = plan_selector(executor)
        self._layers = {name: self._make(encoder.tensors, name) for name in encoder.products}
        made = self._layers.values()
        self.plans = list(dict.fromkeys(each for at in made for each in (at.quantize, at.product)))
        self.seconds = 0.0

    def __call__(self, name: str, rows: Array) -> Array:
        """Computes one of them on rows."""
        layer = self._layers[name]
        codes = self._run(layer.quantize, {"input": _bytes(rows)}, m=len(rows))
        inputs = {"input": codes["output"], "input_scale": codes["scale"], **layer.parameters}
        made = self._run(layer.product, inputs, m=len(rows))["output"]
        return made.view(np.float32).reshape(len(rows), -1)

    def _make(self, tensors: Mapping[str, Array], name: str) -> _Layer:
        weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
        rows = planq.Dim("m", max=_MOST_ROWS)
        per_channel = self._select(_quantize(weight.shape, planq.Scope.channel(0)))
        per_token = self._select(_quantize((rows, weight.shape[1]), planq.Scope.token()))
        product = planq.LinearW8A8Descriptor(
            input_shape=(rows, weight.shape[1]),
            weight_shape=weight.shape,
            input_dtype="int8",
            weight_dtype="int8",
            output_dtype="float32",
            bias_dtype="float32",
        )
        codes = self._executor.run(per_channel, {"input": _bytes(weight)}).outputs
        return _Layer(
            per_token,
            self._select(product),
            {"weight": codes["output"], "weight_scale": codes["scale"], "bias": _bytes(bias)},
        )

    def _run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], *, m: int) -> dict[str, Bytes]:
        ran = self._executor.run(plan, inputs, m=m)
        self.seconds += ran.seconds
        return ran.outputs


def _quantize(
    shape: tuple[int | planq.Dim, ...], scope: planq.Scope
) -> planq.DynamicRangeQuantizeDescriptor:
    return planq.DynamicRangeQuantizeDescriptor(
        shape=shape, input_dtype="float32", output_dtype="int8", scope=scope
    )


def digest(
    dense: Dense,
    fed: Mapping[str, Array],
    batches: Sequence[Sequence[int]],
    sentences: Sequence[slice],
) -> str:
    """The SHA-256 of the results of all linear layers for given rows.

    Args:
        dense: Computes the layers.
        fed: The rows of each layer, sentence after sentence.
        batches: Which sentences are computed together, and in which order. The digest always has
            the rows in the order of the sentences. So it differs between batches only if the
            products are not batch-invariant.
        sentences: The rows of each sentence.
    """
    found = hashlib.sha256()
    for name, rows in fed.items():
        places = np.arange(len(rows))
        chosen = [np.concatenate([places[sentences[one]] for one in batch]) for batch in batches]
        made = np.concatenate([dense(name, rows[batch]) for batch in chosen])
        in_order = np.empty_like(made)
        in_order[np.concatenate(chosen)] = made
        found.update(in_order.tobytes())
    return found.hexdigest()


def spans(tokens: Sequence[Sequence[int]]) -> list[slice]:
    """The rows of each sentence."""
    ends = np.cumsum([len(sentence) for sentence in tokens]).tolist()
    return [slice(end - len(each), end) for each, end in zip(tokens, ends, strict=True)]


def _float_tensors(model: Path) -> dict[str, Array]:
    with closing(CheckpointReader(model)) as reader:
        return {
            entry.name: reader.tensor(entry).view(np.float32).reshape(entry.shape)
            for entry in reader.entries
            if entry.dtype == "F32"
        }


def _attend(query: Array, key: Array, value: Array, heads: int) -> Array:
    """Softmax attention within one sentence; each head has its share of the columns."""
    asked, found, told = (
        rows.reshape(len(rows), heads, -1).swapaxes(0, 1) for rows in (query, key, value)
    )
    score = asked @ found.swapaxes(1, 2) / np.float32(math.sqrt(asked.shape[2]))
    share = np.exp(score - score.max(axis=2, keepdims=True))
    share /= share.sum(axis=2, keepdims=True)
    heard: Array = (share @ told).swapaxes(0, 1).reshape(query.shape)
    return heard


def _gelu(x: Array) -> Array:
    """``x / 2 * (1 + erf(x / sqrt 2))``.

    NumPy has no erf. This is formula 7.1.26 of Abramowitz and Stegun, with an error of at most
    1.5e-7.
    """
    size = np.abs(x) / np.float32(math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    erf = np.copysign(1 - series * np.exp(-size * size), x)
    result: Array = x / 2 * (1 + erf)
    return result


def _bytes(values: Array) -> Bytes:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
