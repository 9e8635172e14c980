"""examples/networks/minilm.py on a GPU: the host's digests, in any batch, by graphs and without."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import minilm as network
from networks import drawn_minilm

pytestmark = pytest.mark.gpu
TOKENS = drawn_minilm.sentences(48)
SCHEMES = pytest.mark.parametrize("scheme", network.SCHEMES)


@cache
def wanted(scheme: str) -> np.ndarray[Any, Any]:
    """What the host makes of the sentences."""
    return drawn_minilm.encoder("host", scheme).embed(TOKENS)


@cache
def on_gpu(scheme: str) -> network.Encoder:
    return drawn_minilm.encoder("cuda", scheme)


def require_the_same(found: np.ndarray[Any, Any], scheme: str, order: list[int], how: str) -> None:
    """Fails where embeddings are not the host's; says which, and how far they are away."""
    expected = wanted(scheme)[order]
    if found.tobytes() == expected.tobytes():
        return
    rows = np.flatnonzero((found != expected).any(axis=1))
    lengths = [len(TOKENS[order[row]]) for row in rows]
    away = np.abs(found - expected).max()
    pytest.fail(
        f"{scheme}, {how}: {len(rows)} of {len(order)} sentences have other bits than on the host, "
        f"at most {away:.3g} away; their tokens: {lengths}"
    )


@SCHEMES
@pytest.mark.parametrize("at_a_time", [1, 2, 7, 32, 48])
def test_embeddings_have_the_bits_of_the_host(scheme: str, at_a_time: int) -> None:
    """By graphs, each of which serves several numbers of rows."""
    every = list(range(len(TOKENS)))
    for name, order in (("in order", every), ("reversed", every[::-1])):
        tokens = [TOKENS[i] for i in order]
        found = drawn_minilm.in_pieces(on_gpu(scheme), tokens, at_a_time)
        require_the_same(found, scheme, order, f"{at_a_time} at a time, {name}")


@SCHEMES
def test_launches_one_by_one_have_the_bits_of_the_graph(scheme: str) -> None:
    """Each part of a step, so that the first one with other bits is known."""
    host, gpu = drawn_minilm.encoder("host", scheme), on_gpu(scheme)
    batch = TOKENS[:31]
    tokens = sum(map(len, batch))
    steps = {encoder: encoder.step(len(batch), tokens) for encoder in (host, gpu)}
    for encoder, step in steps.items():
        for name, tensor in step.at.items():
            encoder.machine.fill(tensor, np.zeros(tensor.shape, steps[host].at[name].dtype))
        step.fill(batch)
    for number, pair in enumerate(zip(*(step.launches for step in steps.values()), strict=True)):
        for encoder, launch in zip(steps, pair, strict=True):
            launch(encoder.machine.stream)
        for name in steps[host].at:
            expected, found = (e.machine.get(s.at[name][:tokens]) for e, s in steps.items())
            assert found.tobytes() == expected.tobytes(), (
                f"launch {number} of {len(steps[host].launches)}: {name}"
            )
    for end in ("mean", "output"):
        expected, found = (each.machine.get(each.whole[end][:31]) for each in steps)
        assert found.tobytes() == expected.tobytes(), end
    require_the_same(found, scheme, list(range(31)), "launch by launch")
