"""examples/minilm_weight_only.py: products of 4-bit weights, and rows that are computed alone."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch

import minilm_torch
from cli import demo_model
from cli.commands import report
from cli.files import Array, load
from planq.audit.ops.affine import microscaling
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem, dynamic_range_quantize
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.ops.codebook.reference import table
from planq.audit.ops.linear.float_sums import groups_sm90
from planq.audit.reference.formats import unpack_nibbles
from support import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

NAMES = list(examples.ENCODERS["minilm_weight_only"])
SHAPE, ROWS = (24, 384), 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a model that is small."""
    return demo_model.write(tmp_path_factory.mktemp("model")).parent


def test_each_scheme_has_one_digest_and_embeddings_that_are_near(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine with neither a GPU nor transformers."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert examples.encode("minilm_weight_only", folder) == 0
    told = capsys.readouterr().out
    _, *parts = re.split(r"^36 products in (\w+), .*\n", told, flags=re.MULTILINE)
    assert parts[::2] == NAMES
    for text in parts[1::2]:
        assert re.search(r"^cpu: cosine 0\.9\d+ on average", text, re.MULTILINE)
        digests = re.findall(r"^cpu, (?:alone|together|reversed): (\w{64})$", text, re.MULTILINE)
        assert len(digests) == 3
        assert len(set(digests)) == 1
        assert "cpu, rows alone: 36 of 36 products have the bits that they have among" in text


def integers(x: Array, dtype: str, mode: str) -> tuple[Array, Array, int]:
    """Codes less zero points, scales, and how many terms share one."""
    problem = Problem(SHAPE, output_dtype=dtype, scope=("group", 128, 1), mode=mode)
    made = dynamic_range_quantize(problem, x)
    codes = unpack_nibbles(made.output, SHAPE[1], "low_first").astype(np.int32)
    if made.zero_point is None:
        codes = (codes ^ 8) - 8
    else:
        codes -= np.repeat(made.zero_point, 128, axis=1)
    return codes, made.scale, 128


def nf4(x: Array) -> tuple[Array, Array, int]:
    """The table's values, and the absmax of blocks."""
    problem = BlockwiseQuantizeProblem(
        shape=SHAPE, input_dtype="float32", output_dtype="uint4", codebook="nf4", block_size=64
    )
    made = problem.expected({"input": x})
    codes = unpack_nibbles(made["output"], x.size, "high_first").reshape(SHAPE)
    return table("nf4")[codes], made["absmax"].reshape(SHAPE[0], -1), 64


def mxfp4(x: Array) -> tuple[Array, Array, int]:
    """The values of e2m1, and powers of two."""
    made = microscaling.mx(x, "float4_e2m1fn", round_up=False)
    scales = microscaling.scale_values(made.scales, "mx", np.float32(1))
    return microscaling.code_values(made.codes, "float4_e2m1fn"), scales, 32


REFERENCES: dict[str, Callable[[Array], tuple[Array, Array, int]]] = {
    "int4_group128": lambda x: integers(x, "int4", "symmetric"),
    "uint4_group128": lambda x: integers(x, "uint4", "asymmetric"),
    "nf4_block64": nf4,
    "mxfp4": mxfp4,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_product_is_that_of_the_contract(name: str) -> None:
    """Codes and scales of the references, and sums that meet their scales."""
    drawn = np.random.default_rng(1)
    weight = (drawn.standard_normal(SHAPE) * 0.1).astype(np.float32)
    bias, x = (drawn.standard_normal(n).astype(np.float32) for n in (SHAPE[0], (ROWS, SHAPE[1])))
    kind = examples.load("minilm_weight_only").KINDS[name]
    found = kind(torch.from_numpy(weight), torch.from_numpy(bias))(torch.from_numpy(x)).numpy()
    values, scale, size = REFERENCES[name](weight)
    factors = (each.astype(np.float32).astype(ml_dtypes.bfloat16) for each in (x, values))
    assert found.tobytes() == (groups_sm90(*factors, scale, size) + bias).tobytes()


@pytest.mark.parametrize(
    ("name", "scheme", "part"),
    [("int4_group128", "int4-group128", "_scale"), ("nf4_block64", "nf4", ".absmax")],
)
def test_codes_are_those_of_planq_quantize(
    name: str,
    scheme: str,
    part: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, target = folder / "model.safetensors", tmp_path / "quantized.safetensors"
    report(capsys, "quantize", source, target, "--scheme", scheme)
    stored, layer = load(target).tensors, "encoder.layer.5.output.dense"
    weight = torch.from_numpy(load(source).tensors[f"{layer}.weight"].copy())
    made = examples.load("minilm_weight_only").KINDS[name].quantize(weight).operands
    codes, scale = list(made.values())[:2]
    assert codes.numpy().tobytes() == stored[f"{layer}.weight"].tobytes()
    assert scale.numpy().tobytes() == stored[f"{layer}.weight{part}"].tobytes()


class Centred(minilm_torch.Product):
    """A product whose rows depend on each other."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(dim=tuple(range(x.ndim - 1)))


class Doubled(minilm_torch.Product):
    """One whose rows do not."""

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_product_with_other_bits_for_a_row_alone_is_named() -> None:
    x = (torch.arange(24.0).reshape(2, 3, 4),)
    fed: list[Any] = [
        minilm_torch.Fed("first", Centred(), x),
        minilm_torch.Fed("second", Doubled(), x),
    ]
    told = str(minilm_torch.rows_alone(fed, [3, 2], "cpu"))
    assert told.splitlines() == [
        "1 of 2 products have the bits that they have among all rows",
        "  other bits: first",
    ]
