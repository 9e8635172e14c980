"""What is fitted to the inputs of layers is the same on the GPU as on the host, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cli import test_gptq, test_scale
from cli.files import checkpoint, weight
from gpu.test_command_line import GROUPED, assert_same_files, on_both

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("scheme", GROUPED)
def test_gptq_makes_the_same_codes_bit_for_bit(tmp_path: Path, scheme: str, dtype: str) -> None:
    """Its sums are the host's on both; ranges, and what codes restore, come of the device."""
    source = checkpoint(tmp_path / "in.st", {test_gptq.NAME: weight(24, 192, dtype)})
    fed = checkpoint(tmp_path / "fed.st", {test_gptq.NAME: test_gptq.inputs(300, 192)})
    options = ("--group-size", "64", "--search", "mse", "--layer-inputs", str(fed))
    assert_same_files(source, "--scheme", scheme, *options, *test_gptq.GPTQ)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "bert"])
def test_a_model_is_scaled_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    """Errors of the search are sums of the host, of what codes restore on the device."""
    source = tmp_path / "model"
    fed = test_scale.fed(test_scale.made(kind, source), tmp_path / "fed.st")
    options = ("--layer-inputs", str(fed), *test_scale.GROUPS)
    targets = on_both("scale", source, *options)
    names = sorted(path.name for path in targets[0].iterdir())
    assert "model.safetensors" in names
    assert names == sorted(path.name for path in targets[1].iterdir())
    for name in names:
        assert (targets[0] / name).read_bytes() == (targets[1] / name).read_bytes(), name
