"""planq.networks on a GPU: its digests are the host's, in any batch, by graphs and without them.

The models are drawn: they have the shapes and the types of Gemma 3 270M. The small one has fewer
layers, and a window that its texts leave.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

import planq
from checkpoint.small_vocabulary import METADATA
from checkpoint.small_vocabulary import VOCABULARY as VOCABULARY_OF_WORDS
from gemma3_drawn import Drawn
from planq.checkpoint import gguf_files
from planq.cli import run as run_module
from planq.cli.app import run
from planq.networks import machine_of
from planq.networks.gemma3 import Gemma3, Limits, Part
from planq.networks.gemma3.schedule import completed
from support import batches

if TYPE_CHECKING:
    from planq.networks.gemma3.step import Launch

pytestmark = pytest.mark.gpu
LAYERS, VOCABULARY, MADE = 7, 1024, 5
PROMPTS = batches.prompts_of(34, 130, VOCABULARY)
LIMITS = Limits(rows=160, texts=32, asked=160, context=160, page=16)
# What each launch writes, by the last part of its name. Others may share the bytes afterwards.
WRITTEN = {
    "embedding": ("hidden",),
    "scaling": ("residual",),
    "codes of norm": ("residual", "codes", "scale"),
    "qkv": ("qkv",),
    "turn and append": ("query",),
    "attention": ("heads",),
    "attn_output": ("hidden",),
    "norm": ("hidden",),
    "gate up": ("gate up",),
    "gate": ("inner codes", "inner scale"),
    "ffn_down": ("hidden",),
}
# Likewise of the tokens alone that are asked.
OF_ASKED = {
    "chosen rows": (),
    "codes of norm": ("codes", "scale"),
    "token_embd": ("logits",),
    "argmax": ("likeliest",),
    "sample": ("drawn",),
}
SETTINGS = batches.settings_of(len(PROMPTS))


@cache
def small(machine: str, name: str = "") -> Gemma3:
    """The small model; of each name another one."""
    del name
    drawn = Drawn(layers=LAYERS, vocabulary=VOCABULARY, window=20)
    return Gemma3(drawn, machine, LIMITS)


@cache
def alone() -> list[str]:
    """Of texts one after another on the host, prompts whole."""
    return batches.digests(small("host"), PROMPTS, MADE, batches.Way(1))


# --- The machine


def test_copies_have_the_order_of_the_stream() -> None:
    machine = machine_of("cuda")
    machine.reserve(1 << 20)
    tensor = machine.tensor(0, (300, 7), "int32")
    given = np.arange(2100, dtype=np.int32).reshape(300, 7)
    machine.fill(tensor, given)
    first = machine.fetch(tensor)
    for count in range(200):
        machine.fill(tensor[count : count + 1], np.full((1, 7), -count, np.int32))
    machine.copy(tensor[250:260], tensor[:10])
    second = machine.fetch(tensor[240:262, 2:5])
    assert np.array_equal(first(), given)
    given[250:260] = -np.arange(10)[:, None]
    assert np.array_equal(second(), given[240:262, 2:5])
    third = machine.tensor(1 << 19, (300, 3), "int32")
    machine.put(third, given[:, ::3])
    assert np.array_equal(machine.get(third), given[:, ::3])


def test_a_graph_runs_when_it_is_called() -> None:
    machine = machine_of("cuda")
    machine.reserve(1 << 12)
    x, y = (machine.tensor(offset, (5,), "float32") for offset in (0, 256))
    machine.fill(x, np.arange(5, dtype=np.float32))
    machine.fill(y, np.full(5, 100, np.float32))
    desc = planq.AddDescriptor(shape=(5,), input_dtype="float32")
    plan = planq.Plan.select(machine.stream, desc)
    launch = plan.bind(None, planq.AddArgs(input=y, other=x, output=y))
    step = machine.captured(lambda: launch(machine.stream))
    assert machine.get(y).tolist() == [100] * 5
    for _ in range(3):
        step()
    assert machine.get(y).tolist() == [100, 103, 106, 109, 112]


# --- One launch after another


class Seen(NamedTuple):
    """What a tensor holds after a launch."""

    launch: str
    tensor: str
    digest: str


def traced(network: Gemma3, steps: list[list[Part]]) -> list[Seen]:
    """What each launch of some steps writes, its rows of tokens alone."""
    seen: list[Seen] = []
    rows, names = 0, WRITTEN

    def watch(launch: Launch) -> None:
        nonlocal rows, names
        if launch.name in OF_ASKED.keys() - WRITTEN.keys():
            rows, names = asked, OF_ASKED
        kind = "attention" if launch.name.startswith("attention") else launch.name.split(".")[-1]
        for name in names[kind]:
            tensor = network.machine.get(network.memory[name][:rows])
            found = hashlib.sha256(tensor.tobytes()).hexdigest()
            seen.append(Seen(f"{len(seen)}: {launch.name}", name, found))

    network.watch = watch
    for parts in steps:
        rows, names = sum(part.size for part in parts), WRITTEN
        asked = sum(part.asked for part in parts)
        network.step(parts)
    network.watch = None
    return seen


def test_every_launch_has_the_host_s_bits() -> None:
    """Of a prompt, of prompts and single tokens together, and of single tokens alone."""
    found = []
    for name in ("host", "cuda"):
        network = small(name)
        a, b, c = (network.text(60) for _ in range(3))
        steps = [
            [Part(a, PROMPTS[0][:37], 37)],
            [Part(a, [5]), Part(b, PROMPTS[0][40:51], 3), Part(c, PROMPTS[0][60:90], 0)],
            [Part(c, [7]), Part(a, [8]), Part(b, [9])],
        ]
        found.append(traced(network, steps))
        for text in (a, b, c):
            text.release()
    host, cuda = found
    assert [each[:2] for each in host] == [each[:2] for each in cuda]
    other = [f"{a.launch}, {a.tensor}" for a, b in zip(host, cuda, strict=True) if a != b]
    assert other == [], f"{len(other)} of {len(host)} differ, first after launch {other[0]}"


# --- Whole texts


@pytest.mark.parametrize("way", batches.WAYS, ids=str)
def test_a_text_has_the_host_s_digest_in_any_batch(way: batches.Way) -> None:
    found = batches.digests(small("cuda"), PROMPTS, MADE, way)
    assert batches.differing(found, alone()) == []


@pytest.mark.parametrize("way", [batches.Way(1, 16), batches.Way(32, 16)], ids=str)
def test_graphs_do_not_matter(way: batches.Way) -> None:
    network = small("cuda", "without graphs")
    network.watch = lambda launch: None
    found = batches.digests(network, PROMPTS, MADE, way)
    assert batches.differing(found, alone()) == []
    network.watch = None
    again = batches.digests(network, PROMPTS, MADE, way)
    assert batches.differing(again, alone()) == []


# --- Tokens that are drawn


@cache
def drawn_alone() -> list[str]:
    """Of texts one after another on the host, with settings of their own."""
    way = batches.Way(1)
    return batches.digests(small("host"), PROMPTS, MADE, way, sampling=SETTINGS)


@pytest.mark.parametrize("way", batches.WAYS, ids=str)
def test_drawn_texts_are_the_host_s_in_any_batch(way: batches.Way) -> None:
    found = batches.digests(small("cuda"), PROMPTS, MADE, way, sampling=SETTINGS)
    assert batches.differing(found, drawn_alone()) == []
    # Those that draw nothing are as they are without the others; others are not.
    same = [a == b for a, b in zip(found, alone(), strict=True)]
    assert all(found for found, each in zip(same, SETTINGS, strict=True) if each.is_greedy)
    assert not all(same)


def test_the_host_runs_ahead_of_drawn_tokens() -> None:
    network, prompt, own = small("cuda"), PROMPTS[0], SETTINGS[0]
    (expected,) = completed(small("host"), [prompt], 20, batch=1, sampling=[own])
    text = network.text(len(prompt) + 20, sampling=own)
    assert list(network.continued(text, prompt, 20)) == expected.tokens
    text.release()


# --- Tokens that the host has not seen


def test_the_host_runs_ahead() -> None:
    """Tokens go from step to step on the GPU, in any order, and are the host's."""
    network, prompt = small("cuda"), PROMPTS[0]
    (expected,) = completed(small("host"), [prompt], 20, batch=1)
    text = network.text(len(prompt) + 20)
    assert list(network.continued(text, prompt, 20)) == expected.tokens
    text.release()
    a, b = network.text(60), network.text(60)
    made = [network.step([Part(a, prompt[:30]), Part(b, prompt[30:33])])]
    for count in range(12):
        parts = [Part(a), Part(b)]
        made.append(network.step(parts[:: -1 if count % 2 else 1]))
    rows = [0, *(count % 2 for count in range(12))]
    for first, ids in ((0, prompt[:30]), (1, prompt[30:33])):
        (told,) = completed(small("host"), [ids], 13, batch=1)
        found = [int(each.tokens()[row ^ first]) for each, row in zip(made, rows, strict=True)]
        assert found == told.tokens
    a.release()
    b.release()


@pytest.mark.parametrize("batch", [1, 5])
def test_real_shapes_have_the_host_s_digest(batch: int) -> None:
    """All layers, and windows that a text leaves."""
    prompts = [[(7 * i + 3) % 5000 for i in range(count)] for count in (3, 540, 17, 128, 1)]
    limits = Limits(rows=256, texts=5, asked=8, context=640)
    found = []
    for name in ("host", "cuda"):
        network = Gemma3(Drawn(vocabulary=8192), name, limits)
        way = batches.Way(batch, 100)
        found.append(batches.digests(network, prompts, 4, way, every=False))
    assert batches.differing(found[1], found[0]) == []


# --- The command line


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drawn model with a vocabulary in the place of every file."""
    drawn = Drawn(layers=LAYERS, vocabulary=len(VOCABULARY_OF_WORDS), window=20)
    drawn.metadata |= METADATA
    for module in (run_module, gguf_files):
        monkeypatch.setattr(module, "read_gguf", lambda path: nullcontext(drawn))


@pytest.mark.usefixtures("file")
def test_planq_run_has_one_digest(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for device in ("host", "cuda", "cuda:0"):
        words = ["run", "drawn.gguf", "a cab<b> abc", "--tokens", "40", "--device", device]
        assert run([*words, "--digest", "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    assert [each["device"] for each in told] == ["host", "cuda:0", "cuda:0"]
    host, *cuda = [(each["tokens"], each["text"], each["digest"]) for each in told]
    assert cuda == [host, host]


@pytest.mark.usefixtures("file")
def test_planq_run_draws_the_same_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for device in ("host", "cuda"):
        words = ["run", "drawn.gguf", "a cab<b> abc", "--tokens", "40", "--device", device]
        settings = ["--temperature", "1.3", "--top-k", "50", "--top-p", "0.95", "--seed", "7"]
        assert run([*words, *settings, "--digest", "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    host, cuda = [(each["tokens"], each["text"], each["digest"]) for each in told]
    assert cuda == host


@pytest.mark.usefixtures("file")
def test_planq_audit_compares_the_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "--network", "drawn.gguf", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    devices = {each["device"] for each in told["found"]}
    assert devices >= {"host", "host, 1 thread", "cuda:0"}
    assert len({each["digest"] for each in told["found"]}) == 1
