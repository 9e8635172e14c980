"""Gemma 3 of planq's plans, on a host: products read the blocks of a GGUF file as they are.

A step takes some tokens of each of some sequences. Norms, codes, products, positions, attention and
gates are plans, selected once for any number of rows. A token's bits depend on its own sequence
alone.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

import planq
from gemma3_attention import BIT_EXACT, Attention, Cache, New

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Array = np.ndarray[Any, Any]
BLOCKS = {kind.value.upper(): kind for kind in planq.GgufType}
NOTHING: Mapping[str, Array] = MappingProxyType({})
# Layers of one input, which are one product; its columns are called as they are.
TOGETHER = {"qkv": ("attn_q", "attn_k", "attn_v"), "gate up": ("ffn_gate", "ffn_up")}
SCALES = {"codes": "scale", "inner codes": "inner scale"}
# Of codes of activations, as `linear_gguf` takes them.
CODES: dict[str, Any] = {
    "output_dtype": "int8",
    "scope": planq.Scope.group(32),
    "scale_dtype": "float32",
    "quotient": planq.Quotient.RATIO,
}
LINE = 64  # bytes that memory hands over together
# Of the layers that see the whole sequence, each is the last of so many; not in every file.
PATTERN, WINDOWED_BASE = 6, 10_000.0


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
    """Where a model comes from: an open file, for one."""

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
        window: How many tokens a windowed layer sees, the own one among them.
        epsilon: Of every norm.
        base: Of the positions in layers that see the whole sequence.
        windowed_base: In the others.
    """

    layers: int
    hidden: int
    heads: int
    key_heads: int
    head: int
    inner: int
    vocabulary: int
    window: int
    epsilon: float
    base: float
    windowed_base: float

    @classmethod
    def of(cls, files: Source) -> Sizes:
        """Those of a file."""
        found = files.metadata
        if found.get("general.architecture") != "gemma3":
            got = found.get("general.architecture")
            raise ValueError(f"{files.path}: architecture: expected 'gemma3', got {got!r}")

        def number(key: str) -> Any:
            return found[f"gemma3.{key}"]

        return cls(
            layers=number("block_count"),
            hidden=number("embedding_length"),
            heads=number("attention.head_count"),
            key_heads=number("attention.head_count_kv"),
            head=number("attention.key_length"),
            inner=number("feed_forward_length"),
            vocabulary=files.by_name["token_embd.weight"].shape[0],
            window=number("attention.sliding_window"),
            epsilon=number("attention.layer_norm_rms_epsilon"),
            base=number("rope.freq_base"),
            windowed_base=found.get("gemma3.rope.freq_base_swa", WINDOWED_BASE),
        )

    def windowed(self, layer: int) -> bool:
        """Whether a layer sees a window alone."""
        return (layer + 1) % PATTERN != 0


# --- Sequences


class Text:
    """A sequence: the tokens so far, their keys and values, and what digests need.

    Args:
        sizes: Of the model.
        most: How many tokens it may become.
        digested: Whether the results of all its products are digested.
    """

    def __init__(self, sizes: Sizes, most: int, *, digested: bool = False) -> None:
        self.length, self.most = 0, most
        self.caches = [Cache.of(sizes, most) for _ in range(sizes.layers)]
        self.digests = defaultdict[str, Any](hashlib.sha256) if digested else None

    def digest(self) -> str:
        """SHA-256 of those of its products, each over the rows of the tokens in their order."""
        found = {name: each.hexdigest() for name, each in (self.digests or {}).items()}
        return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


class Part(NamedTuple):
    """The next tokens of a sequence, and of how many of them, the last ones, logits are wanted."""

    text: Text
    ids: Sequence[int]
    asked: int = 1


# --- A step


class Launch(NamedTuple):
    """A bound plan; of products also where their input and their results are, by their names."""

    name: str
    run: Any
    fed: Mapping[str, Array] = NOTHING
    results: Mapping[str, Array] = NOTHING


class Step:
    """The launches for so many rows, bound once.

    Attributes:
        at: The first rows of each tensor.
        before: Of each layer, from the hidden state to queries, keys and values.
        after: Of each layer, from what heads have found to what the layer adds.
        head: From the hidden state to logits.
    """

    def __init__(self, model: Model, rows: int) -> None:
        self.model = model
        self.at = {name: tensor[:rows] for name, tensor in model.memory.items()}
        for name, parts in model.columns.items():
            self.at |= {part: self.at[name][:, columns] for part, columns in parts.items()}
        layers = range(model.sizes.layers)
        self.before = [self._before(f"blk.{i}", model.sizes.windowed(i)) for i in layers]
        self.after = [self._after(f"blk.{i}") for i in layers]
        normed = self._codes_of_norm("output_norm")
        self.head = [normed, self._product("token_embd", "codes", "logits")]

    def _before(self, layer: str, windowed: bool) -> list[Launch]:
        at, sizes = self.at, self.model.sizes
        turn = planq.RotaryEmbeddingArgs(
            query=at["attn_q"].reshape(-1, sizes.heads, sizes.head),
            key=at["attn_k"].reshape(-1, sizes.key_heads, sizes.head),
            cos_sin=self.model.tables[windowed],
            position=at["position"],
            query_weight=self.model.weights[f"{layer}.attn_q_norm.weight"],
            key_weight=self.model.weights[f"{layer}.attn_k_norm.weight"],
            eps=sizes.epsilon,
            invalid=self.model.invalid,
        )
        return [
            self._codes_of_norm(f"{layer}.attn_norm"),
            self._products(layer, "qkv"),
            self._bound("rotary", turn),
        ]

    def _after(self, layer: str) -> list[Launch]:
        at = self.at
        gate = planq.ActivationArgs(
            input=at["ffn_gate"],
            up=at["ffn_up"],
            output=at["inner codes"],
            scale=at["inner scale"],
        )
        return [
            self._product(f"{layer}.attn_output", "heads", "hidden"),
            self._norm(f"{layer}.post_attention_norm"),
            self._codes_of_norm(f"{layer}.ffn_norm"),
            self._products(layer, "gate up"),
            self._bound("gate", gate),
            self._product(f"{layer}.ffn_down", "inner codes", "hidden"),
            self._norm(f"{layer}.post_ffw_norm"),
        ]

    def _norm(self, name: str) -> Launch:
        """Of the hidden state, in place."""
        args = planq.RmsNormArgs(
            input=self.at["hidden"],
            weight=self.model.weights[f"{name}.weight"],
            output=self.at["hidden"],
            eps=self.model.sizes.epsilon,
        )
        return self._bound("norm", args)

    def _codes_of_norm(self, name: str) -> Launch:
        """Adds the hidden state to the residual, and makes codes of the sum's norm."""
        args = planq.RmsNormArgs(
            input=self.at["hidden"],
            weight=self.model.weights[f"{name}.weight"],
            residual=self.at["residual"],
            output=self.at["codes"],
            scale=self.at["scale"],
            eps=self.model.sizes.epsilon,
        )
        return self._bound("codes of norm", args)

    def _product(self, name: str, source: str, target: str) -> Launch:
        fed = self._fed(source)
        weight, output = self.model.weights[f"{name}.weight"], self.at[target]
        args = planq.LinearGgufArgs(weight=weight, output=output, **fed)
        return self._bound(name, args, fed, {name: output})

    def _products(self, layer: str, together: str) -> Launch:
        """Several of one input."""
        fed, names = self._fed("codes"), TOGETHER[together]
        weights = [self.model.weights[f"{layer}.{name}.weight"] for name in names]
        args = planq.LinearGgufMergedArgs(weight=weights, output=self.at[together], **fed)
        results = {f"{layer}.{name}": self.at[name] for name in names}
        return self._bound(f"{layer}.{together}", args, fed, results)

    def _fed(self, source: str) -> dict[str, Array]:
        """A tensor as the input of a product, and its scales if it is codes."""
        fed = {"input": self.at[source]}
        if source in SCALES:
            fed["input_scale"] = self.at[SCALES[source]]
        return fed

    def _bound(
        self,
        name: str,
        args: object,
        fed: Mapping[str, Array] = NOTHING,
        results: Mapping[str, Array] = NOTHING,
    ) -> Launch:
        bound = self.model.plans[name].bind(self.model.workspace, args)
        return Launch(name, bound, fed, results)


class Model:
    """Plans, weights and memory.

    Args:
        files: The model; its tensors are read here.
        context: The most tokens of a sequence.
        rows: The most tokens of a step.
        stream: Where plans run.

    Attributes:
        columns: Of tensors that several products write, those of each.
        digesting: The seconds that digests have taken.
        watch: Is told of every launch of products when it has run; None: nothing is.
    """

    def __init__(
        self, files: Source, *, context: int = 2048, rows: int = 512, stream: Any = planq.HOST
    ) -> None:
        self.sizes, self.stream = Sizes.of(files), stream
        self.context, self.rows = context, rows
        self.weights = in_one_piece({each.name: weight_of(files, each) for each in files.entries})
        chosen = self._descriptors(files, context)
        made = {desc: planq.Plan.select(stream, desc, BIT_EXACT) for desc in {*chosen.values()}}
        self.plans = {name: made[desc] for name, desc in chosen.items()}
        largest = max(self.plans.values(), key=lambda plan: plan.workspace_size())
        self.workspace = largest.empty_workspace(np)
        self.memory = {
            name: np.empty((rows, *shape), dtype)
            for name, (dtype, shape) in self._tensors().items()
        }
        self.columns = {name: self._columns(names) for name, names in TOGETHER.items()}
        self.invalid = np.zeros(1, np.int64)
        bases = {True: self.sizes.windowed_base, False: self.sizes.base}
        self.tables = {
            windowed: planq.positions.cos_sin(base, self.sizes.head, context)
            for windowed, base in bases.items()
        }
        self.attention = Attention(self.sizes, rows, stream)
        self._steps: dict[int, Step] = {}
        self.digesting = 0.0
        self.watch: Callable[[Launch], None] | None = None

    def step(self, parts: Sequence[Part]) -> Array:
        """Computes the next tokens of some sequences.

        Args:
            parts: Of each, no more tokens together than `rows`.

        Returns:
            Logits of the tokens that they were asked of, in the order of the parts; the next step
            overwrites them.
        """
        ids = np.concatenate([part.ids for part in parts])
        ends = np.cumsum([len(part.ids) for part in parts])
        rows = [slice(end - len(part.ids), end) for part, end in zip(parts, ends, strict=True)]
        step = self._bound_for(len(ids))
        self._begin(step, ids, parts, rows)
        for layer in range(self.sizes.layers):
            self._run(step.before[layer], parts, rows)
            for part, own in zip(parts, rows, strict=True):
                new = New(*(step.at[name][own] for name in TOGETHER["qkv"]))
                self.attention.attend(
                    new,
                    part.text.caches[layer],
                    part.text.length,
                    step.at["heads"][own],
                    windowed=self.sizes.windowed(layer),
                )
            self._run(step.after[layer], parts, rows)
        for part in parts:
            part.text.length += len(part.ids)
        return self._logits(step, parts, ends)

    def launches(self, rows: int) -> list[Launch]:
        """Those of a step of so many tokens, which attention and embeddings are no part of.

        The head's are those of one token.
        """
        step = self._bound_for(rows)
        layers = zip(step.before, step.after, strict=True)
        made = [launch for pair in layers for launches in pair for launch in launches]
        return made + self._bound_for(1).head

    def _begin(self, step: Step, ids: Array, parts: Sequence[Part], rows: Sequence[slice]) -> None:
        """Embeddings and positions."""
        hidden = step.at["hidden"]
        args = planq.GgufDequantizeArgs(
            input=self.weights["token_embd.weight"], index=ids, output=hidden
        )
        self.plans["embedding"].run(self.stream, None, args)
        hidden *= np.float32(np.sqrt(self.sizes.hidden))
        step.at["residual"].fill(0)
        for part, own in zip(parts, rows, strict=True):
            most = min(part.text.most, self.context)
            if part.text.length + len(part.ids) > most:
                raise ValueError(f"a sequence of {most} tokens has no room for more")
            step.at["position"][own] = part.text.length + np.arange(len(part.ids))

    def _logits(self, step: Step, parts: Sequence[Part], ends: Array) -> Array:
        """Of the tokens that they are asked of."""
        places = [np.arange(end - part.asked, end) for part, end in zip(parts, ends, strict=True)]
        chosen = np.concatenate(places)
        if not len(chosen):
            return self.memory["logits"][:0]
        head = self._bound_for(len(chosen))
        for name in ("hidden", "residual"):
            head.at[name][:] = step.at[name][chosen]
        counts = np.cumsum([part.asked for part in parts])
        rows = [slice(end - part.asked, end) for part, end in zip(parts, counts, strict=True)]
        self._run(head.head, parts, rows)
        return head.at["logits"]

    def _run(
        self, launches: Iterable[Launch], parts: Sequence[Part], rows: Sequence[slice]
    ) -> None:
        """Runs launches, and digests the results of products."""
        for launch in launches:
            launch.run(self.stream)
            if launch.results and self.watch:
                self.watch(launch)
            start = time.perf_counter()
            for name, result in launch.results.items():
                for part, own in zip(parts, rows, strict=True):
                    if part.text.digests is not None:
                        part.text.digests[name].update(np.ascontiguousarray(result[own]))
            self.digesting += time.perf_counter() - start

    def _bound_for(self, rows: int) -> Step:
        if rows > self.rows:
            raise ValueError(f"a step takes {self.rows} tokens at most, got {rows}")
        if rows not in self._steps:
            self._steps[rows] = Step(self, rows)
        return self._steps[rows]

    def _columns(self, names: Sequence[str]) -> dict[str, slice]:
        """Of products that are one: those of a layer are as wide as those of the first."""
        widths = [len(self.weights[f"blk.0.{name}.weight"]) for name in names]
        ends = itertools.accumulate(widths)
        return {
            name: slice(end - width, end)
            for name, width, end in zip(names, widths, ends, strict=True)
        }

    def _tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Those of a step: type, and shape of a row."""
        sizes = self.sizes
        keys = sizes.key_heads * sizes.head
        return {
            "hidden": ("float32", (sizes.hidden,)),
            "residual": ("float32", (sizes.hidden,)),
            "codes": ("int8", (sizes.hidden,)),
            "scale": ("float32", (sizes.hidden // 32,)),
            "qkv": ("float32", (sizes.heads * sizes.head + 2 * keys,)),
            "position": ("int64", ()),
            "heads": ("float32", (sizes.heads * sizes.head,)),
            "gate up": ("float32", (2 * sizes.inner,)),
            "inner codes": ("int8", (sizes.inner,)),
            "inner scale": ("float32", (sizes.inner // 32,)),
            "logits": ("float32", (sizes.vocabulary,)),
        }

    def _descriptors(self, files: Source, context: int) -> dict[str, planq.Descriptor]:
        """One for each product, and one for each other kind of launch."""
        sizes, tokens = self.sizes, planq.Dim("tokens", max=self.rows)
        norm = planq.RmsNormDescriptor(
            shape=(tokens, sizes.hidden), input_dtype="float32", weight_dtype="float32"
        )
        together = {
            f"blk.{layer}.{name}": [f"blk.{layer}.{each}.weight" for each in names]
            for layer in range(sizes.layers)
            for name, names in TOGETHER.items()
        }
        products: dict[str, planq.Descriptor] = {
            name: planq.LinearGgufMergedDescriptor(
                input_shape=(tokens, sizes.hidden),
                weight_shapes=tuple(self.weights[each].shape for each in names),
                types=tuple(BLOCKS[files.by_name[each].dtype] for each in names),
                input_dtype="int8",
                output_dtype="float32",
            )
            for name, names in together.items()
        }
        merged = {each for names in together.values() for each in names}
        products |= {
            entry.name.removesuffix(".weight"): planq.LinearGgufDescriptor(
                input_shape=(tokens, entry.shape[1]),
                weight_shape=entry.shape,
                type=BLOCKS[entry.dtype],
                # Heads become codes inside of their product.
                input_dtype="float32" if "attn_output" in entry.name else "int8",
                output_dtype="float32",
            )
            for entry in files.entries
            if entry.dtype in BLOCKS and entry.name not in merged
        }
        return products | {
            "embedding": planq.GgufDequantizeDescriptor(
                shape=(tokens, sizes.hidden),
                type=BLOCKS[files.by_name["token_embd.weight"].dtype],
                output_dtype="float32",
                table_rows=sizes.vocabulary,
                index_dtype="int64",
            ),
            "norm": norm,
            "codes of norm": replace(norm, residual_dtype="float32", **CODES),
            "rotary": planq.RotaryEmbeddingDescriptor(
                query_shape=(tokens, sizes.heads, sizes.head),
                key_heads=sizes.key_heads,
                dtype="float32",
                max_position=context,
                norm_weight_dtype="float32",
            ),
            "gate": planq.ActivationDescriptor(
                shape=(tokens, sizes.inner),
                function="gelu_tanh",
                gated=True,
                layout="separate",
                input_dtype="float32",
                **CODES,
            ),
        }


def weight_of(files: Source, entry: Entry) -> Array:
    """A tensor: rows of blocks as bytes, or float32."""
    data = files.tensor(entry)
    if entry.dtype in BLOCKS:
        return data.reshape(entry.shape[0], -1)
    if entry.dtype != "F32":
        expected = "F32 or a type of blocks that planq has"
        got = f"{entry.dtype} {list(entry.shape)}"
        raise ValueError(f"tensor {entry.name!r}: expected {expected}, got {got}")
    return data.view(np.float32).reshape(entry.shape)


def in_one_piece(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies in one piece of memory, which is so large that NumPy asks for large pages.

    Small pages cost a third of the speed of a single token's products.
    """
    sizes = [-(-array.nbytes // LINE) * LINE for array in arrays.values()]
    room = np.empty(sum(sizes), np.uint8)
    placed = {}
    for (name, array), end, size in zip(
        arrays.items(), itertools.accumulate(sizes), sizes, strict=True
    ):
        own = room[end - size :][: array.nbytes].view(array.dtype).reshape(array.shape)
        own[...] = array
        placed[name] = own
    return placed
