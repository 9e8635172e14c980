"""`planq layers` lists what stands in a checkpoint of others, and the operator for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import planq
from checkpoint import peers
from cli.commands import refuse, report
from planq.checkpoint import read_layers
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    Capture = pytest.CaptureFixture[str]


def test_layers_are_listed(tmp_path: Path, capsys: Capture) -> None:
    folder = peers.gptq().save(tmp_path / "model")
    assert main(["layers", str(folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    row = next(line for line in told if "q_proj" in line).split()
    assert row[:6] == ["model.q_proj", "gptq", "32", "x", "256", "linear_4bit"]
    assert " ".join(row[6:]) == "uint4 groups of 128, zero points 5.28 kB"
    assert told[-1] == "1 layer (1 of gptq), 5.28 kB; 1 other tensor"


def test_json_has_the_descriptors(tmp_path: Path, capsys: Capture) -> None:
    """Which are those of the library."""
    made, _ = peers.gpt_oss()
    folder = made.save(tmp_path / "model")
    told = report(capsys, "layers", folder, "--check")
    assert told["checked"]
    assert told["rest"] == ["model.norm.weight"]
    with read_layers(folder) as layers:
        for row, layer in zip(told["layers"], layers, strict=True):
            assert row["name"] == layer.name
            assert row["parts"]["weight_scale"] == f"{made.name}_scales"
            desc = planq.Descriptor.from_dict(row["descriptor"])
            assert desc == layer.descriptor(1, "bfloat16")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (peers.packed(), "int4 groups of 128"),
        (peers.packed(bits=8, size=None), "int8 rows"),
        (peers.float4(), "float4_e2m1fn groups of 32"),
    ],
)
def test_what_shares_a_scale_is_told(
    tmp_path: Path, capsys: Capture, made: peers.Made, words: str
) -> None:
    assert main(["layers", str(made.save(tmp_path / "model")), "--check"]) == 0
    told = capsys.readouterr().out
    assert words in " ".join(told.split())
    assert "every value read" in told


def test_values_are_read_if_asked_for(tmp_path: Path, capsys: Capture) -> None:
    made = peers.awq()
    made.tensors["model.q_proj.scales"][0, 0] = np.nan
    folder = made.save(tmp_path / "model")
    assert main(["layers", str(folder)]) == 0
    capsys.readouterr()
    line = refuse(capsys, "layers", folder, "--check")
    assert "'model.q_proj.scales': expected finite numbers, found 1 of 128 that are not" in line


def test_activations_are_left_out_if_asked_for(tmp_path: Path, capsys: Capture) -> None:
    made = peers.float4(size=16)
    assert made.config is not None
    made.config["config_groups"]["group_0"]["input_activations"] = {"num_bits": 4}
    folder = made.save(tmp_path / "model")
    assert "input_activations: expected null" in refuse(capsys, "layers", folder)
    assert report(capsys, "layers", folder, "--weights-only")["layers"]
