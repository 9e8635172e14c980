"""Whether Gemma 3 of plans has one digest however it runs, and is near a program in float32."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import planq
from planq.networks.gemma3 import Gemma3, Limits, Part, Sizes
from planq.networks.gemma3.plans import BIT_EXACT
from planq.networks.gemma3.schedule import completed
from planq.networks.gemma3.sizes import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planq.checkpoint import GgufFiles
    from planq.networks import Machine
    from planq.networks.tokenizer import Tokenizer

Array = np.ndarray[Any, Any]
# What int8 activations may cost, in log-probabilities of the ten likeliest tokens.
MOST_RMS, LEAST_EQUAL, LIKELIEST = 0.2, 0.95, 10
# How many texts at a time, and how many tokens of a prompt in a step; the last text begins first.
WAYS: dict[str, tuple[int, int | None]] = {
    "each alone": (1, None),
    "each alone, 1 token at a time": (1, 1),
    "7 at a time, 3 tokens of a prompt in a step": (7, 3),
}
# Tokens of a step that have logits.
ASKED = 128
PROMPTS = (
    "Water boils at",
    "def fibonacci(n):\n",
    "The three primary colors are",
    "1, 2, 3, 4, 5, 6,",
    "The opposite of hot is",
    "Monday, Tuesday, Wednesday,",
    "She sells sea shells by the",
    "<start_of_turn>user\nWhat is the capital of Italy?<end_of_turn>\n<start_of_turn>model\n",
    "A B C D E F G",
    "The capital of France is",
    "Once upon a time, there was a",
    "The sun rises in the east and sets in the",
    "In 1969, the first man on the",
    "import numpy as np\n\nx = np.",
    "SELECT name, age FROM",
    "<html>\n<head>\n  <title>",
    "Dear Sir or Madam,\n\n",
    "The quick brown fox jumps over",
    "To be, or not to be, that is",
    "La capitale de l'Espagne est",
    "Der Hund läuft durch den",
    "日本の首都は",
    "Столица России —",
    "Ingredients:\n- 2 eggs\n- 100 g of flour\n-",
    "Q: How many legs does a spider have?\nA:",
    "The chemical symbol of gold is",
    "The largest planet of the solar system is",
    "Shakespeare wrote Romeo and",
    "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =",
    "#include <stdio.h>\n\nint main(",
    "🙂 means happy, 🙁 means",
    "It was a bright cold day in April, and the clocks were striking",
)


class Made(NamedTuple):
    """A text: its prompt, and the tokens after it."""

    prompt: list[int]
    after: list[int]

    @property
    def fed(self) -> list[int]:
        """What the network reads; the last token was only made."""
        return [*self.prompt, *self.after[:-1]]


def logits_of(network: Gemma3, made: Made) -> Array:
    """Of each token that was made, computed in one step."""
    text = network.text(len(made.fed))
    found = network.step([Part(text, made.fed, len(made.after))], logits=True).logits()
    text.release()
    return found


# --- The program in float32


class Floating:
    """The model in float32 of NumPy, one layer's weights at a time."""

    def __init__(self, files: GgufFiles) -> None:
        self.files, self.sizes = files, Sizes.of(files)

    def weight(self, name: str) -> Array:
        """A tensor as float32."""
        entry = self.files.by_name[f"{name}.weight"]
        data = self.files.tensor(entry)
        if entry.dtype not in BLOCKS:
            return data.view(np.float32).reshape(entry.shape)
        desc = planq.GgufDequantizeDescriptor(
            shape=entry.shape, type=BLOCKS[entry.dtype], output_dtype="float32"
        )
        plan = planq.Plan.select(planq.HOST, desc, BIT_EXACT)
        made = plan.empty_outputs(np)
        blocks = data.reshape(entry.shape[0], -1)
        plan.run(planq.HOST, None, planq.GgufDequantizeArgs(input=blocks, **made))
        found: Array = made["output"]
        return found

    def logits(self, texts: Sequence[Made]) -> Iterator[Array]:
        """Of each token that was made."""
        ends = np.cumsum([len(each.fed) for each in texts])
        rows = [slice(end - len(each.fed), end) for each, end in zip(texts, ends, strict=True)]
        table = self.weight("token_embd")
        ids = np.concatenate([each.fed for each in texts])
        x = table[ids] * np.float32(np.sqrt(self.sizes.hidden))
        for layer in range(self.sizes.layers):
            x = self._layer(x, layer, rows)
        x = self._norm(x, "output_norm")
        for each, own in zip(texts, rows, strict=True):
            yield x[own][-len(each.after) :] @ table.T

    def _layer(self, x: Array, layer: int, rows: Sequence[slice]) -> Array:
        name, sizes = f"blk.{layer}", self.sizes
        y = self._norm(x, f"{name}.attn_norm")
        query, key, value = (
            (y @ self.weight(f"{name}.attn_{side}").T).reshape(len(x), -1, sizes.head)
            for side in "qkv"
        )
        query, key = (
            self._norm(query, f"{name}.attn_q_norm"),
            self._norm(key, f"{name}.attn_k_norm"),
        )
        found = np.concatenate(
            [self._attention(query[own], key[own], value[own], layer) for own in rows]
        )
        y = found @ self.weight(f"{name}.attn_output").T
        x = x + self._norm(y, f"{name}.post_attention_norm")
        y = self._norm(x, f"{name}.ffn_norm")
        gate, up = (y @ self.weight(f"{name}.ffn_{side}").T for side in ("gate", "up"))
        inner = np.float32(0.7978845608) * (gate + np.float32(0.044715) * gate**3)
        gate = np.float32(0.5) * gate * (1 + np.tanh(inner))
        y = (gate * up) @ self.weight(f"{name}.ffn_down").T
        return x + self._norm(y, f"{name}.post_ffw_norm")

    def _norm(self, x: Array, name: str) -> Array:
        mean = (x * x).mean(axis=-1, keepdims=True)
        root: Array = np.sqrt(mean + np.float32(self.sizes.epsilon))
        return x / root * self.weight(name)

    def _attention(self, query: Array, key: Array, value: Array, layer: int) -> Array:
        """Of one text; all are (tokens, heads, D)."""
        sizes, places = self.sizes, np.arange(len(query))
        distance = places[:, None] - places
        hidden = distance < 0
        if sizes.windowed(layer):
            hidden |= distance >= sizes.window
        query, key = self._turned(query, layer), self._turned(key, layer)
        found = np.empty_like(query)
        for head in range(sizes.heads):
            shared = head * sizes.key_heads // sizes.heads
            scores = query[:, head] @ key[:, shared].T / np.float32(np.sqrt(sizes.head))
            powers = np.exp(np.where(hidden, -np.inf, scores - scores.max(axis=1, keepdims=True)))
            found[:, head] = powers @ value[:, shared] / powers.sum(axis=1, keepdims=True)
        return found.reshape(len(query), -1)

    def _turned(self, heads: Array, layer: int) -> Array:
        """By the positions: column i and column i + D / 2 are a complex number."""
        half = self.sizes.head // 2
        base = self.sizes.windowed_base if self.sizes.windowed(layer) else self.sizes.base
        angles = np.arange(len(heads))[:, None] * base ** -(np.arange(half) / half)
        turn = np.exp(1j * angles)[:, None].astype(np.complex64)
        pairs = (heads[..., :half] + 1j * heads[..., half:]).astype(np.complex64) * turn
        return np.concatenate([pairs.real, pairs.imag], axis=-1)


class Nearness(NamedTuple):
    """Of the log-probabilities of the likeliest tokens to those in float32.

    Attributes:
        squares: Of their differences.
        equal: Whether the likeliest token is the same, for each position.
    """

    squares: Array
    equal: Array

    @classmethod
    def of(cls, found: Array, exact: Array) -> Nearness:
        """Of logits: a row for each position."""
        likeliest = np.argpartition(-exact, LIKELIEST, axis=1)[:, :LIKELIEST]
        ours, theirs = (
            np.take_along_axis(log_probabilities(each), likeliest, axis=1)
            for each in (found, exact)
        )
        return cls((ours - theirs).ravel() ** 2, found.argmax(axis=1) == exact.argmax(axis=1))


def log_probabilities(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    found: Array = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    return found


# --- Both


def main(files: GgufFiles, machine: Machine, tokenizer: Tokenizer, count: int) -> int:
    """Prints what was compared; 0 if all is as it should be."""
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    longest = max(map(len, prompts)) + count
    limits = Limits(texts=len(prompts), asked=max(ASKED, longest), context=longest)
    network = Gemma3(files, machine, limits)
    together = completed(network, prompts, count, batch=len(prompts))
    total = hashlib.sha256("".join(each.digest for each in together).encode()).hexdigest()
    print(f"{len(prompts)} texts, {count} tokens made of each, in the same steps: {total}")
    same = True
    for way, (batch, chunk) in WAYS.items():
        found = completed(network, prompts[::-1], count, batch=batch, chunk=chunk)[::-1]
        alike = sum(a == b for a, b in zip(found, together, strict=True))
        print(f"{way}: {alike} of {len(prompts)} have the same digest")
        same = same and alike == len(prompts)
    texts = [Made(prompt, each.tokens) for prompt, each in zip(prompts, together, strict=True)]
    exact = Floating(files).logits(texts)
    near = [Nearness.of(logits_of(network, a), b) for a, b in zip(texts, exact, strict=True)]
    rms = float(np.sqrt(np.concatenate([each.squares for each in near]).mean()))
    equal = float(np.concatenate([each.equal for each in near]).mean())
    print(f"float32: rms {rms:.3f} of the {LIKELIEST} likeliest, {equal:.1%} of the first equal")
    return 0 if same and rms <= MOST_RMS and equal >= LEAST_EQUAL else 1
