"""benchmarks/perplexity.py: near llama.cpp's on a small model, and the formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import perplexity
from checkpoint.small_gemma3 import write
from checkpoint.small_vocabulary import VOCABULARY
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import Gemma3, Part

if TYPE_CHECKING:
    from pathlib import Path

    Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

IDS = [2, *np.random.default_rng(4).integers(266, len(VOCABULARY), 99).tolist()]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("perplexity") / "small.gguf")


def test_it_is_that_of_the_logits(path: Path) -> None:
    with read_gguf(path) as files:
        network = Gemma3(files)
    text = network.text(len(IDS))
    logits = network.step([Part(text, IDS, len(IDS))], logits=True).logits().astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = powers[np.arange(99), IDS[1:]] / powers.sum(axis=1)[:-1]
    found = perplexity.own_logarithms(network, IDS)
    assert np.allclose(np.exp(found), chances, rtol=1e-9, atol=0)
    assert np.isclose(perplexity.perplexity(found), chances.prod() ** (-1 / 99))


def test_it_is_near_llama_cpp_s(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with read_gguf(path) as files:
        own = perplexity.own_logarithms(Gemma3(files), IDS)
    other = perplexity.Peer(path, 1, 256).logarithms(IDS)
    # Both have int8 activations, with scales of their own.
    assert 0 < np.abs(own - other).mean() < 0.1
    assert abs(perplexity.perplexity(own) / perplexity.perplexity(other) - 1) < perplexity.MOST


def test_the_exit_status_is_whether_they_are_near(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    factor = 1.0

    class Peer:
        def __init__(self, path: Path, threads: int, context: int) -> None:
            self.path = path

        def logarithms(self, ids: list[int]) -> Array:
            with read_gguf(self.path) as files:
                found: Array = perplexity.own_logarithms(Gemma3(files), ids) * factor
                return found

    monkeypatch.setattr(perplexity, "Peer", Peer)
    text = tmp_path / "text.txt"
    text.write_text("ab abc a cab Z")
    words = [str(path), str(text), "--tokens", "9", "--threads", "1"]
    assert perplexity.main(words) == 0
    assert capsys.readouterr().out.endswith("0.00% apart\n")
    factor = 1.01
    assert perplexity.main(words) == 1
    assert capsys.readouterr().out.startswith("9 tokens: planq ")
