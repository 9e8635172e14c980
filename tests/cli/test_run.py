"""`planq run` and `planq audit --network`: a text, its digest, and what is refused."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from checkpoint.small_gemma3 import CONTEXT, write
from cli.commands import refuse, report
from cli.test_terminal import in_terminal
from planq.checkpoint import read_gguf
from planq.cli import main
from planq.networks import audit
from planq.networks.gemma3 import Gemma3, Part, Sampling
from planq.networks.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Capture = pytest.CaptureFixture[str]

PROMPT, MADE = "a cab<b>\nZé \x1b[31m", 9


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("run") / "small.gguf")


def expected(path: Path) -> tuple[list[int], list[int], str]:
    """The prompt, the tokens and the digest, by single steps of the network."""
    with read_gguf(path) as files:
        network, tokenizer = Gemma3(files), Tokenizer(files.metadata)
    ids, rows, made = tokenizer.encode(PROMPT), [], []
    text = network.text(len(ids) + MADE)
    step: Sequence[int] = ids
    while len(made) < MADE:
        logits = network.step([Part(text, step)], logits=True).logits()
        rows.append(logits)
        made.append(int(logits.argmax()))
        step = made[-1:]
    return ids, made, hashlib.sha256(np.concatenate(rows).tobytes()).hexdigest()


def test_a_text_is_written_with_its_speed_and_its_digest(path: Path, capsys: Capture) -> None:
    ids, made, digest = expected(path)
    assert main(["run", str(path), PROMPT, "--tokens", str(MADE), "--digest"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    # What a terminal would take for a command is spelled.
    assert printed.out.startswith("a cab<b>\nZé \\x1b[31m")
    assert "\x1b" not in printed.out
    *_, empty, prompt, text, told = printed.out.splitlines()
    assert empty == ""
    assert prompt.startswith(f"prompt: {len(ids)} tokens in ")
    assert text.startswith(f"text: {MADE - 1} tokens in ")
    assert all(line.endswith(" tokens a second") for line in (prompt, text))
    assert told == f"digest: {digest}"
    assert len(made) == MADE


@pytest.mark.parametrize("threads", ["1", "3"])
def test_json_has_tokens_and_digest(path: Path, capsys: Capture, threads: str) -> None:
    ids, made, digest = expected(path)
    words = [str(path), PROMPT, "--tokens", MADE, "--threads", threads]
    told = report(capsys, "run", *words, "--digest")
    assert (told["tokens"], told["digest"], told["device"]) == (made, digest, "host")
    assert (told["model"], told["prompt"], told["prompt_tokens"]) == (str(path), PROMPT, len(ids))
    with read_gguf(path) as files:
        assert told["text"] == Tokenizer(files.metadata).decode(made)
    assert min(told["prompt_seconds"], told["text_seconds"]) > 0
    assert report(capsys, "run", *words)["digest"] is None


def test_tokens_are_drawn(path: Path, capsys: Capture) -> None:
    """By settings and a seed, those that the network draws with them."""
    given = {"temperature": 1.5, "top_k": 60, "top_p": 0.9, "min_p": 0.01, "seed": -3}
    with read_gguf(path) as files:
        network, ids = Gemma3(files), Tokenizer(files.metadata).encode(PROMPT)
    text = network.text(len(ids) + MADE, sampling=Sampling(**given))
    made = list(network.continued(text, ids, MADE))
    words = [str(path), PROMPT, "--tokens", MADE, "--digest"]
    options = [x for name, value in given.items() for x in (option(name), value)]
    for threads in ("1", "3"):
        told = report(capsys, "run", *words, *options, "--threads", threads)
        assert (told["tokens"], told["sampling"]) == (made, given)
    others = []
    for seed in ("0", "1", "2"):
        drawn = report(capsys, "run", *words, "--temperature", "1.5", "--seed", seed)
        others.append(drawn["tokens"])
    assert others[0] == report(capsys, "run", *words, "--temperature", "1.5")["tokens"]
    assert len({*map(tuple, others), tuple(made)}) == 4
    greedy = report(capsys, "run", *words)
    assert greedy["tokens"] == expected(path)[1]
    assert greedy["sampling"]["temperature"] == 0


def option(name: str) -> str:
    """As the command line spells it."""
    return f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("temperature", "-1", "temperature: expected a number from 0 to the largest float32"),
        ("temperature", "nan", "temperature: expected a number from 0 to the largest float32"),
        ("top_k", "-1", "top_k: expected 0 to 2147483647, got -1"),
        ("top_p", "1.01", "top_p: expected a number from 0 to 1, got 1.01"),
        ("min_p", "nan", "min_p: expected a number from 0 to 1, got nan"),
        ("seed", str(2**63), f"seed: expected {-(2**63)} to {2**63 - 1}, got {2**63}"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    name: str, value: str, told: str, path: Path, capsys: Capture
) -> None:
    words = [path, "a", "--temperature", "1", f"{option(name)}={value}"]
    assert told in refuse(capsys, "run", *words)


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p", "seed"])
def test_filters_need_a_temperature(name: str, path: Path, capsys: Capture) -> None:
    told = refuse(capsys, "run", path, "a", option(name), "1")
    assert f"{option(name)}: expected with --temperature above 0, got without it" in told


def test_one_token_has_no_speed_of_the_text(path: Path, capsys: Capture) -> None:
    assert main(["run", str(path), "", "--tokens", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("prompt: 1 tokens in ")


def test_the_model_is_read_under_a_bar(path: Path) -> None:
    """Where a person looks, and the bar is gone when the text comes."""
    status, shown = in_terminal(100, "run", path, "abc", "--tokens", "2")
    assert status == 0
    assert "digest" not in shown
    assert shown.splitlines()[-1].startswith("text: 1 tokens in ")


def test_what_is_refused_is_told_in_one_line(path: Path, tmp_path: Path, capsys: Capture) -> None:
    other = write(tmp_path / "other.gguf", architecture="llama")
    told = refuse(capsys, "run", other, "a")
    assert f"{other}: metadata 'general.architecture': expected 'gemma3', got 'llama'" in told
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:-100])
    assert f"{cut}: not a valid GGUF file: " in refuse(capsys, "run", cut, "a")
    cut.write_bytes(path.read_bytes()[:100])
    assert f"{cut}: not a valid GGUF file: " in refuse(capsys, "run", cut, "a")
    assert "No such file" in refuse(capsys, "run", tmp_path / "none.gguf", "a")
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    assert "not a valid GGUF file" in refuse(capsys, "run", text, "a")
    told = refuse(capsys, "run", path, "Z" * CONTEXT, "--tokens", "10")
    assert f"expected at most {CONTEXT - 10} tokens beside 10 that are made" in told
    assert told.endswith(f"as the model takes {CONTEXT}; got {CONTEXT + 1}\n")
    assert "expected host, cuda or cuda:N, got 'gpu'" in refuse(
        capsys, "run", path, "a", "--device", "gpu"
    )
    assert "--tokens" in refuse(capsys, "run", path, "a", "--tokens", "0")


@pytest.mark.usefixtures("no_gpu")
def test_a_device_that_is_not_there_is_refused(path: Path, capsys: Capture) -> None:
    for command in (["run", path, "a"], ["audit", "--network", path]):
        told = refuse(capsys, *command, "--device", "cuda:0")
        assert "cuda:0: " in told


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planq, "devices", lambda: ())


# --- The audit


@pytest.mark.usefixtures("no_gpu")
def test_all_devices_and_all_ways_have_one_digest(path: Path, capsys: Capture) -> None:
    assert main(["audit", "--network", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == "one digest in 6 runs on host"
    told = report(capsys, "audit", "--network", path)
    assert told["equal"] is True
    assert {each["way"] for each in told["found"]} == set(audit.WAYS)
    assert [each["device"] for each in told["found"]] == ["host, 1 thread"] * 3 + ["host"] * 3
    (digest,) = {each["digest"] for each in told["found"]}
    assert all(digest in line for line in printed.splitlines()[3:-2])


@pytest.mark.usefixtures("no_gpu")
def test_another_digest_is_another_status(
    path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where one way computes another bit."""
    completed = audit.completed

    def another(network: Gemma3, prompts: Any, most: int, **way: Any) -> Any:
        if way["chunk"] == 3:
            network.weights["output_norm"][0] += 1
        return completed(network, prompts, most, **way)

    monkeypatch.setattr(audit, "completed", another)
    assert main(["audit", "--network", str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 DIGESTS in 6 runs on host"


def test_a_network_s_audit_refuses_other_files(tmp_path: Path, capsys: Capture) -> None:
    other = write(tmp_path / "other.gguf", architecture="llama")
    told = refuse(capsys, "audit", "--network", other, "--device", "host")
    assert "expected 'gemma3', got 'llama'" in told
