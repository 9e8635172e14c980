"""planq replay computes recorded runs again; a record is read as if anybody had written it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planq
from cli.commands import refuse, report
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, inputs_of
from planq.audit.runner import Bench
from planq.cli import main
from support.recorded import Record, operand, recorded, run_files, sha256
from support.samples import make_descriptor, make_sample

Capture = pytest.CaptureFixture[str]

HOST = planq.HOST
RUNS = 3


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one plan on different inputs, and one of another."""
    folder = tmp_path_factory.mktemp("records")
    sample, plan = make_sample(), planq.Plan.select(HOST, make_descriptor())
    desc = planq.FillDescriptor(shape=(planq.Dim("n", max=9), 2), output_dtype="float32")
    fill = planq.Plan.select(HOST, desc)
    with recorded(folder):
        for _ in range(RUNS):
            plan.run(HOST, None, sample.args())
            sample.x += 1
        fill.run(HOST, None, planq.FillArgs(output=np.empty((4, 2), np.float32), value=0.5))
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(original, tmp_path / "records"))


def change(folder: Path, number: int, edit: Callable[[Record], Any]) -> Record:
    """Changes a run's file, and returns what it then holds."""
    path = run_files(folder)[number]
    record: Record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))
    return record


def entry(record: Record, name: str) -> Record:
    """What a record says of an operand, to be changed."""
    found: Record = next(each for each in record["operands"] if each["name"] == name)
    return found


# --- What is answered


def test_runs_of_this_build_have_the_same_bits(original: Path, capsys: Capture) -> None:
    """And every count of samples is shown."""
    assert main(["replay", str(original)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines() == [
        "4 runs on host: 4 equal, 0 differs, 0 not comparable",
        "samples: 4 recorded, 0 dropped, 0 captured, 0 failed",
    ]
    told = report(capsys, "replay", original)
    assert (told["equal"], told["first_difference"]) == (4, None)
    assert [run["operator"] for run in told["runs"]] == ["dynamic_range_quantize"] * RUNS + ["fill"]


def test_the_first_run_that_differs_is_named(folder: Path, capsys: Capture) -> None:
    """By a digest in the third run, and by a byte of an input in the second."""
    wrong = "0" * 64

    def plant(record: Record) -> None:
        entry(record, "output")["after"] = wrong

    change(folder, 2, plant)

    def exchange(record: Record) -> None:
        digest = entry(record, "input")["before"]
        data = bytearray((folder / "blobs" / digest).read_bytes())
        data[2] ^= 0x40  # of the first element, so of the first row
        entry(record, "input")["before"] = sha256(bytes(data))
        (folder / "blobs" / sha256(bytes(data))).write_bytes(data)

    record = change(folder, 1, exchange)
    assert main(["replay", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    name = "/".join(run_files(folder)[1].parts[-2:])
    assert lines[0].startswith(f"{name}: run 1 of dynamic_range_quantize.token/host/f32_s8 on ")
    assert lines[1] == f"  output: recorded SHA-256 {operand(record, 'output')['after']}"
    assert lines[2].startswith("  output: SHA-256 here     ")
    assert "4 runs on host: 2 equal, 2 differs, 0 not comparable" in lines
    assert main(["replay", str(folder), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["first_difference"] == told["runs"][1]
    [difference] = told["runs"][2]["differences"]
    assert (difference["operand"], difference["recorded"]) == ("output", wrong)


@pytest.mark.parametrize("operator", OPERATORS)
def test_runs_of_every_operator_are_computed_again(
    operator: str, tmp_path: Path, capsys: Capture
) -> None:
    """Lists, scalars, packed operands and workspaces among them."""
    cases = OPERATORS[operator].cases()
    chosen = min(cases, key=lambda case: case.size), cases[-1]
    with recorded(tmp_path):
        for case in chosen:
            bench = Bench(Host(), OPERATORS[operator].descriptor(case.problem))
            bench.load(inputs_of(case))
            bench.run()
    told = report(capsys, "replay", tmp_path)
    assert (told["equal"], len(told["runs"])) == (2, 2)


@pytest.mark.parametrize(
    ("determinism", "reason"),
    [
        ("not_guaranteed", "the plan promised nothing about its bits"),
        ("run_to_run", "RUN_TO_RUN is no promise for host and this build"),
        ("gpu_to_gpu", "GPU_TO_GPU is no promise for host and this build"),
    ],
)
def test_what_was_not_promised_is_not_compared(
    folder: Path, capsys: Capture, determinism: str, reason: str
) -> None:
    """There is no answer then, although the other runs are equal."""

    def weaken(record: Record) -> None:
        record["plan"]["guarantee"]["determinism"] = determinism
        record["device"] = record["plan"]["build_id"] = "another"
        record["backend"] = "cuda"

    change(folder, 0, weaken)
    assert main(["replay", str(folder)]) == 2
    printed = capsys.readouterr()
    assert printed.err == f"planq: error: 1 of 4 runs are not comparable: {reason}\n"
    assert "4 runs on host: 3 equal, 0 differs, 1 not comparable" in printed.out


def test_bits_that_are_exact_are_compared_with_those_of_another_device(
    folder: Path, capsys: Capture
) -> None:
    """By a kernel of this device, whatever kernel was pinned there."""

    def move(record: Record) -> None:
        sku = record["plan"]["sku"].replace("/host/", "/cuda/")
        record["plan"]["sku"] = record["plan"]["preference"]["sku"] = sku
        record["backend"], record["device"] = "cuda", "a GPU"

    change(folder, 0, move)
    told = report(capsys, "replay", folder)
    assert told["equal"] == 4
    assert told["runs"][0]["sku"].endswith("/host/f32_s8")


def test_a_device_that_is_not_there_is_named(original: Path, capsys: Capture) -> None:
    """As every command does."""
    assert "--device cuda:7: " in refuse(capsys, "replay", original, "--device", "cuda:7")


# --- What is refused


def test_a_folder_without_runs_is_no_answer(tmp_path: Path, capsys: Capture) -> None:
    """Empty, missing, a file, or with nothing but drops."""
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert "no recorded run" in refuse(capsys, "replay", tmp_path / "empty")
    for name in ("file", "none"):
        told = refuse(capsys, "replay", tmp_path / name)
        assert "expected a folder of recorded runs" in told
    with recorded(tmp_path / "drops", mebibytes=1):
        desc = planq.FillDescriptor(shape=(1 << 20,), output_dtype="float32")
        args = planq.FillArgs(output=np.empty(1 << 20, np.float32), value=0)
        planq.Plan.select(HOST, desc).run(HOST, None, args)
    assert "no recorded run (1 dropped)" in refuse(capsys, "replay", tmp_path / "drops")


def _set(*path: Any, to: Any) -> Callable[[Record], None]:
    def edit(record: Record) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = to

    return edit


def _drop(*path: Any) -> Callable[[Record], None]:
    def edit(record: Record) -> None:
        for key in path[:-1]:
            record = record[key]
        del record[path[-1]]

    return edit


FIELDS: dict[str, tuple[Callable[[Record], None], str]] = {
    "another format": (_set("format", to=2), "format: expected 1, got 2"),
    "a missing field": (_drop("time"), "time is missing"),
    "an unknown field": (_set("more", to=1), "more: there is no such field"),
    "no count": (_set("run", to=-1), "run: expected a count, got -1"),
    "a truth value": (_set("run", to=True), "run: expected a JSON integer, got True"),
    "no time": (_set("time", to="today"), "time: expected the form"),
    "a terminal escape": (_set("device", to="\x1b[2J"), "device: expected printable text"),
    "no backend": (_set("backend", to="tpu"), "backend: expected host or cuda, got 'tpu'"),
    "no plan": (_set("plan", to=[]), "plan: expected a JSON object, got []"),
    "no operator": (_set("plan", "descriptor", "op", to="x"), "plan.descriptor: "),
    "a wrong field": (_set("plan", "descriptor", "shape", to=[-1]), "plan.descriptor: "),
    "no preference": (_set("plan", "preference", "more", to=1), "plan.preference: "),
    "no rung": (_set("plan", "guarantee", "determinism", to="x"), "determinism: expected not_"),
    "no operands": (_set("operands", to={}), "operands: expected a JSON list"),
    "a missing operand": (_drop("operands", 0), "input: expected 1 of it"),
    "an unknown operand": (_set("operands", 0, "name", to="more"), "more: "),
    "no type": (_set("operands", 0, "dtype", to="int3"), "operands[0].dtype: expected an element"),
    "another type": (_set("operands", 0, "dtype", to="int32"), "input: expected"),
    "another shape": (_set("operands", 0, "shape", to=[32, 6]), "input: expected"),
    "a wrong extent": (_set("operands", 0, "shape", to=[6, -32]), "shape: expected extents"),
    "too many axes": (_set("operands", 0, "shape", to=[1] * 9), "shape: expected extents"),
    "no digest": (_set("operands", 0, "before", to="../../etc"), "before: expected the form"),
    "another size": (_set("operands", 0, "shape", to=[6, 33]), "expected a file of 792 bytes"),
    "a huge operand": (_set("operands", 1, "shape", to=[1 << 40, 1 << 40]), "bytes, this machine"),
    "no blob": (_set("operands", 0, "before", to="ab" * 32), "expected a file of 768 bytes"),
    "a digest too many": (_set("operands", 0, "after", to="ab" * 32), "input: expected the digest"),
    "a digest too few": (_drop("operands", 1, "after"), "output: expected the digests"),
    "no tensor": (
        _set("operands", 0, to={"name": "input", "dtype": "float32", "bits": "0" * 16}),
        "input: expected a tensor, got a number",
    ),
    "a member": (_set("operands", 0, "member", to=0), "input: expected 1 of it"),
}


@pytest.mark.parametrize("damage", FIELDS)
def test_a_damaged_field_is_named(folder: Path, capsys: Capture, damage: str) -> None:
    """With the file, in one line."""
    edit, words = FIELDS[damage]
    change(folder, 1, edit)
    told = refuse(capsys, "replay", folder)
    assert str(run_files(folder)[1]) in told
    assert words in told


def test_an_operand_that_is_there_twice_is_refused(folder: Path, capsys: Capture) -> None:
    """One would hide the other."""
    change(folder, 0, lambda record: record["operands"].append(record["operands"][0]))
    assert "input: expected 1 of it" in refuse(capsys, "replay", folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "not JSON: "),
        ('{"format": 1', "not JSON: "),
        ("[]", "expected a JSON object"),
        ('{"format": 1, "format": 1}', "not JSON: "),
        ('{"format": 1' + "0" * 5000 + "}", "not JSON: "),
        ("\xff\xfe", "not JSON: "),
    ],
    ids=["deep", "broken", "list", "twice", "long", "no text"],
)
def test_a_file_that_is_no_record_is_refused(
    folder: Path, capsys: Capture, text: str, words: str
) -> None:
    """However deep, long or broken."""
    run_files(folder)[0].write_bytes(text.encode("latin-1"))
    assert words in refuse(capsys, "replay", folder)


def test_a_file_is_a_plain_one_of_bounded_size(folder: Path, capsys: Capture) -> None:
    """No pipe that blocks, no link that leads elsewhere, no file that fills the memory."""
    path = run_files(folder)[0]
    path.unlink()
    for make in (
        lambda: os.mkfifo(path),
        lambda: path.symlink_to(run_files(folder)[1]),
        lambda: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    ):
        make()
        assert "expected a file of at most 16 MiB" in refuse(capsys, "replay", folder)
        path.unlink()


def test_bytes_that_were_changed_are_found(folder: Path, capsys: Capture) -> None:
    """A blob is what its name says, or no answer."""
    path = max((folder / "blobs").iterdir())
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert f"{path}: its bytes have another SHA-256" in refuse(capsys, "replay", folder)


def test_runs_that_were_taken_away_are_missed(folder: Path, capsys: Capture) -> None:
    """The last one, or one in between."""
    for number in (-1, 1):
        run_files(folder)[number].unlink()
        assert "runs are missing" in refuse(capsys, "replay", folder)


def test_what_a_killed_process_left_is_read(folder: Path, capsys: Capture) -> None:
    """It had no time to count its runs, and was writing another."""
    [path] = folder.glob("*/process.json")
    described = json.loads(path.read_text())
    described["counts"]["recorded"] = 1
    path.write_text(json.dumps(described))
    path.with_name(".00000004.json.1-0123456789abcdef").write_text('{"form')
    assert report(capsys, "replay", folder)["samples"]["recorded"] == 4
