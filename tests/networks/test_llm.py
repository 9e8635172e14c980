"""benchmarks/llm.py on small models: what it measures is right, beside transformers and alone."""

from __future__ import annotations

import json
import sys
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import llm
import planq
from checkpoint.small_gemma3 import WINDOW, write
from checkpoint.small_vocabulary import VOCABULARY
from gemma3_drawn import Drawn
from harness.peers import gemma
from networks.test_gemma3_program import peer as by_gguf
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import GREEDY, Gemma3, Limits, Sampling
from planq.networks.gemma3.schedule import completed

if TYPE_CHECKING:
    from pathlib import Path

    Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ["--device", "host", "--prompt", "24", "--context", "8", "--written", "5"]
QUICK += ["--turns", "1", "--least", "0"]
TEXTS, CONTEXT, WRITTEN = 3, 2 * WINDOW, 5
PROMPTS = np.random.default_rng(1).integers(3, len(VOCABULARY), (TEXTS, CONTEXT))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("llm") / "small.gguf")


@pytest.fixture(scope="module")
def peer(path: Path) -> gemma.Peer:
    with read_gguf(path) as files, torch.no_grad():
        return gemma.Peer(files, "cpu", torch.float32)


# --- The peer


def test_the_peer_has_the_weights_of_the_file(path: Path, peer: gemma.Peer) -> None:
    """The package gguf dequantizes the same, and the test's model has its own names for them."""
    theirs, own = by_gguf(path).state_dict(), peer.model.state_dict()
    assert theirs.keys() == own.keys()
    for name, tensor in theirs.items():
        assert torch.equal(own[name], tensor), name


@torch.no_grad()
def test_the_peer_writes_what_it_does_without_a_static_cache(path: Path, peer: gemma.Peer) -> None:
    """Also behind the windows of its layers, and again from the same prompts."""
    model = by_gguf(path)
    expected = []
    for prompt in PROMPTS.tolist():
        ids = list(prompt)
        for _ in range(WRITTEN + 1):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        expected.append(ids[CONTEXT + 1 :])
    run = gemma.Decoding(peer, PROMPTS, WRITTEN).run("eager")
    for _ in range(2):
        assert np.transpose(run()).tolist() == expected


@torch.no_grad()
@pytest.mark.parametrize("count", [WINDOW, 20])
def test_the_peer_reads_prompts(count: int, path: Path, peer: gemma.Peer) -> None:
    """Shorter than a window, which need no mask, and longer."""
    ids = PROMPTS.flatten()[:count].tolist()
    exact = by_gguf(path)(torch.tensor([ids])).logits[0, -1]
    prompt = gemma.Prompt(peer, ids)
    assert torch.allclose(prompt.logits[0], exact, atol=1e-4 * float(exact.abs().max()))
    run = prompt.run("eager")
    for _ in range(2):
        assert run() == [[int(exact.argmax())]]


# --- planq


def small(path: Path) -> Gemma3:
    with read_gguf(path) as files:
        return Gemma3(files, limits=Limits(rows=8, texts=TEXTS, asked=8, context=32, page=8))


@pytest.mark.parametrize("sampling", [GREEDY, llm.DRAWS])
def test_texts_are_written_as_the_network_does(sampling: Sampling, path: Path) -> None:
    # What is measured begins with a token behind the prompts.
    whole = [[*prompt, prompt[0]] for prompt in PROMPTS.tolist()]
    settings = [sampling] * TEXTS
    wanted = completed(small(path), whole, WRITTEN, batch=1, sampling=settings)
    run: Any = llm.decoding(small(path), PROMPTS, WRITTEN, sampling)
    for _ in range(2):
        assert np.transpose(run()).tolist() == [each.tokens for each in wanted]


def test_prompts_are_read_as_the_network_does(path: Path) -> None:
    network, ids = small(path), PROMPTS[0].tolist()
    (wanted,) = completed(network, [ids], 1, batch=1)
    assert [llm.read(network, ids), llm.read(network, ids)] == wanted.tokens * 2
    assert len(network.pages) == network.limits.cache


def test_plans_are_others_where_less_is_asked() -> None:
    """Of products of floats on tensor cores that have no model; of integers none are."""
    found = []
    for desc in (
        planq.MatmulDescriptor(input_shape=(64, 64), weight_shape=(64, 64), input_dtype="bfloat16"),
        planq.ArgmaxDescriptor(shape=(4, 64), input_dtype="float32"),
    ):
        exact = planq.explain(desc, llm.EXACT, device="sm_80")
        plan: Any = SimpleNamespace(descriptor=desc, device="sm_80", explain=lambda e=exact: e)
        found.append(llm.kernels(plan))
    (own, other), (same, again) = found
    assert own != other
    assert ".mma" in other or "/mma" in other
    assert same == again


# --- The program


def record_of(folder: Path, words: list[str]) -> dict[str, Any]:
    assert llm.main([*words, "--json", str(folder)]) == 0
    found: dict[str, Any] = json.loads((folder / "host" / "llm.json").read_text())
    return found


def test_it_measures_beside_transformers(path: Path, tmp_path: Path, capsys: Capture) -> None:
    """A mode that does not work is told, and the others are measured."""
    words = [str(path), *QUICK, "--texts", "1,3", "--modes", "eager,eager-graph"]
    record = record_of(tmp_path, [*words, "--note", "A test."])
    found = record["llm"]
    names = ["planq", "planq drawn", "transformers eager"]
    assert [(each["part"], list(each["us"])) for each in found["entries"]] == [
        ("decode", names),
        ("decode", names),
        ("prompt", ["planq", "transformers eager"]),
    ]
    steps = [1, 3, 24]
    for each, tokens in zip(found["entries"], steps, strict=True):
        assert each["us"].keys() == each["tokens_per_second"].keys()
        for name, spent in each["us"].items():
            assert each["tokens_per_second"][name] == pytest.approx(tokens / spent * 1e6)
        assert each["fastest_peer"] == "transformers eager"
        rates = each["tokens_per_second"]
        assert each["speedup"] == pytest.approx(rates["planq"] / rates["transformers eager"])
        assert each["promise_costs"] == 0
    assert list(found["failed"]) == [
        f"{part}, transformers eager-graph" for part in ("decode 1", "decode 3", "prompt")
    ]
    assert found["logits_cosine"] > 0.99
    assert found["other_plans"] == []
    assert record["software"]["transformers"] == gemma.release()
    assert (record["model"], record["note"]) == ("small.gguf", "A test.")
    told = capsys.readouterr().out
    assert "3 texts of 8 tokens, 5 written" in told
    assert "so the promise costs nothing" in told
    assert "failed: prompt, transformers eager-graph: " in told


def test_it_measures_planq_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Where transformers is not installed, of a model that needs no file; and what promises cost.

    Here a plan is said to be another.
    """
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(gemma, "release", lambda: None)
    monkeypatch.setattr(llm, "kernels", lambda plan: (plan.sku, plan.sku.replace("argmax", "x")))
    monkeypatch.setattr(llm, "Drawn", partial(Drawn, layers=1))
    record = record_of(tmp_path, ["drawn", *QUICK, "--texts", "2", "--vocabulary", "64"])
    found = record["llm"]
    names = ["planq", "planq run_to_run", "planq drawn"]
    assert [list(each["us"]) for each in found["entries"]] == [names, names[:2]]
    for each in found["entries"]:
        cost = 100 * (each["us"]["planq"] / each["us"]["planq run_to_run"] - 1)
        assert each["promise_costs"] == pytest.approx(cost)
        assert "speedup" not in each
    assert found["other_plans"] == [["argmax", "argmax/host/f32", "x/host/f32"]]
    assert found["logits_cosine"] is None
    assert record["software"]["transformers"] == "none"
    told = capsys.readouterr().out
    assert "transformers is not installed: planq alone is measured" in told
    assert "1 plans are others where less is asked:" in told


def test_unknown_modes_are_refused(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        llm.main(["drawn", "--modes", "eager,fast"])
    assert "expected some of eager, eager-graph, " in capsys.readouterr().err
