"""examples/networks/minilm.py on a GPU: the host's digests, in any batch, by graphs and without."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import minilm as network
import planq
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


class Written(NamedTuple):
    """What a launch has written."""

    name: str
    bits: list[bytes]


def written(encoder: network.Encoder, step: network.Step, tokens: int) -> list[Written]:
    """Of each launch of a step the outputs, when it has run; of rows of tokens alone."""
    found = []
    operands = encoder.launches(encoder.whole, step.sentences, step.rows)
    for launch, (name, args) in zip(step.launches, operands, strict=True):
        launch(encoder.machine.stream)
        specs = encoder.plan(name, step.sentences).descriptor.operands().values()
        names = [spec.name for spec in specs if spec.role is not planq.Role.INPUT]
        outputs = [getattr(args, each) for each in names if each != "invalid"]
        found.append(
            Written(name, [encoder.machine.get(each)[:tokens].tobytes() for each in outputs])
        )
    return found


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
    seen = []
    for encoder in (host, gpu):
        step = encoder.step(len(batch), tokens)
        step.fill(batch)
        seen.append(written(encoder, step, tokens))
    expected, found = seen
    assert len(found) == len(expected) > 10
    for number, pair in enumerate(zip(expected, found, strict=True)):
        assert pair[0].name == pair[1].name
        assert pair[0].bits == pair[1].bits, f"launch {number} of {len(found)}: {pair[0].name}"
    output = gpu.machine.get(gpu.whole["output"][:31])
    require_the_same(output, scheme, list(range(31)), "launch by launch")
