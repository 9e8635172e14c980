"""Exit statuses: 2 means that nothing was written; 3, that only the report could not be printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import planq
from cli.commands import report
from cli.files import checkpoint, load, planq_process, weight
from planq.checkpoint import files as checkpoint_module
from planq.cli import main
from planq.cli import quantize as quantize_module

if TYPE_CHECKING:
    from collections.abc import Iterator

Capture = pytest.CaptureFixture[str]

NAME = "größe.weight"
COMMANDS = ("quantize", "dequantize")
READERS = {"gone": "Broken pipe", "full": "No space left on device", "closed": "stdout is closed"}
QUESTIONS = {"info": (), "ops": ("--json",), "explain": ("-",)}
DESC = planq.PackInt4Descriptor(shape=(2, 2)).to_json()


@pytest.fixture
def stdout(request: pytest.FixtureRequest) -> Iterator[int]:
    """A descriptor to write to that fails in the way that the test names."""
    if request.param == "gone":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full" if request.param == "full" else os.devnull, os.O_WRONLY)
    yield writing
    os.close(writing)


def prepare(tmp_path: Path, capsys: Capture, command: str) -> list[str]:
    """Makes the input of a command; returns the command line."""
    source, target = checkpoint(tmp_path / "in.st", {NAME: weight(4, 64)}), tmp_path / "out.st"
    if command == "quantize":
        return ["quantize", str(source), str(target), "--scheme", "nf4"]
    report(capsys, "quantize", source, tmp_path / "q.st", "--scheme", "nf4")
    return ["dequantize", str(tmp_path / "q.st"), str(target)]


def run(arguments: list[str], writing: int, *, closed: bool = False) -> tuple[int, str]:
    """Runs a command line whose stdout is this: its status, and what it says on stderr."""
    close = "exec 1>&-; " if closed else ""
    done = subprocess.run(
        ["/bin/sh", "-c", f'{close}exec "$0" -m planq.cli "$@"', sys.executable, *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        input=DESC,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("stdout", READERS, indirect=True)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_report_that_cannot_be_printed_is_not_a_failure_to_write(
    tmp_path: Path, capsys: Capture, command: str, stdout: int, request: pytest.FixtureRequest
) -> None:
    arguments = prepare(tmp_path, capsys, command)
    reader = request.node.callspec.params["stdout"]
    status, said = run(arguments, stdout, closed=reader == "closed")
    done = f"{tmp_path / 'out.st'} is complete, but its report could not be printed"
    assert said == f"planq: warning: {done}: {READERS[reader]}\n"
    assert status == 3
    assert NAME in load(tmp_path / "out.st").tensors


@pytest.mark.parametrize("stdout", READERS, indirect=True)
@pytest.mark.parametrize("command", QUESTIONS)
def test_an_answer_that_cannot_be_printed_is_an_error(
    command: str, stdout: int, request: pytest.FixtureRequest
) -> None:
    reader = request.node.callspec.params["stdout"]
    status, said = run([command, *QUESTIONS[command]], stdout, closed=reader == "closed")
    assert status == 2
    # Who stops reading knows.
    assert said == ("" if reader == "gone" else f"planq: error: {READERS[reader]}\n")


def test_a_name_that_stdout_has_no_letters_for_is_printed_escaped(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "in.st", {NAME: weight(4, 64)})
    arguments = ("quantize", source, tmp_path / "out.st", "--scheme", "int8-tensor")
    child = planq_process(*arguments, before="sys.stdout.reconfigure(encoding='ascii')")
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert r"gr\xf6\xdfe.weight" in out


def test_a_warning_is_not_lost_with_the_report(tmp_path: Path) -> None:
    values = weight(4, 64)
    values[0, 0] = np.nan
    source = checkpoint(tmp_path / "in.st", {"w": values})
    arguments = ["quantize", str(source), str(tmp_path / "out.st"), "--scheme", "nf4"]
    with Path("/dev/full").open("w") as full:
        status, said = run(arguments, full.fileno())
    assert status == 3
    assert "1 weight has values that are not finite\n" in said
    assert said.count("\n") == 2


@pytest.mark.parametrize("moment", ["name given", "report"])
def test_a_stop_after_the_output_has_its_name_does_not_say_that_nothing_was_written(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    def stop(*arguments: object, **options: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    if moment == "report":
        monkeypatch.setattr(quantize_module, "show", stop)
    else:
        monkeypatch.setattr(checkpoint_module, "_sync_folder", stop)
    arguments = prepare(tmp_path, capsys, "quantize")
    assert main(arguments) == 3
    said = capsys.readouterr().err
    assert said.endswith("is complete, but its report could not be printed: interrupted\n")
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.st", "out.st"]


def test_a_run_after_one_that_wrote_its_output_fails_as_usual(
    tmp_path: Path, capsys: Capture
) -> None:
    arguments = prepare(tmp_path, capsys, "quantize")
    assert main(arguments) == 0
    capsys.readouterr()
    assert main(arguments) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["quantize", "dequantize"])
def test_the_help_tells_the_statuses(capsys: Capture, command: str) -> None:
    assert main([command, "--help"]) == 0
    words = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "2 if nothing was written" in words
    assert "3 if" in words
