"""examples/decode_layer.py: one digest in any batch, near a layer in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import decode_layer
import planq
from support import docs

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = decode_layer.SMALL
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("more", [[], ["--fused"]])
def test_it_prints_what_the_page_says(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Whether or not norms and gate leave codes in one launch."""
    (block,) = (
        text
        for text in docs.fenced(docs.ROOT / "docs" / "engines.md", "console")
        if "decode_layer.py" in text
    )
    command, *lines = block.splitlines()
    words = command.removeprefix("$ python examples/decode_layer.py ").split()
    assert decode_layer.main([*words, *more]) == 0
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("sequences", [[15, 3, 3, 0], [8], list(range(15, -1, -1))])
def test_a_token_has_its_bits_in_any_batch(sequences: list[int]) -> None:
    """And twice among others, as in a batch of other sequences in other pages."""
    layer, tokens = decode_layer.Layer(SMALL, "cpu"), decode_layer.tokens_of(SMALL)
    every = decode_layer.Step(layer, SMALL.tokens).run(tokens, list(range(SMALL.tokens)))
    assert len(set(every)) == SMALL.tokens
    some = decode_layer.Step(layer, len(sequences))
    for _ in range(2):
        assert some.run(tokens, sequences) == [every[i] for i in sequences]


def test_another_digest_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = decode_layer.Step.run

    def faulty(step: Any, *given: Any) -> list[str]:
        digests = run(step, *given)
        return digests if step.rows > 1 else ["0" * 64]

    monkeypatch.setattr(decode_layer.Step, "run", faulty)
    assert decode_layer.main(["--small", "--tokens", "2", "--device", "cpu"]) == 1
    told = capsys.readouterr().out
    assert len(re.findall(r"token \d alone: 0{16}, OTHER BITS as among all", told)) == 2


def test_fused_plans_take_the_place_of_two() -> None:
    """And leave tensors that stand between them as they are."""
    counts, digests = {}, {}
    for fused in (False, True):
        layer, tokens = decode_layer.Layer(SMALL, "cpu", fused), decode_layer.tokens_of(SMALL)
        step = decode_layer.Step(layer, 2)
        digests[fused] = step.run(tokens, [5, 9])
        counts[fused] = len(layer.launches(2))
        between = [layer.arena.tensors[name] for name in ("normed", "inner")]
        assert all(bool(tensor.any()) != fused for tensor in between)
    assert counts == {False: 14, True: 11}
    assert digests[False] == digests[True]


def test_it_computes_a_decoder_layer() -> None:
    """Near one in float64 with the same weights, but for what quantization loses."""
    layer, tokens = decode_layer.Layer(SMALL, "cpu"), decode_layer.tokens_of(SMALL)
    decode_layer.Step(layer, SMALL.tokens).run(tokens, list(range(SMALL.tokens)))
    found = [wide(layer.arena.tensors[name]) for name in ("hidden", "residual")]
    for ours, exact in zip(found, floating(layer, tokens), strict=True):
        norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(exact, axis=1)
        assert ((ours * exact).sum(axis=1) / norms).min() > 0.999
        assert np.abs(ours - exact).max() < 0.1 * np.abs(exact).max()


def test_everything_of_a_step_is_in_one_memory() -> None:
    """Tensors that are apart in it, each aligned for a workspace."""
    tensors = decode_layer.Layer(SMALL, "cpu").arena.tensors
    (_,) = {each.untyped_storage().data_ptr() for each in tensors.values()}
    spans = sorted((each.data_ptr(), each.nbytes) for each in tensors.values())
    assert all(start % planq.WORKSPACE_ALIGNMENT == 0 for start, _ in spans)
    ends = [start + size for start, size in spans]
    assert all(end <= start for end, (start, _) in zip(ends, spans[1:], strict=False))


# --- The layer in float64 ------------------------------------------------------------------------


def wide(tensor: torch.Tensor) -> Array:
    return tensor.double().numpy()


def floating(layer: decode_layer.Layer, tokens: decode_layer.Tokens) -> tuple[Array, Array]:
    """What the layer adds to the residual, and the residual."""
    sizes, weights = layer.sizes, layer.weights

    def product(name: str, x: Array) -> Array:
        return x @ (wide(weights[name]) * wide(weights[f"{name}.scale"])[:, None]).T

    def norm(name: str, x: Array) -> Array:
        root = np.sqrt((x * x).mean(axis=1, keepdims=True) + decode_layer.EPSILON)
        return x / root * wide(weights[f"{name}.norm"])

    residual = wide(tokens.hidden) + wide(tokens.residual)
    heads = product("qkv", norm("attention", residual)).reshape(sizes.tokens, -1, sizes.head)
    query, key, value = np.split(heads, [sizes.heads, sizes.heads + sizes.key_heads], axis=1)
    found = np.empty((sizes.tokens, sizes.heads, sizes.head))
    for i, length in enumerate(tokens.lengths):
        keys, values = (
            np.concatenate([wide(before[i, : length - 1]), new])
            for before, new in (
                (tokens.keys, turned(key[i], length - 1)[None]),
                (tokens.values, value[i][None]),
            )
        )
        for head, row in enumerate(turned(query[i], length - 1)):
            shared = head * sizes.key_heads // sizes.heads
            scores = np.exp(keys[:, shared] @ row / np.sqrt(sizes.head))
            found[i, head] = scores @ values[:, shared] / scores.sum()
    residual = residual + product("o", found.reshape(sizes.tokens, -1))
    both = product("gate_up", norm("feed_forward", residual))
    gate, up = np.split(both, 2, axis=1)
    return product("down", gate / (1 + np.exp(-gate)) * up), residual


def turned(heads: Array, position: int) -> Array:
    """By complex numbers: column i and column i + D / 2 of a head are one."""
    half = heads.shape[-1] // 2
    angles = position * decode_layer.BASE ** -(np.arange(half) / half)
    pairs = (heads[..., :half] + 1j * heads[..., half:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)
