"""`planq audit` on a GPU: its tensor cores are the model, and the report says so."""

from __future__ import annotations

import json

import pytest

from planq import audit
from planq.checkpoint.devices import open_device
from planq.cli import main

RESULTS = 10_000_000


def test_the_gpu_confirms_the_model() -> None:
    """Each element type on ten million results."""
    found = audit.probe(open_device("cuda:0"), RESULTS)
    assert found.confirmed, [finding for finding in found.findings if finding.differing]
    kernels = {finding.kernel for finding in found.findings}
    assert kernels == {"matmul/cuda/wgmma/f16", "matmul/cuda/wgmma/bf16"}
    assert all(found.results(kernel) >= RESULTS for kernel in kernels)


def test_the_command_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--results", "1000000", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["confirmed"] is True
    assert all(finding["differing"] == 0 for finding in told["findings"])
