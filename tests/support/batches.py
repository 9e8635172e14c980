"""The ways in which a network is given the same texts, and the digests of the texts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planq.networks.gemma3 import GREEDY, Sampling
from planq.networks.gemma3.schedule import completed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planq.networks.gemma3 import Gemma3


class Way(NamedTuple):
    """How texts are computed.

    Attributes:
        batch: The most texts of a step.
        chunk: The most tokens of a prompt in a step; None: as many as there is room for.
        backwards: Whether the last text begins first.
    """

    batch: int
    chunk: int | None = None
    backwards: bool = False

    def __str__(self) -> str:
        prompts = "whole prompts" if self.chunk is None else f"prompts {self.chunk} at a time"
        return f"{self.batch} together, {prompts}{', backwards' if self.backwards else ''}"


WAYS = [
    Way(1),
    Way(1, 16),
    Way(1, 1),
    Way(2, 128, backwards=True),
    Way(7, 16),
    Way(7, None, backwards=True),
    Way(32),
    Way(32, 16, backwards=True),
    Way(32, 128),
]


def prompts_of(count: int, longest: int, vocabulary: int) -> list[list[int]]:
    """Drawn texts of many lengths, the first ones the longest and the shortest."""
    draw = np.random.default_rng(5)
    lengths = [longest, 1, *draw.integers(2, longest, count - 2).tolist()]
    return [draw.integers(0, vocabulary, length).tolist() for length in lengths[:count]]


def settings_of(count: int) -> list[Sampling]:
    """How so many texts choose their tokens: some draw by each of the settings, some do not."""
    kinds = [
        Sampling(),
        GREEDY,
        Sampling(0.7, top_k=5),
        Sampling(1.5, top_p=0.9),
        Sampling(3.0, min_p=0.1),
        Sampling(0.9, 40, 0.95, 0.05),
    ]
    seeds = [-(2**63), 2**63 - 1, *range(count)]
    return [replace(kinds[i % len(kinds)], seed=seeds[i]) for i in range(count)]


def digests(
    network: Gemma3,
    prompts: Sequence[Sequence[int]],
    most: int,
    way: Way,
    *,
    every: bool = True,
    sampling: Sequence[Sampling] | None = None,
) -> list[str]:
    """Of each text, in the order of the prompts: digest of the logits, and the tokens."""
    step = -1 if way.backwards else 1
    found = completed(
        network,
        prompts[::step],
        most,
        batch=way.batch,
        chunk=way.chunk,
        every=every,
        sampling=None if sampling is None else sampling[::step],
    )
    return [f"{each.digest} {each.tokens}" for each in found[::step]]


def differing(found: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Which texts are others, for the message of a test."""
    pairs = enumerate(zip(found, expected, strict=True))
    return [f"text {i}: {got} is not {wanted}" for i, (got, wanted) in pairs if got != wanted]
