"""Run without a GPU, these tests fail: a GPU test that did not run has not passed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
import torch

import planq

LONGEST = ("test_sizes.py", "test_golden.py")
LARGE = re.compile("four_gigabytes|32_bits")
"""Names of tests with tens of gigabytes on the GPU: one worker takes them, one after another."""

MOST_KEPT = 2 << 30
"""Bytes of the GPU that a worker may keep for its next test."""

SEVERAL = int(os.environ.get("PLANQ_GPUS", "1")) >= 2
"""Whether tests of several GPUs were asked for; they fail where there is one."""


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """Fails where the build or the machine has no CUDA; gives memory back to other workers."""
    assert planq.build_info().cuda, "this build of planq has no CUDA kernels"
    assert torch.cuda.is_available(), "tests/gpu needs an NVIDIA GPU and its driver"
    assert planq.devices(), "planq sees no CUDA device"
    yield
    if torch.cuda.memory_reserved() > MOST_KEPT:
        torch.cuda.empty_cache()


def pytest_configure(config: pytest.Config) -> None:
    """Marks of these tests; `xdist_group` is unknown where pytest-xdist is not installed."""
    config.addinivalue_line("markers", "sanitize: small enough to run under compute-sanitizer")
    config.addinivalue_line("markers", "two_gpus: runs where PLANQ_GPUS is 2 or more")
    share_the_machine()
    config.addinivalue_line("markers", "xdist_group(name): tests that go to the same worker")


def share_the_machine() -> None:
    """Gives a worker of pytest-xdist its part of the processors, and one of the GPUs."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if not worker:
        return
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // workers))
    if "CUDA_VISIBLE_DEVICES" not in os.environ:  # nobody has asked CUDA for anything yet
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
        gpus = sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
        os.environ["CUDA_VISIBLE_DEVICES"] = str(int(worker) % gpus)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything here is marked `gpu`; with several workers the longest tests begin first.

    Tests of two GPUs are those of a run that asks for them.
    """
    if not SEVERAL:
        left_out = [item for item in items if item.get_closest_marker("two_gpus")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if "/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if LARGE.search(item.name):
                item.add_marker(pytest.mark.xdist_group("large"))
    items.sort(key=lambda item: item.path.name not in LONGEST)
