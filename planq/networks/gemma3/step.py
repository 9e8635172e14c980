"""A step: its launches for so many rows, bound once, and its inputs.

What changes from step to step is in tensors that the host fills: tokens, positions, slots of the
cache, lengths and block tables. All else is fixed. So a GPU captures the launches in one graph.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import planq
from planq.networks.gemma3.plans import attention_name
from planq.networks.gemma3.sizes import TOGETHER
from planq.networks.gemma3.texts import GREEDY, Sampling
from planq.networks.tensors import repeated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planq.networks.gemma3.network import Gemma3
    from planq.networks.gemma3.texts import Part

Tensor = Any
Array = np.ndarray[Any, Any]
NOTHING: Mapping[str, Tensor] = MappingProxyType({})
# Of a row that is sampled, as a text has them.
SETTINGS = ("temperature", "top_k", "top_p", "min_p", "seed")
INPUTS = {"long": "int64", "short": "int32", "real": "float32"}
SCALES = {"codes": "scale", "inner codes": "inner scale"}


class Launch(NamedTuple):
    """A bound plan; of products also where their input and their results are, by their names."""

    name: str
    run: Any
    fed: Mapping[str, Tensor] = NOTHING
    results: Mapping[str, Tensor] = NOTHING


class Extents(NamedTuple):
    """What a step is bound for.

    Attributes:
        rows: Tokens.
        batch: Texts.
        asked: Tokens that logits are made of; 0: none.
        every: Whether these are all tokens, in their order.
        sampled: Whether next tokens are sampled, with settings for each row, and not the likeliest
            ones of all rows.
    """

    rows: int
    batch: int
    asked: int
    every: bool
    sampled: bool = False

    @property
    def drawn(self) -> int:
        """How many rows have settings."""
        return self.asked if self.sampled else 0


class Memory(NamedTuple):
    """What the inputs of steps lie in; a copy of each fills a step.

    Attributes:
        long: int64.
        short: int32.
        real: float32; a step that samples nothing has none of it.
    """

    long: Tensor
    short: Tensor
    real: Tensor


def room_of(extents: Extents, table: int) -> Memory:
    """How many elements a step has of each."""
    rows, batch, asked, drawn = extents.rows, extents.batch, extents.asked, extents.drawn
    return Memory(3 * rows + asked + 2 * drawn, 1 + (2 + table) * batch + drawn, 3 * drawn)


def inputs_of(memory: Memory, extents: Extents, table: int) -> dict[str, Tensor]:
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


class Step:
    """The launches for some extents.

    Attributes:
        at: The rows of each tensor that the step uses, and its inputs.
        host: Its inputs on the host, which are to be filled.
        launches: All of them, in order.
    """

    def __init__(self, network: Gemma3, extents: Extents) -> None:
        self.network, self.extents = network, extents
        memory, table = network.memory, network.limits.table
        counts = room_of(extents, table)
        own = [np.zeros(count, INPUTS[name]) for name, count in counts._asdict().items()]
        there = [memory[name][:count] for name, count in counts._asdict().items()]
        self._copies = [pair for pair in zip(there, own, strict=True) if len(pair[1])]
        self.host = inputs_of(Memory(*own), extents, table)
        self._placed: list[Array | None] = [None] * extents.batch
        self._settled: list[Sampling | None] = [None] * extents.drawn
        self.at = {name: memory[name][: extents.rows] for name in network.of_rows}
        self.at |= inputs_of(Memory(*there), extents, table)
        for name, parts in network.columns.items():
            self.at |= {part: self.at[name][:, columns] for part, columns in parts.items()}
        layers = range(network.sizes.layers)
        self.launches = [
            *self._embedded(),
            *(launch for layer in layers for launch in self._layer(layer)),
            *(self._head() if extents.asked else ()),
        ]
        self.run = network.machine.captured(self.run_all)

    def fill(self) -> None:
        """Brings the inputs to the device."""
        for there, own in self._copies:
            self.network.machine.fill(there, own)

    def place(self, pages: Sequence[Array]) -> None:
        """Writes block tables. Most texts have the pages that they had in the step before."""
        for i, own in enumerate(pages):
            if self._placed[i] is not own:
                self._placed[i] = own
                self.host["block table"][i, : len(own)] = own

    def settle(self, parts: Iterable[Part]) -> None:
        """Writes how each asked row chooses; rows that fill the step up take the likeliest token.

        The counter of a token's random number is the place in its text that it will have, from 0.
        """
        settings, places = list[Sampling](), list[int]()
        for part in parts:
            settings += [part.text.sampling] * part.asked
            end = part.text.length + part.size + 1
            places += range(end - part.asked, end)
        more = self.extents.drawn - len(places)
        self.host["drawn position"][:] = places + [0] * more
        for row, own in enumerate(settings + [GREEDY] * more):
            if self._settled[row] is not own:
                self._settled[row] = own
                for name in SETTINGS:
                    self.host[name][row] = getattr(own, name)

    def run_all(self) -> None:
        """Runs the launches, one after another."""
        stream = self.network.machine.stream
        for launch in self.launches:
            launch.run(stream)

    # --- Of all tokens

    def _embedded(self) -> list[Launch]:
        """The residual: rows of the table, times the root of their length."""
        at, sizes = self.at, self.network.sizes
        rows = planq.GgufDequantizeArgs(
            input=self.network.weights["token_embd"], index=at["ids"], output=at["hidden"]
        )
        scaled = planq.AddArgs(
            input=at["hidden"],
            other=self._zeros(sizes.hidden),
            output=at["residual"],
            alpha=float(np.float32(np.sqrt(sizes.hidden))),
        )
        return [self._bound("embedding", rows), self._bound("scaling", scaled)]

    def _layer(self, layer: int) -> list[Launch]:
        name, hidden = f"blk.{layer}", self.at["hidden"]
        # Before the first layer there is nothing to add to the residual.
        before = hidden if layer else self._zeros(self.network.sizes.hidden)
        return [
            self._codes_of_norm(f"{name}.attn_norm", before, self.at["residual"]),
            self._products(name, "qkv"),
            self._rotary(name),
            self._as_float16(),
            self._append(layer),
            self._attention(layer),
            self._product(f"{name}.attn_output", "heads", "hidden"),
            self._norm(f"{name}.post_attention_norm"),
            self._codes_of_norm(f"{name}.ffn_norm", hidden, self.at["residual"]),
            self._products(name, "gate up"),
            self._gate(),
            self._product(f"{name}.ffn_down", "inner codes", "hidden"),
            self._norm(f"{name}.post_ffw_norm"),
        ]

    def _rotary(self, layer: str) -> Launch:
        network, sizes = self.network, self.network.sizes
        query, key, _ = self._heads("qkv")
        windowed = sizes.windowed(int(layer.removeprefix("blk.")))
        args = planq.RotaryEmbeddingArgs(
            query=query,
            key=key,
            cos_sin=network.memory["windowed turns" if windowed else "turns"],
            position=self.at["position"],
            query_weight=network.weights[f"{layer}.attn_q_norm"],
            key_weight=network.weights[f"{layer}.attn_k_norm"],
            eps=sizes.epsilon,
            invalid=network.memory["invalid"],
        )
        return self._bound("rotary", args)

    def _as_float16(self) -> Launch:
        """Queries, keys and values as attention takes them."""
        rows = self.at["qkv"]
        args = planq.AddArgs(
            input=rows, other=self._zeros(rows.shape[1]), output=self.at["float16 qkv"]
        )
        return self._bound("float16", args)

    def _append(self, layer: int) -> Launch:
        _, key, value = self._heads("float16 qkv")
        keys, values = self.network.cache[layer]
        args = planq.KvCacheAppendArgs(
            key=key,
            value=value,
            key_cache=keys,
            value_cache=values,
            slot=self.at["slot"],
            invalid=self.network.memory["invalid"],
        )
        return self._bound("append", args)

    def _attention(self, layer: int) -> Launch:
        at, sizes = self.at, self.network.sizes
        query, _, _ = self._heads("float16 qkv")
        keys, values = self.network.cache[layer]
        args = planq.AttentionArgs(
            query=query,
            key_cache=keys,
            value_cache=values,
            output=at["heads"].reshape(-1, sizes.heads, sizes.head),
            query_start=at["query start"],
            key_length=at["key length"],
            block_table=at["block table"],
            scale=sizes.head**-0.5,
        )
        return self._bound(attention_name(self.extents.batch, sizes.windowed(layer)), args)

    def _gate(self) -> Launch:
        args = planq.ActivationArgs(
            input=self.at["ffn_gate"],
            up=self.at["ffn_up"],
            output=self.at["inner codes"],
            scale=self.at["inner scale"],
        )
        return self._bound("gate", args)

    def _norm(self, name: str) -> Launch:
        """Of the hidden state, in place."""
        args = planq.RmsNormArgs(
            input=self.at["hidden"],
            weight=self.network.weights[name],
            output=self.at["hidden"],
            eps=self.network.sizes.epsilon,
        )
        return self._bound("norm", args)

    def _codes_of_norm(self, name: str, hidden: Tensor, residual: Tensor) -> Launch:
        """Adds the hidden state to the residual, and makes codes of the sum's norm."""
        rows = len(hidden)
        args = planq.RmsNormArgs(
            input=hidden,
            weight=self.network.weights[name],
            residual=residual,
            output=self.network.memory["codes"][:rows],
            scale=self.network.memory["scale"][:rows],
            eps=self.network.sizes.epsilon,
        )
        return self._bound("codes of norm", args)

    # --- Of the tokens that are asked

    def _head(self) -> list[Launch]:
        """Logits, and the next token of each row."""
        network, asked = self.network, self.extents.asked
        logits = network.memory["logits"][:asked]
        hidden, residual, gathered = self._asked_rows()
        normed = self._codes_of_norm("output_norm", hidden, residual)
        fed = {
            name: network.memory[place][:asked]
            for name, place in (("input", "codes"), ("input_scale", "scale"))
        }
        args = planq.LinearGgufArgs(weight=network.weights["token_embd"], output=logits, **fed)
        product = self._bound("token_embd", args, fed, {"token_embd": logits})
        return [*gathered, normed, product, self._choice(logits)]

    def _choice(self, logits: Tensor) -> Launch:
        """The next token of each row: the likeliest one, or one that is drawn.

        In a step that draws, texts that take the likeliest token have the temperature 0.
        """
        at, memory = self.at, self.network.memory
        made = memory["made"][: len(logits)]
        if not self.extents.sampled:
            return self._bound("argmax", planq.ArgmaxArgs(input=logits, output=made))
        settings = {name: at[name] for name in SETTINGS}
        args = planq.SampleArgs(
            input=logits,
            position=at["drawn position"],
            output=made,
            invalid=memory["invalid"],
            **settings,
        )
        return self._bound("sample", args)

    def _asked_rows(self) -> tuple[Tensor, Tensor, list[Launch]]:
        """Hidden state and residual of the tokens that are asked; what gathers them."""
        if self.extents.every:
            return self.at["hidden"], self.at["residual"], []
        memory, made = self.network.memory, list[Launch]()
        for name in ("hidden", "residual"):
            args = planq.EmbeddingArgs(
                table=memory[name],
                index=self.at["chosen"],
                output=memory[f"asked {name}"][: self.extents.asked],
                invalid=memory["invalid"],
            )
            made.append(self._bound("chosen rows", args))
        hidden, residual = (
            memory[f"asked {name}"][: self.extents.asked] for name in ("hidden", "residual")
        )
        return hidden, residual, made

    # --- Bound plans

    def _heads(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (tokens, heads, elements)."""
        sizes = self.network.sizes
        columns = self.network.columns["qkv"].values()
        counts = (sizes.heads, sizes.key_heads, sizes.key_heads)
        query, key, value = (
            self.at[name][:, own].reshape(-1, heads, sizes.head)
            for own, heads in zip(columns, counts, strict=True)
        )
        return query, key, value

    def _product(self, name: str, source: str, target: str) -> Launch:
        fed = self._fed(source)
        weight, output = self.network.weights[name], self.at[target]
        args = planq.LinearGgufArgs(weight=weight, output=output, **fed)
        return self._bound(name, args, fed, {name: output})

    def _products(self, layer: str, together: str) -> Launch:
        """Several of one input."""
        fed, names = self._fed("codes"), TOGETHER[together]
        weights = [self.network.weights[f"{layer}.{name}"] for name in names]
        args = planq.LinearGgufMergedArgs(weight=weights, output=self.at[together], **fed)
        results = {f"{layer}.{name}": self.at[name] for name in names}
        return self._bound(f"{layer}.{together}", args, fed, results)

    def _fed(self, source: str) -> dict[str, Tensor]:
        """A tensor as the input of a product, and its scales if it is codes."""
        fed = {"input": self.at[source]}
        if source in SCALES:
            fed["input_scale"] = self.at[SCALES[source]]
        return fed

    def _zeros(self, columns: int) -> Tensor:
        """As many rows of zeros as the step has."""
        return repeated(self.network.memory["zeros"][:, :columns], self.extents.rows)

    def _bound(
        self,
        name: str,
        args: object,
        fed: Mapping[str, Tensor] = NOTHING,
        results: Mapping[str, Tensor] = NOTHING,
    ) -> Launch:
        network = self.network
        bound = network.plans[name].bind(network.memory["workspace"], args)
        return Launch(name, bound, fed, results)
