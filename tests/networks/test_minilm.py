"""examples/networks/minilm.py on the host: near transformers' model, and one digest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import minilm as network
import planq
from checkpoint import model as peer
from cli import demo_model
from networks import drawn_minilm
from planq import _core
from planq.audit import places
from planq.cli.demo_sentences import SENTENCES
from planq.networks import machine_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

# Of the embeddings of the program's sentences, on every machine.
DIGESTS = {
    "bfloat16": "64d3a3dfa4c4c42dc5543a3e7cdd7b7703b364378380c7f646594e4bd5e9936c",
    "w8a8": "b9fa8da23ef68bd00139cbf54699acdfa2b3963ce9322ed9fd74625d1bcaf30c",
}
SCHEMES = pytest.mark.parametrize("scheme", network.SCHEMES)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, as a folder."""
    return peer.extract(tmp_path_factory.mktemp("model"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """One that is small and drawn."""
    return demo_model.write(tmp_path).parent


def test_embeddings_are_near_those_of_transformers_in_float32(source: Path) -> None:
    """All of bfloat16, and those of W8A8 on average. Both are of length 1."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    batch = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
    tokens = [tokenizer(sentence)["input_ids"] for sentence in SENTENCES]
    with torch.inference_mode():
        states = peer.load(source)(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    means = (states * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(means, dim=-1).numpy()
    sizes, tensors = network.Sizes.of(source), network.read(source)
    for scheme, floor in network.SCHEMES.items():
        made = network.Encoder(tensors, sizes, machine_of("host"), scheme).embed(tokens)
        assert np.abs(np.linalg.norm(made, axis=1) - 1).max() < 1e-6
        cosine = (made * expected).sum(axis=1)
        assert (cosine.min() if scheme == "bfloat16" else cosine.mean()) >= floor


def test_the_model_has_the_digests_of_every_machine(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for threads in ("1", "2"):
        assert network.main([str(source), "--device", "host", "--threads", threads]) == 0
        told = capsys.readouterr().out
        for scheme, digest in DIGESTS.items():
            found = re.findall(rf"^{scheme}, host, (.+): (\w{{64}})$", told, re.MULTILINE)
            assert found == [(way, digest) for way in (*network.WAYS, "reversed")]
            assert f"{scheme}: cosine to float32 0.99" in told


def test_the_program_needs_no_transformers(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert network.main([str(small), "--scheme", "w8a8", "--device", "host"]) == 0
    assert "cosine" not in capsys.readouterr().out


def test_every_instruction_set_has_the_same_digests() -> None:
    """A process for each that the processor has."""
    wanted = list(drawn_minilm.digests().values())
    for name in _core.instruction_sets()[:-1]:
        more = {"PYTHONPATH": os.pathsep.join(sys.path), places.INSTRUCTION_SET: name}
        command = [sys.executable, "-P", drawn_minilm.__file__]
        told = subprocess.run(
            command, env=os.environ | more, check=True, capture_output=True, text=True
        )
        assert told.stdout.split() == wanted, name


@SCHEMES
def test_bits_depend_on_the_sentence_alone(scheme: str) -> None:
    """Not on others, their order, rows without tokens, room that there is, or threads."""
    tokens = drawn_minilm.sentences(40)
    wanted = drawn_minilm.encoder("host", scheme).embed(tokens)
    assert len(np.unique(wanted, axis=0)) == len(tokens)
    order = np.random.default_rng(0).permutation(len(tokens))
    narrow = replace(drawn_minilm.LIMITS, sentences=5, tokens=100)
    for threads, limits in ((1, narrow), (2, replace(narrow, grain=64)), (2, drawn_minilm.LIMITS)):
        made = drawn_minilm.encoder("host", scheme, limits, threads)
        for at_a_time in (1, 3, 40):
            found = drawn_minilm.in_pieces(made, [tokens[i] for i in order], at_a_time)
            assert found.tobytes() == wanted[order].tobytes(), (threads, limits, at_a_time)


@SCHEMES
def test_an_embedding_is_the_unit_vector_of_the_mean_over_its_tokens(scheme: str) -> None:
    """Of the last hidden state, by NumPy in float64."""
    made, tokens = drawn_minilm.encoder("host", scheme), drawn_minilm.sentences(5)
    found = made.embed(tokens)
    ends = np.cumsum([len(sentence) for sentence in tokens])
    step = made.step(5, int(ends[-1]))
    step.fill(tokens)
    *before, mean, unit = step.launches
    for launch in before:
        launch(planq.HOST)
    rows = step.at["hidden"].astype(np.float64)
    mean(planq.HOST)
    means = np.stack([part.mean(axis=0) for part in np.split(rows, ends[:-1])])
    assert np.abs(made.whole["mean"][:5] - means).max() < 1e-6 * np.abs(rows).max()
    assert np.abs(found - means / np.linalg.norm(means, axis=1, keepdims=True)).max() < 1e-6
    unit(planq.HOST)
    assert step.output[:5].tobytes() == found.tobytes()
    # Steps are made for powers of two. What has no sentence is 0.
    assert not step.output[5:8].any()


@SCHEMES
def test_another_bit_of_a_weight_is_another_digest(scheme: str) -> None:
    made, tokens = drawn_minilm.encoder("host", scheme), drawn_minilm.sentences(3)
    before = network.digest_of(made.embed(tokens))
    for name in ("word", "place", "first norm.bias", "1 qkv.weight", "1 narrow norm.weight"):
        flat = made.weights[name].reshape(-1).view(np.uint8)
        at = flat.size - 1 if name != "word" else tokens[0][0] * flat.size // made.sizes.words + 1
        at = at if name != "place" else 3
        flat[at] ^= 0x40
        assert network.digest_of(made.embed(tokens)) != before, name
        flat[at] ^= 0x40
    assert network.digest_of(made.embed(tokens)) == before


def test_activations_share_bytes() -> None:
    """Of both schemes; weights and what the host writes or reads do not."""
    for scheme in network.SCHEMES:
        made = drawn_minilm.encoder("host", scheme)
        spans = {
            name: (tensor.ctypes.data, tensor.ctypes.data + tensor.nbytes)
            for name, tensor in made.whole.items()
        }
        assert made.machine.nbytes < sum(end - first for first, end in spans.values())
        for name in (*made.weights, "input", "output"):
            first, end = spans[name]
            others = [each for other, each in spans.items() if other != name]
            assert all(end <= left or right <= first for left, right in others), name


def test_steps_are_kept_while_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "KEPT", 2)
    made = drawn_minilm.encoder("host", "w8a8")
    first, second = made.step(1, 5), made.step(1, 6)
    assert made.step(1, 5) is first
    made.step(1, 7)
    assert made.step(1, 5) is first
    assert made.step(1, 6) is not second


FAULTS: dict[str, tuple[list[list[int]], str, str]] = {
    "no token": ([[1], []], "sentence 1", "1 to 64 tokens, got 0"),
    "too many tokens": ([[1] * 65], "sentence 0", "1 to 64 tokens, got 65"),
    "another token": ([[0, len(demo_model.WORDS)]], "sentence 0", "tokens below"),
    "a token below 0": ([[0, -1]], "sentence 0", "tokens below"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_sentences_are_refused_that_the_model_does_not_take(fault: str) -> None:
    tokens, operand, words = FAULTS[fault]
    with pytest.raises(planq.ArgumentError, match=words) as caught:
        drawn_minilm.encoder("host", "bfloat16").embed(tokens)
    assert caught.value.operand == operand


def test_no_sentence_has_no_embedding() -> None:
    assert drawn_minilm.encoder("host", "w8a8").embed([]).shape == (0, 384)


@pytest.mark.parametrize(
    ("scheme", "longest", "words"),
    [("int4", 64, "bfloat16 or w8a8, got int4"), ("w8a8", 65, "at most 64 tokens, got 65")],
)
def test_encoders_are_refused_that_there_are_not(scheme: str, longest: int, words: str) -> None:
    limits = replace(drawn_minilm.LIMITS, longest=longest)
    with pytest.raises(planq.ArgumentError, match=words):
        drawn_minilm.encoder("host", scheme, limits)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("digests", lambda encoder, tokens: {"alone": "a", "2 at a time": "b"}),
        ("floating", lambda folder, tokens: np.eye(len(tokens), 384, dtype=np.float32)),
    ],
)
def test_the_program_fails_where_digests_or_embeddings_differ(
    name: str, value: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [str(source), "--device", "host", "--scheme", "w8a8"]
    monkeypatch.setattr(network, name, value)
    assert network.main(words) == 1
