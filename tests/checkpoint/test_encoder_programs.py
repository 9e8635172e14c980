"""examples/minilm_program.py: recordings and their check, exit status, the command line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

import minilm_torch as shared
from cli import demo_model
from minilm_program import Recording
from support import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.parametrize("name", examples.ENCODERS),
]


@pytest.fixture(autouse=True)
def host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a GPU nor transformers; some sentences, short and long, with padding among them."""
    monkeypatch.setattr(shared, "SENTENCES", shared.SENTENCES[::4])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "transformers", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model that is small."""
    return demo_model.write(tmp_path).parent


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of what a program records of that model, which takes longer than its check."""

    @cache
    def record(name: str) -> Path:
        folder = demo_model.write(tmp_path_factory.mktemp(name)).parent
        assert examples.encode(name, folder, "--record", folder / "minilm.npz") == 0
        return folder

    return record


@pytest.fixture
def recording(tmp_path: Path, recorded: Callable[[str], Path]) -> Callable[[str], Path]:
    """A copy of a program's recording, for one test."""

    def copy(name: str) -> Path:
        for suffix in ("npz", "json"):
            shutil.copy(recorded(name) / f"minilm.{suffix}", tmp_path)
        return tmp_path / "minilm.npz"

    return copy


def test_what_one_machine_recorded_another_checks_without_the_model(
    name: str,
    recording: Callable[[str], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = recording(name)
    for package in ("safetensors", "safetensors.torch", "tokenizers"):
        monkeypatch.setitem(sys.modules, package, None)
    capsys.readouterr()
    assert examples.encode(name, "--check", file) == 0
    assert capsys.readouterr().out.splitlines() == examples.checked(name, "cpu")


def test_a_record_is_checked_with_activations_and_without(
    name: str, recording: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(name)
    record = file.with_suffix(".json")
    lines = examples.checked(name, "cpu")
    for times in (2, 1):
        capsys.readouterr()
        assert examples.encode(name, "--check", record) == 0
        told = capsys.readouterr().out.splitlines()
        assert [line for line in told if line.startswith("cpu, ")] == lines * times
        file.unlink(missing_ok=True)
    told = json.loads(record.read_text())
    told["products"][-1]["hashed"] = told["products"][-1]["digest"]
    record.write_text(json.dumps(told))
    assert examples.encode(name, "--check", record) == 1
    other = told["products"][-1]["name"]
    assert capsys.readouterr().out.count(f"  another digest: {other}\n") == 3


def test_of_other_activations_there_is_no_answer(
    name: str, recording: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(name)
    read = Recording.read(file)
    read.arrays[read.products[-1]["operands"][0]].flat[0] ^= 1
    read.write(file)
    assert examples.encode(name, "--check", file.with_suffix(".json")) == 2
    assert "no answer for the activations" in capsys.readouterr().out


@pytest.mark.parametrize("part", ["made_of", "operands"])
def test_a_sign_that_a_recording_lost_is_another_digest(
    name: str, part: str, recording: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    file = recording(name)
    read = Recording.read(file)
    entry = read.products[-1]
    damaged = entry[part][0]
    counts = [examples.ENCODERS[name][e["scheme"]] for e in read.products if damaged in e[part]]
    upper = read.arrays[damaged][0]
    # Of the greatest: where quantizing leaves 0 of a number, its sign has no part in the digest.
    upper.flat[(upper & 0x7F).argmax()] ^= 0x80
    read.write(file)
    capsys.readouterr()
    assert examples.encode(name, "--check", file) == 1
    told = capsys.readouterr().out
    for count in counts:
        lines = told.count(f"{count - 1} of {count} products are the host's\n")
        assert lines == 3 * counts.count(count)
    assert set(re.findall("^  another digest: (.*)$", told, re.MULTILINE)) == {entry["name"]}


def test_another_programs_recording_has_none_of_its_products(
    name: str, recording: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for other in set(examples.ENCODERS) - {name}:
        file = recording(other)
        capsys.readouterr()
        assert examples.encode(name, "--check", file) == 1
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4 * len(examples.ENCODERS[name])
        assert all(": 0 of 0 products " in line for line in lines)


@pytest.mark.parametrize(
    ("function", "damage"),
    [
        ("digest", lambda fed, lengths, batches, device: len(batches)),
        ("embeddings", lambda states, mask: torch.full((1, 1), torch.nan)),
        ("rows_alone", lambda fed, lengths, device: shared.Rows(1, ["a"])),
    ],
)
def test_it_fails_where_digests_embeddings_or_rows_differ(
    name: str, function: str, damage: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, function, damage)
    assert examples.encode(name, folder) == 1


@pytest.mark.parametrize("words", [[], ["model", "--check", "minilm.npz"]])
def test_it_takes_a_folder_or_a_file(name: str, words: list[str]) -> None:
    with pytest.raises(SystemExit):
        examples.encode(name, *words)
