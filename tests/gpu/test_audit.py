"""`planq audit` on a GPU: its tensor cores are the model, and the report says so."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from planq import audit
from planq.audit import tensor_cores
from planq.cli import main
from planq.executors import open_device

RESULTS = 10_000_000


def test_the_gpu_confirms_the_model() -> None:
    """Each pair of element types on ten million results, by the kernel of the tensor cores."""
    found = audit.probe(open_device("cuda:0"), RESULTS)
    assert found.confirmed, [finding for finding in found.findings if finding.differing]
    compared = {
        (each.sku, each.body, each.input_dtype, each.weight_dtype) for each in found.findings
    }
    assert {(sku, x.value, w.value) for sku, _, x, w in compared} == {
        ("matmul/cuda/tensor_sm90/f16", "float16", "float16"),
        ("matmul/cuda/tensor_sm90/bf16", "bfloat16", "bfloat16"),
        ("linear_fp8/cuda/tensor_sm90/e4m3", "float8_e4m3fn", "float8_e4m3fn"),
        ("linear_fp8/cuda/tensor_sm90/e4m3", "float8_e4m3fn", "float8_e5m2"),
        ("linear_fp8/cuda/tensor_sm90/e5m2", "float8_e5m2", "float8_e4m3fn"),
        ("linear_fp8/cuda/tensor_sm90/e5m2", "float8_e5m2", "float8_e5m2"),
    }
    assert {body for _, body, _, _ in compared} == {"wgmma"}
    assert all(found.results(*each) >= RESULTS for each in compared)


def test_every_kernel_that_is_chosen_has_findings_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of odd lengths are another kernel's: mma.sync's, or one that computes the model."""
    monkeypatch.setattr(tensor_cores, "TERMS", (64, 65, 72))
    monkeypatch.setattr(tensor_cores, "FLOAT8_TERMS", (64, 65, 80))
    found = audit.probe(open_device("cuda:0"), 10_000)
    assert found.confirmed
    kernels = defaultdict(set)
    for each in found.findings:
        kernels[each.input_dtype, each.weight_dtype].add((each.sku, each.body))
    assert list(kernels) == list(audit.PAIRS)
    for pair, chosen in kernels.items():
        assert len(chosen) == 2
        assert all(found.results(*kernel, *pair) >= 10_000 for kernel in chosen)


def test_the_command_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "cuda:0", "--operators", "^fill$", "--results", "1000000", "--json"]
    assert main(["audit", *arguments]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["verdict"] == "held"
    assert {kernel["operator"] for kernel in made["evidence"]["kernels"]} == {"fill"}
    (told,) = made["evidence"]["tensor_cores"]
    assert told["confirmed"] is True
    assert all(finding["differing"] == 0 for finding in told["findings"])
    assert {finding["weight_dtype"] for finding in told["findings"]} == {
        *("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
    }
