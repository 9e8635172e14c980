"""Running the command line in this process, and what may come of it."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from planq.cli import main
from support.hostile import bounded

if TYPE_CHECKING:
    import pytest

    Capture = pytest.CaptureFixture[str]


def report(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """Runs a command with --json and returns what it printed; nothing else may be printed."""
    status = main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    values: dict[str, Any] = json.loads(printed.out)
    return values


def marked(capsys: Capture, *arguments: object) -> dict[str, Any]:
    """The same for a command that is done, but warns of one weight."""
    status = main([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    warning = "planq: warning: 1 weight has values that are not finite\n"
    assert (status, printed.err) == (1, warning)
    values: dict[str, Any] = json.loads(printed.out)
    return values


def refuse(capsys: Capture, *arguments: object) -> str:
    """Runs the command line, checks that it failed in one line on stderr, and returns the line."""
    status = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert status == 2
    assert printed.out == ""
    assert printed.err.startswith("planq: error: ")
    assert printed.err.count("\n") == 1
    return printed.err


def quietly(*arguments: object) -> tuple[int, str]:
    """Runs the command line: its status, and what it says on stderr."""
    said = io.StringIO()
    with bounded(), redirect_stdout(io.StringIO()), redirect_stderr(said):
        status = main([str(argument) for argument in arguments])
    return status, said.getvalue()
