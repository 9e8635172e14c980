"""What reports and records tell of the machine and of the library that is loaded."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from pathlib import Path

import planq
from planq import _core
from planq.dtypes import Backend
from planq.selection import DeviceFacts

_CPUINFO = Path("/proc/cpuinfo")
_LIBRARY = "libplanq.so"


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


def library_sha256() -> str:
    """SHA-256 of the file of the native library, in hexadecimal."""
    with (Path(planq.__file__).parent / _LIBRARY).open("rb") as library:
        return hashlib.file_digest(library, "sha256").hexdigest()
