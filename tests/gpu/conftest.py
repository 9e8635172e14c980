"""Run without a GPU, these tests fail: a GPU test that did not run has not passed."""

from __future__ import annotations

import pytest
import torch

import planq


@pytest.fixture(autouse=True)
def gpu() -> None:
    """Fails where the build or the machine has no CUDA."""
    assert planq.build_info().cuda, "this build of planq has no CUDA kernels"
    assert torch.cuda.is_available(), "tests/gpu needs an NVIDIA GPU and its driver"
    assert planq.devices(), "planq sees no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is marked `gpu`."""
    for item in items:
        if "/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
