"""What `--device` says where it cannot do what is asked."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType, SimpleNamespace
from typing import NoReturn

import pytest

import planq
from planq.executors import DeviceError, HostExecutor, host_workspace, open_device


@pytest.fixture
def gpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build with CUDA, on a machine with a device 1 and no Python package for it."""
    build = dataclasses.replace(planq.build_info(), cuda=True)
    monkeypatch.setattr(planq, "build_info", lambda: build)
    monkeypatch.setattr(planq, "devices", lambda: (SimpleNamespace(index=1),))
    monkeypatch.setitem(sys.modules, "cuda.core", None)


def test_host_is_the_host() -> None:
    assert isinstance(open_device("host"), HostExecutor)


@pytest.mark.parametrize("name", ["", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:0x1", "host "])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="expected host or cuda:N"):
        open_device(name)


def test_a_host_only_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    build = dataclasses.replace(planq.build_info(), cuda=False)
    monkeypatch.setattr(planq, "build_info", lambda: build)
    with pytest.raises(DeviceError, match="cuda:0: this build of planq has no CUDA backend"):
        open_device("cuda:0")


@pytest.mark.usefixtures("gpu_build")
def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(DeviceError, match="cuda:0: not on this machine, which has cuda:1"):
        open_device("cuda:0")


@pytest.mark.usefixtures("gpu_build")
def test_a_machine_without_devices_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planq, "devices", lambda: ())
    with pytest.raises(DeviceError, match="which has no CUDA device"):
        open_device("cuda:0")


@pytest.mark.usefixtures("gpu_build")
def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(DeviceError, match=r"needs the package 'cuda-core'.*planq\[cuda\]"):
        open_device("cuda:1")


@pytest.mark.usefixtures("gpu_build")
def test_what_the_driver_refuses_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class CUDAError(Exception):
        __module__ = "cuda.core._utils"

    def refuse(index: int) -> NoReturn:
        raise CUDAError(f"CUDA_ERROR_DEVICE_UNAVAILABLE: {index}")

    core = ModuleType("cuda.core")
    monkeypatch.setattr(core, "Device", refuse, raising=False)
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    with pytest.raises(DeviceError, match=r"^cuda:1: CUDA_ERROR_DEVICE_UNAVAILABLE: 1$"):
        open_device("cuda:1")


@pytest.mark.parametrize("nbytes", [0, 1, 255, 256, 1000])
def test_a_host_workspace_is_aligned_and_none_where_none_is_wanted(nbytes: int) -> None:
    scratch, workspace = host_workspace(nbytes)
    assert (workspace is None) == (nbytes == 0)
    if workspace is not None:
        start, size = workspace
        begin = scratch.__array_interface__["data"][0]
        assert size == nbytes
        assert start % planq.WORKSPACE_ALIGNMENT == 0
        assert begin <= start <= begin + scratch.nbytes - nbytes
