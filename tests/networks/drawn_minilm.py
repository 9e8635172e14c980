"""Encoders of the shape of MiniLM's whose weights and sentences are drawn, for any machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from cli import demo_model
from minilm import SCHEMES, Encoder, Limits, Sizes, digest_of
from planq.networks import machine_of

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = np.ndarray[Any, Any]
# Those of MiniLM, but for layers and words.
SIZES = Sizes(
    layers=2,
    width=384,
    heads=12,
    inner=1536,
    words=len(demo_model.WORDS),
    places=demo_model.PLACES,
    epsilon=1e-12,
)
LIMITS = Limits(sentences=48, tokens=1200, longest=demo_model.PLACES)


def encoder(
    device: str, scheme: str, limits: Limits = LIMITS, threads: int | None = None
) -> Encoder:
    """One on a machine of its own."""
    tensors = demo_model.tensors(SIZES.width, SIZES.inner, SIZES.layers)
    return Encoder(tensors, SIZES, machine_of(device, threads), scheme, limits)


def sentences(count: int) -> list[list[int]]:
    """Of one token to as many as there may be."""
    drawn = np.random.default_rng(3)
    lengths = [1, LIMITS.longest, *drawn.integers(1, LIMITS.longest + 1, count - 2)]
    return [drawn.integers(0, SIZES.words, length).tolist() for length in lengths]


def in_pieces(made: Encoder, tokens: Sequence[Sequence[int]], at_a_time: int) -> Array:
    """The embeddings of sentences, so many at a time."""
    pieces = range(0, len(tokens), at_a_time)
    return np.concatenate([made.embed(tokens[i : i + at_a_time]) for i in pieces])


def digests() -> dict[str, str]:
    """Of each scheme, what a host makes of sentences."""
    return {each: digest_of(encoder("host", each).embed(sentences(12))) for each in SCHEMES}


if __name__ == "__main__":
    sys.stdout.write(" ".join(digests().values()))
