"""`planq.audit`: what it compares, and that a wrong bit is found."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from planq import audit
from planq.audit import numbers, sections, tensor_cores
from planq.audit.ops.linear import float_sums
from planq.cli import main
from planq.executors import HostExecutor, Ran

if TYPE_CHECKING:
    from collections.abc import Mapping

    import planq
    from planq.executors import Bytes

ROWS = 16
TYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
PAIRS = [(name, name) for name in list(TYPES)[:2]]
PAIRS += itertools.product(list(TYPES)[2:], repeat=2)
FEW = 8 * 5 * ROWS * ROWS  # one product of each length in each class


class Wrong(HostExecutor):
    """A device that gives one bit of long sums otherwise, where e5m2 meets a weight of e4m3."""

    def run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], **extents: int) -> Ran:
        ran = super().run(plan, inputs, **extents)
        desc = plan.descriptor
        types = desc.input_dtype.value, desc.weight_dtype.value
        if types == ("float8_e5m2", "float8_e4m3fn") and desc.input_shape[-1] > 1000:
            ran.outputs["output"].view(np.uint32)[7] ^= 1
        return ran


def types_of(finding: audit.Finding) -> tuple[str, str]:
    return finding.input_dtype.value, finding.weight_dtype.value


def test_every_class_of_every_pair_of_types_is_compared() -> None:
    found = audit.probe(HostExecutor(), FEW)
    assert found.confirmed
    named = [(types_of(finding), finding.numbers) for finding in found.findings]
    assert named == list(itertools.product(PAIRS, audit.CLASSES))
    for finding in found.findings:
        assert finding.results == FEW // 8
        kernel = finding.sku, finding.body
        assert found.results(*kernel, finding.input_dtype, finding.weight_dtype) == FEW
        operator = "linear_fp8" if "float8" in finding.input_dtype.value else "matmul"
        assert finding.sku.startswith(f"{operator}/host/")


def test_a_wrong_bit_is_found_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_cores, "PAIRS", tensor_cores.PAIRS[3:5])
    found = audit.probe(Wrong(), FEW)
    assert not found.confirmed
    wrong = [finding for finding in found.findings if finding.differing]
    assert [finding.numbers for finding in wrong] == list(audit.CLASSES)
    for finding in wrong:
        assert types_of(finding) == ("float8_e5m2", "float8_e4m3fn")
        assert finding.differing == 1
        assert finding.example is not None
        terms, device, model = finding.example
        assert (terms, device ^ model) == (1008, 1)


def test_nothing_compared_confirms_nothing() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        audit.probe(HostExecutor(), 0)


def made(name: str, dtype: str) -> np.ndarray:
    """Numbers of a class, as float64."""
    bits = numbers.CLASSES[name](np.random.default_rng(5), (200, 128), numbers.FORMATS[dtype])
    assert bits.shape == (200, 128)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return bits.view(TYPES[dtype]).astype(np.float64)


@pytest.mark.parametrize("dtype", TYPES)
def test_classes_have_what_their_names_say(dtype: str) -> None:
    info = ml_dtypes.finfo(TYPES[dtype])
    largest, smallest = float(info.max), float(info.smallest_normal)
    sizes = {name: np.abs(made(name, dtype)) for name in audit.CLASSES}
    small = (sizes["subnormal"] > 0) & (sizes["subnormal"] < smallest)
    assert 0.1 < small.mean() < 0.6
    assert sizes["huge"].min() > largest / 16
    assert sizes["huge"].max() == largest
    special = made("special", dtype)
    assert np.isnan(special).any()
    assert np.isinf(special).any() == (dtype != "float8_e4m3fn")
    assert set(np.signbit(special[special == 0])) == {False, True}
    assert 0.3 < (sizes["floor"] == 0).mean() < 0.65
    assert 0.6 < np.median(sizes["normal"]) < 0.75
    for name in ("normal", "wide", "cancelling", "subnormal", "huge", "floor"):
        assert np.isfinite(sizes[name]).all()
    assert np.isnan(sizes["bits"]).any()
    assert (sizes["bits"] < smallest).any()
    assert (sizes["bits"] > largest / 2).any()


@pytest.mark.parametrize("dtype", TYPES)
def test_the_floor_is_that_of_the_sum_or_of_the_type(dtype: str) -> None:
    """Products of bfloat16 stay below -133; other types end far above."""
    sizes = np.abs(made("floor", dtype))
    exponents = np.frexp(sizes[sizes > 0])[1] - 1
    if dtype == "bfloat16":
        assert 2 * exponents.min() < -150
        assert -137 < 2 * exponents.max() < -133
    else:
        assert sizes[sizes > 0].min() < float(ml_dtypes.finfo(TYPES[dtype]).smallest_normal)


def sums(name: str, pair: tuple[str, str], terms: int) -> np.ndarray:
    """What the reference makes of numbers of a class."""
    rng = np.random.default_rng(6)
    a, w = (
        numbers.CLASSES[name](rng, (40, terms), numbers.FORMATS[dtype]).view(TYPES[dtype])
        for dtype in pair
    )
    return float_sums.tensor_sm90(a, w)


@pytest.mark.parametrize(
    "wrong", [{"group": 8}, {"fraction": -1}, {"fraction": 1}, {"out": -1}, {"out": 1}], ids=str
)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_another_model_gives_other_bits(
    pair: tuple[str, str], wrong: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of most sums: groups of other sizes, addends or results of more or fewer bits."""
    right = sums("wide", pair, 64)
    core = float_sums.tensor_core(pair[0])
    change = {name: getattr(core, name) + by for name, by in wrong.items()}
    monkeypatch.setattr(float_sums, "tensor_core", lambda dtype: replace(core, **change))
    assert (sums("wide", pair, 64) != right).mean() > 0.1


@pytest.mark.parametrize("floor", [-132, -134])
def test_another_floor_gives_other_bits(floor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sum in a thousand, which the millions of an audit cannot miss."""
    right = sums("floor", ("bfloat16", "bfloat16"), 16)
    monkeypatch.setattr(float_sums, "FLOOR", floor)
    assert (sums("floor", ("bfloat16", "bfloat16"), 16) != right).any()


@pytest.mark.parametrize("dtype", TYPES)
def test_a_bell_is_rounded_to_the_nearest(dtype: str) -> None:
    """As ml_dtypes does it: zeros, subnormal numbers and those between two of them included."""
    rng = np.random.default_rng(2)
    values = np.ldexp(rng.standard_normal(5000), rng.integers(-30, 4, 5000))
    values = np.append(values.astype(np.float32), np.float32([0, -0.0, 1.0625, 1.1875]))
    format_ = numbers.FORMATS[dtype]
    expected = values.astype(TYPES[dtype]).view(format_.storage)
    assert np.array_equal(format_.round(values.astype(np.float64)), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_halves_cancel(dtype: str) -> None:
    """Sums of products are often zero, or small beside their terms."""
    rng = np.random.default_rng(3)
    a, w = (
        numbers.CLASSES["cancelling"](rng, (64, 64), numbers.FORMATS[dtype])
        .view(TYPES[dtype])
        .astype(np.float64)
        for _ in range(2)
    )
    assert (np.abs(a @ w.T) < np.abs(a) @ np.abs(w.T) / 50).mean() > 0.3


def test_the_command_says_what_differs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its status, in lines that fit a terminal, and in JSON with an example."""
    monkeypatch.setattr("planq.cli.audit.open_device", lambda name: Wrong())
    fill = sections.Section("host", "fill")
    monkeypatch.setattr(sections, "sections", lambda *_: (fill,))
    arguments = ["audit", "--device", "cuda:0", "--results", "400"]
    assert main(arguments) == 1
    told = capsys.readouterr().out
    assert "host does not confirm the model" in told
    assert "e5m2 x float8_e4m3fn" in told
    assert "REFUTED: " in told
    assert main([*arguments, "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert made["verdict"] == "refuted"
    (told,) = made["evidence"]["tensor_cores"]
    assert [told["device"], told["confirmed"]] == ["host", False]
    wrong = [finding for finding in told["findings"] if finding["differing"]]
    assert {(finding["input_dtype"], finding["weight_dtype"]) for finding in wrong} == {
        ("float8_e5m2", "float8_e4m3fn")
    }
    assert all(finding["example"][0] == 1008 for finding in wrong)


def test_a_machine_without_the_gpu_has_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--device", "cuda:99"]) == 2
    assert capsys.readouterr().err.startswith("planq: error: --device cuda:99")
