"""Compiles CUDA kernels for a processor: see tests/support/emulated."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def emulated(source: Path, folder: Path, *flags: str) -> ctypes.CDLL:
    """A library of a file that includes kernels, which is written to the folder."""
    library = folder / source.with_suffix(".so").name
    headers = [f"-I{ROOT / 'tests/support/emulated'}", f"-I{ROOT / 'src'}"]
    options = ["-std=c++20", "-Og", "-ffp-contract=off", "-shared", "-fPIC", *flags, *headers]
    options.append("-U_FORTIFY_SOURCE")  # whose jumps may not leave a stack for another
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))
