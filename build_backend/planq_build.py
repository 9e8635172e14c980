"""PEP 517 backend: scikit-build-core, plus a CUDA compiler where the machine has none.

A CUDA build needs ``nvcc`` of CUDA 13 or newer. It is taken, in this order, from ``CUDACXX``,
``CUDA_HOME``, ``CUDA_PATH`` and ``PATH``. Where none of them has one, NVIDIA's compiler wheels
become build requirements, and CMake is pointed at the ``nvcc`` that they install.

``-C cmake.define.PLANQ_CUDA=OFF``, or ``PLANQ_CUDA=OFF`` in the environment, builds the host
backend alone and needs neither.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from scikit_build_core import build as _skbuild
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any]

MINIMUM_CUDA = (13, 0)

# One CUDA release, part by part; the parts are numbered separately.
COMPILER_WHEELS = (
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
)
WHEEL_NVCC = Path("nvidia", "cu13", "bin", "nvcc")

_OFF = frozenset({"0", "OFF", "NO", "FALSE", "N", "IGNORE", ""})
_DEFINITION = re.compile(r"(?:^|[\s;])(?:-D)?PLANQ_CUDA(?::\w+)?=(\w*)")


def wants_cuda(settings: Settings) -> bool:
    """Whether this build has the CUDA backend; the command line wins over the environment."""
    for key in ("cmake.define.PLANQ_CUDA", "skbuild.cmake.define.PLANQ_CUDA"):
        if key in settings:
            return str(settings[key]).upper() not in _OFF
    for name in ("SKBUILD_CMAKE_DEFINE", "SKBUILD_CMAKE_ARGS", "CMAKE_ARGS"):
        if found := _DEFINITION.search(os.environ.get(name, "")):
            return found[1].upper() not in _OFF
    return os.environ.get("PLANQ_CUDA", "ON").upper() not in _OFF


def is_release() -> bool:
    """Whether what is built has to run on every Linux with glibc 2.28 or newer."""
    return os.environ.get("PLANQ_MANYLINUX", "OFF").upper() not in _OFF


def _cuda_release(nvcc: Path) -> tuple[int, int]:
    """The CUDA release of a compiler; (0, 0) where it does not run."""
    try:
        answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return (0, 0)
    found = re.search(r"release (\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _named_nvcc() -> Path | None:
    """The compiler that the environment names; its choice is taken as it is."""
    if compiler := os.environ.get("CUDACXX"):
        return Path(compiler)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if root := os.environ.get(variable):
            nvcc = Path(root, "bin", "nvcc")
            if nvcc.is_file():
                return nvcc
    return None


def _system_nvcc() -> Path | None:
    """The machine's own compiler, unless it is too old to be of use."""
    if nvcc := _named_nvcc():
        return nvcc
    if not (found := shutil.which("nvcc")):
        return None
    nvcc = Path(found)
    if (release := _cuda_release(nvcc)) >= MINIMUM_CUDA:
        return nvcc
    version = ".".join(map(str, release))
    message = f"planq: {nvcc} is CUDA {version}, older than 13.0; using NVIDIA's compiler wheels"
    print(message, file=sys.stderr)
    return None


def _wheel_nvcc() -> Path | None:
    """The compiler of NVIDIA's wheels, where they are installed."""
    candidates = (Path(entry, WHEEL_NVCC) for entry in sys.path if entry)
    return next((path for path in candidates if path.is_file()), None)


def _requirements(settings: Settings) -> list[str]:
    if not wants_cuda(settings) or _system_nvcc():
        return []
    return list(COMPILER_WHEELS)


def _prepare(settings: Settings | None) -> Settings:
    """Spells the CUDA choice out for CMake and names the compiler."""
    prepared = dict(settings or {})
    cuda = wants_cuda(prepared)
    prepared.pop("skbuild.cmake.define.PLANQ_CUDA", None)
    prepared["cmake.define.PLANQ_CUDA"] = "ON" if cuda else "OFF"
    if cuda and (nvcc := _system_nvcc() or _wheel_nvcc()):
        os.environ["CUDACXX"] = str(nvcc)
    return prepared


def get_requires_for_build_wheel(config_settings: Settings | None = None) -> list[str]:
    """What scikit-build-core needs, and a CUDA compiler where there is none."""
    needed = _skbuild.get_requires_for_build_wheel(config_settings)
    return [*needed, *_requirements(config_settings or {})]


def get_requires_for_build_editable(config_settings: Settings | None = None) -> list[str]:
    """As for a wheel."""
    needed = _skbuild.get_requires_for_build_editable(config_settings)
    return [*needed, *_requirements(config_settings or {})]


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    """The wheel's metadata, which no compiler is needed for."""
    return _skbuild.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings | None = None
) -> str:
    """The wheel's metadata, which no compiler is needed for."""
    return _skbuild.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a wheel with the compiler that was found."""
    return _skbuild.build_wheel(wheel_directory, _prepare(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Settings | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds an editable wheel with the compiler that was found."""
    return _skbuild.build_editable(wheel_directory, _prepare(config_settings), metadata_directory)
