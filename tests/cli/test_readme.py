"""The commands that README shows do what it says, as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import planq
from cli.files import Array, checkpoint, load, weight
from support import docs
from support.bitsandbytes_host import bnb
from support.tensors import from_torch

ROWS = 64


def model() -> dict[str, Array]:
    """What a language model of one layer is made of, under its usual names."""
    layer = "model.layers.0"
    linear = ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
    return {
        "model.embed_tokens.weight": weight(100, ROWS, "bfloat16"),
        **{f"{layer}.{name}.weight": weight(ROWS, ROWS, "bfloat16") for name in linear},
        f"{layer}.input_layernorm.weight": weight(1, ROWS, "bfloat16").reshape(ROWS),
        "lm_head.weight": weight(100, ROWS, "bfloat16"),
    }


def printed() -> list[str]:
    """The lines of the block under the heading."""
    text = (docs.ROOT / "README.md").read_text().split("\n## The command line\n")[1]
    block = re.search(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the lines were typed, one after another, beside a model."""
    folder = tmp_path_factory.mktemp("readme")
    checkpoint(folder / "model.safetensors", model(), {"format": "pt"})
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in printed():
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=folder,
            env={**os.environ, "PATH": path, "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        # A build without CUDA has no kernel for a GPU, and says so by this status.
        allowed = 1 if "sm_90" in line and not planq.build_info().cuda else 0
        assert (done.returncode, done.stderr) == (allowed, ""), line
        assert ">" in line or done.stdout, line
    return folder


def test_every_line_works_as_it_is_printed(folder: Path) -> None:
    lines = printed()
    for command in ("quantize", "dequantize", "info", "ops", "explain"):
        assert any(line.startswith(f"planq {command}") for line in lines)
    planq.Descriptor.from_json((folder / "desc.json").read_text())
    back = load(folder / "back.safetensors").tensors
    assert {name: values.dtype.name for name, values in back.items()} == {
        name: values.dtype.name for name, values in model().items()
    }


def test_the_file_for_transformers_has_states_of_linear_layers_alone(folder: Path) -> None:
    """It makes 4-bit parameters of these, and takes everything else as it is."""
    loaded = safetensors.torch.load_file(folder / "nf4.safetensors")
    back = load(folder / "nf4.safetensors").tensors
    for name, values in model().items():
        if "_proj" not in name:
            assert back[name].tobytes() == values.tobytes()
            assert not [key for key in loaded if key.startswith(f"{name}.")]
            continue
        keys = {key.removeprefix(f"{name}."): loaded[key] for key in loaded if f"{name}." in key}
        state = bnb.QuantState.from_dict(keys, torch.device("cpu"))
        assert (state.quant_type, state.nested, state.shape) == ("nf4", True, values.shape)
        want = values.astype(np.float32)
        found = from_torch(bnb.dequantize_4bit(loaded[name], state)).astype(np.float32)
        # Half of NF4's largest step, and of one in the first decade of the map of the statistics.
        error, absmax = np.abs(found - want).max(axis=1), np.abs(want).max(axis=1)
        assert (error <= 0.155 * absmax + 0.01 * absmax.max()).all()
