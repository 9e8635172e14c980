"""A file that somebody writes to while it is read: a sentence, never a signal, never a trace."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cli.commands import refuse, report
from cli.files import checkpoint, planq_process, weight

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

# {path} is an expression.
SHRINK = """
import itertools, os, pathlib
import {module} as module
real, calls = {owner}.{function}, itertools.count(1)
def meddle(*arguments, **named):
    if next(calls) == {call}:
        os.truncate({path}, {size})
    return real(*arguments, **named)
{owner}.{function} = meddle
"""


def shrink(
    module: str, owner: str, function: str, path: str, call: int = 1, size: int = 2000
) -> str:
    """Python that shrinks a file as a function of planq is called for the n-th time."""
    return SHRINK.format(
        module=module, owner=owner, function=function, path=path, call=call, size=size
    )


def fail(tmp_path: Path, before: str, *arguments: object) -> str:
    """Runs a command that has to fail as usual, and to leave nothing; returns what it says."""
    there = sorted(path.name for path in tmp_path.iterdir())
    child = planq_process(*arguments, before=before)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (2, ""), err
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("module", "owner", "function", "size"),
    [
        ("planq.executors", "module.HostExecutor", "run", 2000),
        ("planq.checkpoint.job", "module", "signal_to_noise_db", 2000),
        ("planq.checkpoint.files", "module.os", "pread", 20),
        ("planq.checkpoint.files", "module.os", "pread", 0),
        ("planq.checkpoint.job", "module", "is_quantized", 1),
    ],
)
def test_an_input_that_shrinks_is_an_error(
    tmp_path: Path, module: str, owner: str, function: str, size: int
) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(256, 1024), "v": weight(256, 1024)})
    before = shrink(module, owner, function, repr(str(source)), size=size)
    said = fail(tmp_path, before, "quantize", source, tmp_path / "o", "--scheme", "nf4")
    assert said == f"planq: error: {source}: the file changed while it was read\n"


def test_a_quantized_input_that_shrinks_is_an_error(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(256, 1024), "v": weight(256, 1024)})
    quantized = tmp_path / "q.st"
    report(capsys, "quantize", source, quantized, "--scheme", "int8-channel")
    before = shrink("planq.executors", "module.HostExecutor", "run", repr(str(quantized)))
    said = fail(tmp_path, before, "dequantize", quantized, tmp_path / "o")
    assert said == f"planq: error: {quantized}: the file changed while it was read\n"


@pytest.mark.parametrize("function", ["pread", "preadv"])
def test_a_disk_that_fails_is_an_error_that_names_the_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 8)})
    monkeypatch.setattr(os, function, fail)
    line = refuse(capsys, "quantize", source, tmp_path / "o", "--scheme", "nf4")
    assert line == f"planq: error: {source}: Input/output error\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


@pytest.mark.parametrize(
    ("module", "owner", "function", "call"),
    [
        ("planq.checkpoint.job", "module", "restore", 1),
        # Twice on the codes in memory, then on what was read back.
        ("planq.checkpoint.stored", "module.ScaledWeight", "inputs", 3),
    ],
)
def test_an_output_that_shrinks_before_it_is_read_back_is_an_error(
    tmp_path: Path, module: str, owner: str, function: str, call: int
) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(256, 1024), "v": weight(256, 1024)})
    partial = f"next(pathlib.Path({str(tmp_path)!r}).glob('.planq-*'))"
    before = shrink(module, owner, function, partial, call)
    arguments = ("quantize", source, tmp_path / "o", "--scheme", "int8-channel", "--verify")
    said = fail(tmp_path, before, *arguments)
    assert "changed while it was read" in said
