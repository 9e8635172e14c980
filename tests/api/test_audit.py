"""`planq.audit`: what it compares, and that a wrong bit is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from planq import audit
from planq.audit import numbers, tensor_cores
from planq.checkpoint.devices import HostExecutor, Ran
from planq.cli import main

if TYPE_CHECKING:
    from collections.abc import Mapping

    import planq
    from planq.checkpoint.files import Bytes

SIDE = 40
FEW = 8 * 5 * SIDE * SIDE  # one product of each length in each class


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of few results."""
    monkeypatch.setattr(tensor_cores, "SIDE", SIDE)


class Wrong(HostExecutor):
    """A device that gives one bit of each result of long sums otherwise."""

    def run(self, plan: planq.Plan, inputs: Mapping[str, Bytes], **extents: int) -> Ran:
        ran = super().run(plan, inputs, **extents)
        if plan.descriptor.input_shape[-1] == 1000:
            ran.outputs["output"].view(np.uint32)[7] ^= 1
        return ran


def test_every_class_of_both_types_is_compared() -> None:
    found = audit.probe(HostExecutor(), FEW)
    assert found.confirmed
    named = [(finding.input_dtype.value, finding.numbers) for finding in found.findings]
    assert named == [(dtype, name) for dtype in ("float16", "bfloat16") for name in audit.CLASSES]
    assert all(finding.results == FEW // 8 for finding in found.findings)
    kernels = {finding.kernel for finding in found.findings}
    assert [found.results(kernel) for kernel in kernels] == [FEW, FEW]


def test_a_wrong_bit_is_found_and_shown() -> None:
    found = audit.probe(Wrong(), FEW)
    assert not found.confirmed
    for finding in found.findings:
        assert finding.differing == 1
        assert finding.example is not None
        terms, device, model = finding.example
        assert (terms, device ^ model) == (1000, 1)


@pytest.mark.parametrize("dtype", sorted(numbers.FORMATS))
def test_classes_have_what_their_names_say(dtype: str) -> None:
    format_ = numbers.FORMATS[dtype]

    def fields(name: str) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(5)
        bits = numbers.CLASSES[name](rng, (200, 128), format_)
        assert bits.dtype == np.uint16
        assert bits.shape == (200, 128)
        magnitude = bits & 0x7FFF
        return magnitude >> format_.mantissa, magnitude & ((1 << format_.mantissa) - 1)

    field, mantissa = fields("subnormal")
    assert 0.1 < ((field == 0) & (mantissa > 0)).mean() < 0.6
    field, _ = fields("huge")
    assert field.min() >= format_.top - 4
    assert field.max() == format_.top - 1
    field, mantissa = fields("special")
    assert ((field == format_.top) & (mantissa == 0)).any()
    assert ((field == format_.top) & (mantissa > 0)).any()
    assert ((field == 0) & (mantissa == 0)).any()
    field, mantissa = fields("floor")
    assert 0.3 < ((field == 0) & (mantissa == 0)).mean() < 0.6
    field, _ = fields("normal")
    assert abs(np.median(field) - (format_.bias - 1)) <= 1
    for name in ("normal", "wide", "cancelling", "subnormal", "huge", "floor"):
        assert fields(name)[0].max() < format_.top


def test_halves_cancel() -> None:
    """Sums of products are often zero, or small beside their terms."""
    format_ = numbers.FORMATS["float16"]
    rng = np.random.default_rng(3)
    a, w = (numbers.CLASSES["cancelling"](rng, (64, 64), format_) for _ in range(2))
    products = a.view(np.float16).astype(np.float64) @ w.view(np.float16).astype(np.float64).T
    sizes = np.abs(a.view(np.float16).astype(float)) @ np.abs(w.view(np.float16).astype(float)).T
    assert (np.abs(products) < sizes / 100).mean() > 0.3


def test_the_host_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--device", "host"]) == 2
    assert "which computes the model itself" in capsys.readouterr().err


def test_a_machine_without_the_gpu_has_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--device", "cuda:99"]) == 2
    assert capsys.readouterr().err.startswith("planq: error: --device cuda:99")
