"""A decoder layer in W8A8, of planq's plans: one digest on a host and on a GPU, in any batch.

    python decode_layer.py [--fused] [--small] [--tokens 16] [--device cuda]

The layer has the sizes of Llama 3 8B and random weights; with --small it takes a second on a host.
Each token of a step is the next of a sequence of its own, which has some keys in the cache already.
The step runs on the host and, where there is one, on a GPU: there its launches are one CUDA graph.
Then some tokens run again, each alone. Exit status: 0 if all digests agree.

Norms, quantization, products, positions, cache, attention and gate are plans, which share one
arena. With --fused, norms and gate leave codes themselves: fewer launches, and the same digests.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import planq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Launch = Callable[[Any], None]

EPSILON, BASE = 1e-5, 500_000.0
BIT_EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, batch_invariant=True)
BF16, INT8 = torch.bfloat16, torch.int8


@dataclass(frozen=True)
class Sizes:
    """Of a layer, and of the steps that it is made for.

    Attributes:
        hidden: Elements of a token.
        heads: Heads of queries.
        key_heads: Heads of keys and of values.
        head: Elements of a head.
        inner: Elements between gate and down.
        tokens: The most of a step.
        context: The most keys that a sequence has after it.
        page: How many tokens a page of the cache holds.
    """

    hidden: int = 4096
    heads: int = 32
    key_heads: int = 8
    head: int = 128
    inner: int = 14336
    tokens: int = 16
    context: int = 48
    page: int = 16

    @property
    def pages(self) -> int:
        """Those of a sequence."""
        return -(-self.context // self.page)


SMALL = Sizes(hidden=256, heads=4, key_heads=2, head=32, inner=512)


# --- What does not change: weights, plans, memory


class Drawn:
    """Random numbers that every machine draws alike: integers, times powers of two."""

    def __init__(self, device: str) -> None:
        self.rng, self.device = np.random.default_rng(0), device

    def codes(self, rows: int, columns: int) -> torch.Tensor:
        return torch.from_numpy(self.rng.integers(-127, 128, (rows, columns), np.int8)).to(
            self.device
        )

    def floats(self, low: int, high: int, unit: float, *shape: int) -> torch.Tensor:
        whole = self.rng.integers(low, high, shape, np.int16).astype(np.float32)
        return torch.from_numpy(whole * np.float32(unit)).to(self.device)


def weights_of(sizes: Sizes, device: str) -> dict[str, torch.Tensor]:
    """Codes and scales of the products, weights of the norms, the table of positions."""
    drawn, query = Drawn(device), sizes.heads * sizes.head
    shapes = {
        "qkv": (query + 2 * sizes.key_heads * sizes.head, sizes.hidden),
        "o": (sizes.hidden, query),
        "gate_up": (2 * sizes.inner, sizes.hidden),
        "down": (sizes.hidden, sizes.inner),
    }
    made = {}
    for name, (rows, columns) in shapes.items():
        made[name] = drawn.codes(rows, columns)
        # Results are about as large as what is multiplied.
        unit = 2.0 ** -round(np.log2(128 * 73 * np.sqrt(columns)))
        made[f"{name}.scale"] = drawn.floats(96, 160, unit, rows)
    for name in ("attention.norm", "feed_forward.norm"):
        made[name] = drawn.floats(96, 160, 2**-7, sizes.hidden).to(BF16)
    table = planq.positions.cos_sin(BASE, sizes.head, sizes.context)
    made["cos_sin"] = torch.from_numpy(table).to(device)
    return made


def descriptors(sizes: Sizes, fused: bool) -> dict[str, planq.Descriptor]:
    """One for each kind of launch of a step, of any number of tokens."""
    tokens = planq.Dim("tokens", max=sizes.tokens)
    hidden, inner, query = sizes.hidden, sizes.inner, sizes.heads * sizes.head
    key = sizes.key_heads * sizes.head
    results = "int8" if fused else "bfloat16"  # of norms and of the gate

    def quantize(width: int) -> planq.Descriptor:
        return planq.DynamicRangeQuantizeDescriptor(
            shape=(tokens, width), input_dtype="bfloat16", output_dtype="int8"
        )

    def product(rows: int, columns: int) -> planq.Descriptor:
        return planq.LinearW8A8Descriptor(
            input_shape=(tokens, columns), weight_shape=(rows, columns), output_dtype="bfloat16"
        )

    return {
        "norm": planq.RmsNormDescriptor(
            shape=(tokens, hidden),
            input_dtype="bfloat16",
            weight_dtype="bfloat16",
            output_dtype=results,
            residual_dtype="bfloat16",
        ),
        "quantize hidden": quantize(hidden),
        "qkv": product(query + 2 * key, hidden),
        "rotary": planq.RotaryEmbeddingDescriptor(
            query_shape=(tokens, sizes.heads, sizes.head),
            key_heads=sizes.key_heads,
            dtype="bfloat16",
            max_position=sizes.context,
        ),
        "append": planq.KvCacheAppendDescriptor(
            key_shape=(tokens, sizes.key_heads, sizes.head),
            value_dim=sizes.head,
            pages=sizes.tokens * sizes.pages,
            page_size=sizes.page,
            input_dtype="bfloat16",
        ),
        "attention": planq.AttentionDescriptor(
            query_shape=(tokens, sizes.heads, sizes.head),
            key_heads=sizes.key_heads,
            batch=sizes.tokens,
            max_query=1,
            max_key=sizes.context,
            pages=sizes.tokens * sizes.pages,
            page_size=sizes.page,
            input_dtype="bfloat16",
            causal=True,
        ),
        "quantize heads": quantize(query),
        "o": product(hidden, query),
        "gate_up": product(2 * inner, hidden),
        "gate": planq.ActivationDescriptor(
            shape=(tokens, inner),
            function="silu",
            gated=True,
            input_dtype="bfloat16",
            output_dtype=results,
        ),
        "quantize inner": quantize(inner),
        "down": product(hidden, inner),
    }


class Arena:
    """One memory for every tensor of a step and for the workspace of every plan."""

    def __init__(self, sizes: Sizes, workspace: int, device: str) -> None:
        query, key = sizes.heads * sizes.head, sizes.key_heads * sizes.head
        rows: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "hidden": (BF16, (sizes.hidden,)),
            "residual": (BF16, (sizes.hidden,)),
            "position": (torch.int64, ()),
            "slot": (torch.int64, ()),
            "normed": (BF16, (sizes.hidden,)),
            "hidden codes": (INT8, (sizes.hidden,)),
            "qkv": (BF16, (query + 2 * key,)),
            "heads": (BF16, (query,)),
            "heads codes": (INT8, (query,)),
            "gate_up": (BF16, (2 * sizes.inner,)),
            "inner": (BF16, (sizes.inner,)),
            "inner codes": (INT8, (sizes.inner,)),
            "scale": (torch.float32, ()),
        }
        shapes = {name: (dtype, (sizes.tokens, *row)) for name, (dtype, row) in rows.items()}
        shapes |= {
            "query start": (torch.int32, (sizes.tokens + 1,)),
            "key length": (torch.int32, (sizes.tokens,)),
            "block table": (torch.int32, (sizes.tokens, sizes.pages)),
            "invalid": (torch.int64, (1,)),
            "workspace": (torch.uint8, (workspace,)),
        }
        self.rows = tuple(rows)
        places, end = {}, 0
        for name, (dtype, shape) in shapes.items():
            size = int(np.prod(shape)) * dtype.itemsize
            places[name] = slice(end, end + size)
            end += size + -size % planq.WORKSPACE_ALIGNMENT
        whole = torch.zeros(end + planq.WORKSPACE_ALIGNMENT, dtype=torch.uint8, device=device)
        aligned = whole[-whole.data_ptr() % planq.WORKSPACE_ALIGNMENT :]
        self.tensors = {
            name: aligned[places[name]].view(dtype).view(shape)
            for name, (dtype, shape) in shapes.items()
        }

    def first(self, rows: int) -> dict[str, torch.Tensor]:
        """The first rows of each tensor, and the whole of what has none."""
        return self.tensors | {name: self.tensors[name][:rows] for name in self.rows}


# --- A step: its launches for a number of tokens


class Layer:
    """A layer on a device: plans, weights, arena, and the pages of keys and values."""

    def __init__(self, sizes: Sizes, device: str, fused: bool = False) -> None:
        self.sizes, self.device, self.fused = sizes, device, fused
        self.plans = {
            name: planq.Plan.select(self.stream(), desc, BIT_EXACT)
            for name, desc in descriptors(sizes, fused).items()
        }
        self.weights = weights_of(sizes, device)
        workspace = max(plan.workspace_size() for plan in self.plans.values())
        self.arena = Arena(sizes, workspace, device)
        pages = sizes.tokens * sizes.pages, sizes.page, sizes.key_heads, sizes.head
        self.keys, self.values = (torch.zeros(pages, dtype=BF16, device=device) for _ in range(2))

    def stream(self) -> Any:
        """Where launches go; during a capture that is another stream than before."""
        return planq.HOST if self.device == "cpu" else torch.cuda.current_stream()

    def launches(self, rows: int) -> list[Launch]:
        """Those of a step, in order."""
        return [*self.before_attention(rows), self.attention(rows), *self.after_attention(rows)]

    def before_attention(self, rows: int) -> list[Launch]:
        """From the hidden state to queries, and to keys and values in the cache."""
        at = self.arena.first(rows)
        query, key, value = self.heads_of(at)
        turn = planq.RotaryEmbeddingArgs(
            query=query,
            key=key,
            cos_sin=self.weights["cos_sin"],
            position=at["position"],
            invalid=at["invalid"],
        )
        append = planq.KvCacheAppendArgs(
            key=key,
            value=value,
            key_cache=self.keys,
            value_cache=self.values,
            slot=at["slot"],
            invalid=at["invalid"],
        )
        return [
            *self.normed(at, "attention.norm"),
            self.product(at, "qkv", "hidden codes", "qkv"),
            self._bound(at, "rotary", turn),
            self._bound(at, "append", append),
        ]

    def attention(self, rows: int) -> Launch:
        """From queries to what the heads find in the cache."""
        at, sizes = self.arena.first(rows), self.sizes
        query, _, _ = self.heads_of(at)
        args = planq.AttentionArgs(
            query=query,
            key_cache=self.keys,
            value_cache=self.values,
            output=at["heads"].view(rows, sizes.heads, sizes.head),
            query_start=at["query start"],
            key_length=at["key length"],
            block_table=at["block table"],
            scale=sizes.head**-0.5,
        )
        return self._bound(at, "attention", args)

    def after_attention(self, rows: int) -> list[Launch]:
        """From what the heads have found to what the layer adds to the residual."""
        at = self.arena.first(rows)
        return [
            self.quantized(at, "heads", "heads"),
            self.product(at, "o", "heads codes", "hidden"),
            *self.normed(at, "feed_forward.norm"),
            self.product(at, "gate_up", "hidden codes", "gate_up"),
            *self.gated(at),
            self.product(at, "down", "inner codes", "hidden"),
        ]

    def heads_of(self, at: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of the tokens, each (tokens, heads, D)."""
        sizes = self.sizes
        heads = at["qkv"].view(len(at["qkv"]), -1, sizes.head)
        return heads.split_with_sizes([sizes.heads, sizes.key_heads, sizes.key_heads], 1)

    def normed(self, at: dict[str, torch.Tensor], weight: str) -> list[Launch]:
        """Adds the hidden state to the residual, and makes codes of the sum's norm."""
        norm = planq.RmsNormArgs(
            input=at["hidden"],
            weight=self.weights[weight],
            residual=at["residual"],
            eps=EPSILON,
            **self._results(at, "normed", "hidden"),
        )
        launch = self._bound(at, "norm", norm)
        return [launch] if self.fused else [launch, self.quantized(at, "hidden", "normed")]

    def gated(self, at: dict[str, torch.Tensor]) -> list[Launch]:
        """Makes codes of the up half times SiLU of the gate."""
        gate = planq.ActivationArgs(input=at["gate_up"], **self._results(at, "inner", "inner"))
        launch = self._bound(at, "gate", gate)
        return [launch] if self.fused else [launch, self.quantized(at, "inner", "inner")]

    def _results(self, at: dict[str, torch.Tensor], name: str, width: str) -> dict[str, Any]:
        """Where results go: to codes and their scales, or to floating numbers first."""
        if self.fused:
            return {"output": at[f"{width} codes"], "scale": at["scale"]}
        return {"output": at[name]}

    def quantized(self, at: dict[str, torch.Tensor], width: str, name: str) -> Launch:
        args = planq.DynamicRangeQuantizeArgs(
            input=at[name], output=at[f"{width} codes"], scale=at["scale"]
        )
        return self._bound(at, f"quantize {width}", args)

    def product(self, at: dict[str, torch.Tensor], name: str, codes: str, output: str) -> Launch:
        args = planq.LinearW8A8Args(
            input=at[codes],
            weight=self.weights[name],
            output=at[output],
            input_scale=at["scale"],
            weight_scale=self.weights[f"{name}.scale"],
        )
        return self._bound(at, name, args)

    def _bound(self, at: dict[str, torch.Tensor], name: str, args: object) -> Launch:
        return self.plans[name].bind(at["workspace"], args)

    def captured(self, launches: list[Launch]) -> Callable[[], None]:
        """What runs them all: on a GPU a CUDA graph."""
        if self.device == "cpu":
            return lambda: run_all(launches, planq.HOST)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run_all(launches, self.stream())
        replay: Callable[[], None] = graph.replay
        return replay


def run_all(launches: Iterable[Launch], stream: Any) -> None:
    for launch in launches:
        launch(stream)


# --- Tokens, and what becomes of them


class Tokens(NamedTuple):
    """The next token of each of some sequences, and the keys and values before it."""

    hidden: torch.Tensor
    residual: torch.Tensor
    lengths: list[int]
    keys: torch.Tensor
    values: torch.Tensor


def tokens_of(sizes: Sizes) -> Tokens:
    """Sequences of many lengths."""
    drawn = Drawn("cpu")
    drawn.rng = np.random.default_rng(1)
    state = sizes.tokens, sizes.hidden
    cache = sizes.tokens, sizes.context, sizes.key_heads, sizes.head
    hidden, residual = (drawn.floats(-128, 129, 2**-6, *state).to(BF16) for _ in range(2))
    keys, values = (drawn.floats(-128, 129, 2**-6, *cache).to(BF16) for _ in range(2))
    lengths = [1 + 37 * i % sizes.context for i in range(sizes.tokens)]
    return Tokens(hidden, residual, lengths, keys, values)


class Step:
    """Steps of so many tokens, as an engine has them: captured once, run for any sequences."""

    def __init__(self, layer: Layer, rows: int) -> None:
        self.layer, self.rows = layer, rows
        self.launch = layer.captured(layer.launches(rows))

    def run(self, tokens: Tokens, sequences: list[int]) -> list[str]:
        """A digest for each of these sequences: of its token's results."""
        layer, at = self.layer, self.layer.arena.first(self.rows)
        lengths = torch.tensor([tokens.lengths[i] for i in sequences])
        tables = torch.tensor(self._fill_pages(tokens, sequences))
        at["hidden"].copy_(tokens.hidden[sequences])
        at["residual"].copy_(tokens.residual[sequences])
        last, page = lengths - 1, layer.sizes.page
        pages = tables[range(self.rows), last // page]
        at["position"].copy_(last)
        at["slot"].copy_(pages * page + last % page)
        # Sequences that the step does not have are behind its last token, without keys.
        starts = torch.arange(len(at["query start"])).clamp(max=self.rows)
        at["query start"].copy_(starts)
        at["key length"].zero_()[: self.rows].copy_(lengths)
        at["block table"][: self.rows].copy_(tables)
        self.launch()
        results = zip(at["hidden"].cpu(), at["residual"].cpu(), strict=True)
        return [digest_of(both) for both in results]

    def _fill_pages(self, tokens: Tokens, sequences: list[int]) -> list[list[int]]:
        """Puts keys and values of earlier tokens into pages, the last ones first; their numbers."""
        sizes, free = self.layer.sizes, itertools.count(len(self.layer.keys) - 1, -1)
        tables = [[next(free) for _ in range(sizes.pages)] for _ in sequences]
        for cache, given in ((self.layer.keys, tokens.keys), (self.layer.values, tokens.values)):
            for table, sequence in zip(tables, sequences, strict=True):
                for page, part in zip(table, torch.split(given[sequence], sizes.page), strict=True):
                    cache[page, : len(part)] = part.to(cache.device)
        return tables


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """SHA-256 of their bits."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def digests(layer: Layer, alone: list[int]) -> tuple[list[str], list[str]]:
    """Of every token of one step, and of some that are computed alone."""
    sizes, tokens = layer.sizes, tokens_of(layer.sizes)
    together = Step(layer, sizes.tokens).run(tokens, list(range(sizes.tokens)))
    single = Step(layer, 1)
    return together, [single.run(tokens, [i])[0] for i in alone]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run a decoder layer in W8A8.")
    parser.add_argument("--fused", action="store_true", help="codes in the launch of a norm")
    parser.add_argument("--small", action="store_true", help="a layer that takes a second")
    parser.add_argument("--tokens", type=int, default=Sizes.tokens, help="how many a step has")
    parser.add_argument("--device", action="append", choices=("cpu", "cuda"), help="by default all")
    given = parser.parse_args(words)
    sizes = replace(SMALL if given.small else Sizes(), tokens=given.tokens)
    devices = given.device or ["cpu", "cuda"][: 1 + torch.cuda.is_available()]
    alone = sorted({0, sizes.tokens // 2, sizes.tokens - 1})
    found, right = set(), True
    for device in devices:
        together, single = digests(Layer(sizes, device, given.fused), alone)
        found.add(whole := hashlib.sha256("".join(together).encode()).hexdigest())
        print(f"{device}, {sizes.tokens} tokens: {whole}")
        for token, digest in zip(alone, single, strict=True):
            same = digest == together[token]
            right = right and same
            word = "the same" if same else "OTHER BITS"
            print(f"{device}, token {token} alone: {digest[:16]}, {word} as among all")
    return 0 if right and len(found) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
