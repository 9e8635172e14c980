"""`planq quantize` where a person looks: a progress bar, and lines that fit the window."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import pytest

from cli.files import checkpoint, weight

if TYPE_CHECKING:
    from pathlib import Path

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def in_terminal(columns: int, *arguments: object) -> tuple[int, str]:
    """Runs the command line in a terminal of this width: its status, and all that it showed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    hidden = ("COLUMNS", "NO_COLOR", "CI")
    env = {key: value for key, value in os.environ.items() if key not in hidden}
    child = subprocess.Popen(
        [sys.executable, "-m", "planq.cli", *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**env, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return child.wait(timeout=60), shown.decode()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with a weight of a long name."""
    name = "model.layers.0.self_attention.query_projection.weight"
    return checkpoint(tmp_path / "in.st", {name: weight(64, 256), "b.weight": weight(64, 256)})


@pytest.mark.parametrize("columns", [72, 80, 120])
def test_a_narrow_table_breaks_names_only(source: Path, columns: int) -> None:
    arguments = (source, source.with_name("out.st"), "--scheme", "int8-channel", "--table")
    status, shown = in_terminal(columns, "quantize", *arguments)
    assert status == 0
    assert "\x1b[?25l" in shown, "no progress bar hid the cursor"
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor stays hidden"
    lines = [line.rstrip() for line in ESCAPES.sub("", shown).split("\r\n")]
    row = next(line for line in lines if line.strip().startswith("b.weight"))
    assert re.search(r"\[1\] +\d\d\.\d\d +65\.5 kB +16\.6 kB +[0-9a-f]{12}\.\.\.$", row)
    legend = next(line for line in lines if line.startswith("[1] "))
    assert legend.startswith("[1] dynamic_range_quantize.channel/host/")


@pytest.mark.parametrize("columns", [60, 80, 260])
def test_a_summary_fits_the_window_and_the_eye(source: Path, columns: int) -> None:
    arguments = (source, source.with_name("out.st"), "--scheme", "int8-channel", "--verify")
    status, shown = in_terminal(columns, "quantize", *arguments)
    assert status == 0
    after_the_bar = shown[shown.rindex("\x1b[?25h") :]
    lines = [line.rstrip() for line in ESCAPES.sub("", after_the_bar).replace("\r", "").split("\n")]
    assert "2 weights 131 kB" in "".join(lines)
    assert 8 <= len(lines) <= 20
    assert max(map(len, lines)) <= min(columns, 100)
    assert re.search(r"digest of the output: *[0-9a-f]{64}$", "".join(lines)), lines


def test_json_is_not_disturbed_by_the_bar(source: Path) -> None:
    status, shown = in_terminal(
        80, "quantize", source, source.with_name("out.st"), "--scheme", "int8-tensor", "--json"
    )
    assert status == 0
    assert ESCAPES.sub("", shown).rstrip().endswith("}")
