"""The launches of a step, in order: of each the plan's name, and the tensors that it takes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import planq
from planq.networks.gemma3.plans import attention_name
from planq.networks.gemma3.sizes import TOGETHER
from planq.networks.tensors import repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planq.networks.gemma3.sizes import Sizes

Tensor = Any
Shapes = dict[str, tuple[tuple[int, ...], str]]
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
# Of a row that is sampled, as a text has them.
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed")
INPUTS = {"long": "int64", "short": "int32", "real": "float32"}
SCALES = {"codes": "scale", "inner codes": "inner scale"}


class Launch(NamedTuple):
    """A plan's name and its operands; of products also their input and results, by their names."""

    name: str
    args: Any
    fed: Mapping[str, Tensor] = NOTHING
    results: Mapping[str, Tensor] = NOTHING


class Extents(NamedTuple):
    """What a step is bound for.

    Attributes:
        rows: Tokens.
        batch: Texts.
        asked: Tokens that logits are made of; 0: none.
        every: Whether these are all tokens, in their order.
        likeliest: Whether a text takes the likeliest tokens.
        sampled: Whether a text samples its tokens, with settings for each row.
        single: Whether each text has one token, whose attention then is one launch on a GPU.
    """

    rows: int
    batch: int
    asked: int
    every: bool
    likeliest: bool = True
    sampled: bool = False
    single: bool = False

    @property
    def drawn(self) -> int:
        """How many rows have settings."""
        return self.asked if self.sampled else 0


class Inputs(NamedTuple):
    """What the inputs of a step lie in; a copy of each fills it.

    Attributes:
        long: int64.
        short: int32.
        real: float32; a step that samples nothing has none of it.
    """

    long: Tensor
    short: Tensor
    real: Tensor


def room_of(extents: Extents, table: int) -> Inputs:
    """How many elements a step has of each."""
    rows, batch, asked, drawn = extents.rows, extents.batch, extents.asked, extents.drawn
    return Inputs(3 * rows + asked + 2 * drawn, 1 + (2 + table) * batch + drawn, 3 * drawn)


def inputs_of(memory: Inputs, extents: Extents, table: int) -> dict[str, Tensor]:
    """The inputs of a step, which lie one behind another.

    Args:
        memory: Where.
        extents: Of the step.
        table: The most pages of a text.
    """
    (long, short, real), (rows, batch, asked, *_) = memory, extents
    drawn, behind, pages = extents.drawn, 3 * rows + asked, 2 * batch + 1 + batch * table
    settings = {
        "seed": long[behind : behind + drawn],
        "drawn position": long[behind + drawn : behind + 2 * drawn],
        "top_k": short[pages : pages + drawn],
        "temperature": real[:drawn],
        "top_p": real[drawn : 2 * drawn],
        "min_p": real[2 * drawn : 3 * drawn],
    }
    return settings | {
        "ids": long[:rows],
        "position": long[rows : 2 * rows],
        "slot": long[2 * rows : 3 * rows],
        "chosen": long[3 * rows : 3 * rows + asked],
        "query start": short[: batch + 1],
        "key length": short[batch + 1 : 2 * batch + 1],
        "block table": short[2 * batch + 1 : pages].reshape(batch, table),
    }


def row_shapes(sizes: Sizes, rows: int = 1) -> Shapes:
    """Shape and type of the tensors with a row for each token."""
    heads = sizes.heads * sizes.head
    qkv = heads + 2 * sizes.key_heads * sizes.head
    kinds: dict[str, tuple[int, str]] = {
        "hidden": (sizes.hidden, "float32"),
        "residual": (sizes.hidden, "float32"),
        "codes": (sizes.hidden, "int8"),
        "scale": (sizes.hidden // 32, "float32"),
        "qkv": (qkv, "float32"),
        "query": (heads, "float16"),
        "heads": (heads, "float32"),
        "gate up": (2 * sizes.inner, "float32"),
        "inner codes": (sizes.inner, "int8"),
        "inner scale": (sizes.inner // 32, "float32"),
    }
    return {name: ((rows, columns), kind) for name, (columns, kind) in kinds.items()}


def asked_shapes(sizes: Sizes, asked: int) -> Shapes:
    """Shape and type of the tensors with a row for each token that is asked."""
    return {
        "asked hidden": ((asked, sizes.hidden), "float32"),
        "asked residual": ((asked, sizes.hidden), "float32"),
        "logits": ((asked, sizes.vocabulary), "float32"),
    }


class Launches:
    """Those of a step, made of tensors with or without memory.

    Args:
        sizes: Of the model.
        table: The most pages of a text.
        tensors: All of the network by name, weights among them.
        extents: Of the step.

    Attributes:
        at: The rows of each tensor that the step uses, and its inputs.
    """

    def __init__(
        self, sizes: Sizes, table: int, tensors: Mapping[str, Tensor], extents: Extents
    ) -> None:
        self.sizes, self.tensors, self.extents = sizes, tensors, extents
        counts = room_of(extents, table)._asdict()
        self.inputs = Inputs(*(tensors[name][:count] for name, count in counts.items()))
        self.at = {name: tensors[name][: extents.rows] for name in row_shapes(sizes)}
        self.at |= inputs_of(self.inputs, extents, table)
        for together in TOGETHER:
            whole = self.at[together]
            self.at |= {name: whole[:, own] for name, own in sizes.columns(together).items()}

    def listed(self) -> list[Launch]:
        """All of them, in order."""
        return [
            *self._embedded(),
            *(launch for layer in range(self.sizes.layers) for launch in self._layer(layer)),
            *(self._head() if self.extents.asked else ()),
        ]

    # --- Of all tokens

    def _embedded(self) -> list[Launch]:
        """The residual: rows of the table, times the root of their length."""
        at, sizes = self.at, self.sizes
        rows = planq.GgufDequantizeArgs(
            input=self.tensors["token_embd"], index=at["ids"], output=at["hidden"]
        )
        scaled = planq.AddArgs(
            input=at["hidden"],
            other=self._zeros(sizes.hidden),
            output=at["residual"],
            alpha=float(np.float32(np.sqrt(sizes.hidden))),
        )
        return [Launch("embedding", rows), Launch("scaling", scaled)]

    def _layer(self, layer: int) -> list[Launch]:
        name, hidden = f"blk.{layer}", self.at["hidden"]
        # Before the first layer there is nothing to add to the residual.
        before = hidden if layer else self._zeros(self.sizes.hidden)
        return [
            self._codes_of_norm(f"{name}.attn_norm", before, self.at["residual"]),
            self._products(name, "qkv"),
            self._turn_and_append(layer),
            self._attention(layer),
            self._product(f"{name}.attn_output", "heads", "hidden"),
            self._norm(f"{name}.post_attention_norm"),
            self._codes_of_norm(f"{name}.ffn_norm", hidden, self.at["residual"]),
            self._products(name, "gate up"),
            self._gate(),
            self._product(f"{name}.ffn_down", "inner codes", "hidden"),
            self._norm(f"{name}.post_ffw_norm"),
        ]

    def _turn_and_append(self, layer: int) -> Launch:
        """Positions; queries, keys and values become float16, as attention takes them."""
        tensors, sizes, name = self.tensors, self.sizes, f"blk.{layer}"
        query, key, value = self._heads()
        keys, values = self._pages(layer)
        args = planq.RotaryKvCacheAppendArgs(
            query=query,
            key=key,
            value=value,
            key_cache=keys,
            value_cache=values,
            cos_sin=tensors["windowed turns" if sizes.windowed(layer) else "turns"],
            position=self.at["position"],
            slot=self.at["slot"],
            query_weight=tensors[f"{name}.attn_q_norm"],
            key_weight=tensors[f"{name}.attn_k_norm"],
            eps=sizes.epsilon,
            query_output=self._query(),
            invalid=tensors["invalid"],
        )
        return Launch("turn and append", args)

    def _attention(self, layer: int) -> Launch:
        at, sizes = self.at, self.sizes
        keys, values = self._pages(layer)
        args = planq.AttentionArgs(
            query=self._query(),
            key_cache=keys,
            value_cache=values,
            output=at["heads"].reshape(-1, sizes.heads, sizes.head),
            query_start=at["query start"],
            key_length=at["key length"],
            block_table=at["block table"],
            scale=sizes.head**-0.5,
        )
        extents = self.extents
        name = attention_name(extents.batch, sizes.windowed(layer), extents.single)
        return Launch(name, args)

    def _gate(self) -> Launch:
        args = planq.ActivationArgs(
            input=self.at["ffn_gate"],
            up=self.at["ffn_up"],
            output=self.at["inner codes"],
            scale=self.at["inner scale"],
        )
        return Launch("gate", args)

    def _norm(self, name: str) -> Launch:
        """Of the hidden state, in place."""
        args = planq.RmsNormArgs(
            input=self.at["hidden"],
            weight=self.tensors[name],
            output=self.at["hidden"],
            eps=self.sizes.epsilon,
        )
        return Launch("norm", args)

    def _codes_of_norm(self, name: str, hidden: Tensor, residual: Tensor) -> Launch:
        """Adds the hidden state to the residual, and makes codes of the sum's norm."""
        rows = len(hidden)
        args = planq.RmsNormArgs(
            input=hidden,
            weight=self.tensors[name],
            residual=residual,
            output=self.tensors["codes"][:rows],
            scale=self.tensors["scale"][:rows],
            eps=self.sizes.epsilon,
        )
        return Launch("codes of norm", args)

    # --- Of the tokens that are asked

    def _head(self) -> list[Launch]:
        """Logits, and the next token of each row."""
        tensors, asked = self.tensors, self.extents.asked
        logits = tensors["logits"][:asked]
        hidden, residual, gathered = self._asked_rows()
        normed = self._codes_of_norm("output_norm", hidden, residual)
        fed = {
            name: tensors[place][:asked]
            for name, place in (("input", "codes"), ("input_scale", "scale"))
        }
        args = planq.LinearGgufArgs(weight=tensors["token_embd"], output=logits, **fed)
        product = Launch("token_embd", args, fed, {"token_embd": logits})
        return [*gathered, normed, product, *self._choices(logits)]

    def _choices(self, logits: Tensor) -> Iterator[Launch]:
        """The next token of each row: the likeliest one, one that is drawn, or both.

        Both are of all rows. A text has the one that it has alone, also of logits with a NaN.
        """
        tensors = self.tensors
        if self.extents.likeliest:
            likeliest = tensors["likeliest"][: len(logits)]
            yield Launch("argmax", planq.ArgmaxArgs(input=logits, output=likeliest))
        if self.extents.sampled:
            yield self._sample(logits)

    def _sample(self, logits: Tensor) -> Launch:
        at, tensors = self.at, self.tensors
        settings = {name: at[name] for name in SETTINGS}
        args = planq.SampleArgs(
            input=logits,
            position=at["drawn position"],
            output=tensors["drawn"][: len(logits)],
            invalid=tensors["invalid"][:1],
            **settings,
        )
        return Launch("sample", args)

    def _asked_rows(self) -> tuple[Tensor, Tensor, list[Launch]]:
        """Hidden state and residual of the tokens that are asked; what gathers them."""
        if self.extents.every:
            return self.at["hidden"], self.at["residual"], []
        tensors, made = self.tensors, list[Launch]()
        for name in ("hidden", "residual"):
            args = planq.EmbeddingArgs(
                table=tensors[name],
                index=self.at["chosen"],
                output=tensors[f"asked {name}"][: self.extents.asked],
                invalid=tensors["invalid"][:1],
            )
            made.append(Launch("chosen rows", args))
        hidden, residual = (
            tensors[f"asked {name}"][: self.extents.asked] for name in ("hidden", "residual")
        )
        return hidden, residual, made

    # --- Operands

    def _heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (tokens, heads, elements)."""
        sizes = self.sizes
        columns = sizes.columns("qkv").values()
        counts = (sizes.heads, sizes.key_heads, sizes.key_heads)
        query, key, value = (
            self.at["qkv"][:, own].reshape(-1, heads, sizes.head)
            for own, heads in zip(columns, counts, strict=True)
        )
        return query, key, value

    def _query(self) -> Tensor:
        """Turned queries in float16, (tokens, heads, elements)."""
        return self.at["query"].reshape(-1, self.sizes.heads, self.sizes.head)

    def _pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, each (pages, places, heads, elements)."""
        cache = self.tensors["cache"]
        return cache[layer, 0], cache[layer, 1]

    def _product(self, name: str, source: str, target: str) -> Launch:
        fed = self._fed(source)
        weight, output = self.tensors[name], self.at[target]
        args = planq.LinearGgufArgs(weight=weight, output=output, **fed)
        return Launch(name, args, fed, {name: output})

    def _products(self, layer: str, together: str) -> Launch:
        """Several of one input."""
        fed, names = self._fed("codes"), TOGETHER[together]
        weights = [self.tensors[f"{layer}.{name}"] for name in names]
        args = planq.LinearGgufMergedArgs(weight=weights, output=self.at[together], **fed)
        results = {f"{layer}.{name}": self.at[name] for name in names}
        return Launch(f"{layer}.{together}", args, fed, results)

    def _fed(self, source: str) -> dict[str, Tensor]:
        """A tensor as the input of a product, and its scales if it is codes."""
        fed = {"input": self.at[source]}
        if source in SCALES:
            fed["input_scale"] = self.at[SCALES[source]]
        return fed

    def _zeros(self, columns: int) -> Tensor:
        """As many rows of zeros as the step has."""
        return repeated(self.tensors["zeros"][:, :columns], self.extents.rows)
