"""What reports and records tell of the machine and of the library that is loaded."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import platform
from pathlib import Path
from typing import Final

import planq
from planq import _core
from planq.dtypes import Backend
from planq.selection import DeviceFacts

_CPUINFO = Path("/proc/cpuinfo")
_LIBRARY = "libplanq.so"
_NVML: Final = "libnvidia-ml.so.1"
_CUDA: Final = "libcuda.so.1"
# NVML's own bound for the text of a version.
_LONGEST_VERSION: Final = 80


def processor() -> str:
    """The processor's name from ``/proc/cpuinfo``, or else from `platform`."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def device_name(device: DeviceFacts) -> str:
    """The name of a GPU; on the host the processor's."""
    return processor() if device.backend is Backend.HOST else device.name


def instruction_sets() -> str:
    """The instruction sets that host kernels use here, from narrow to wide.

    Asks Linux for permission to use AMX, as the first matrix product does.
    """
    return " ".join(_core.instruction_sets())


def operating_system() -> str:
    """The distribution, if it names itself, and the kernel."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def driver_version() -> str:
    """The version of NVIDIA's kernel driver, such as 580.95.05; empty if NVML does not say it."""
    text = ctypes.create_string_buffer(_LONGEST_VERSION)
    try:
        nvml = ctypes.CDLL(_NVML)
        if nvml.nvmlInit_v2() != 0:
            return ""
        failed = nvml.nvmlSystemGetDriverVersion(text, _LONGEST_VERSION)
        nvml.nvmlShutdown()
    except (OSError, AttributeError):
        return ""
    return "" if failed else text.value.decode(errors="replace")


def driver_cuda_version() -> str:
    """The newest CUDA that the driver's library supports, such as 13.0; empty without a driver."""
    number = ctypes.c_int()
    try:
        failed = ctypes.CDLL(_CUDA).cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return ""
    # 13.0 is 13000, and 12.9 is 12090.
    return "" if failed else f"{number.value // 1000}.{number.value % 1000 // 10}"


def library_sha256() -> str:
    """SHA-256 of the file of the native library, in hexadecimal."""
    with (Path(planq.__file__).parent / _LIBRARY).open("rb") as library:
        return hashlib.file_digest(library, "sha256").hexdigest()
