"""examples/engine_rust, as cargo builds it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from c.programs import ROOT, place
from support.docs import fenced

EXAMPLE = ROOT / "examples" / "engine_rust"


def test_it_runs_a_plan(tmp_path: Path) -> None:
    """Without a dependency or the network; what it prints is what its page says."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not installed: examples/engine_rust was neither built nor run")
    settings = {"PLANQ_DIR": str(place("--library").parent), "RUSTFLAGS": "-D warnings"}
    command = [cargo, "run", "--quiet", "--offline", "--locked", "--target-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=EXAMPLE, env=os.environ | settings, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines == fenced(EXAMPLE / "README.md", "text")[0].splitlines()
    x = np.array([[0.5, -1, 127, 3], [1, 2, -4, 0]], np.float32)
    scale = np.abs(x).max(axis=1) / np.float32(127)
    codes = np.rint(x / scale[:, None]).astype(int)
    rows = [f"{row.tolist()}, scale {s:.6f}" for row, s in zip(codes, scale, strict=True)]
    assert lines[1:3] == rows
