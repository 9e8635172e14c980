"""Elementary functions of a GPU for all 2^32 inputs, by their digests."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from planq.audit.every_input import RECORDED, Words, digest
from support.functions import ROOT, names_of


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Compiled with the flags that decide the kernels' arithmetic."""
    compiler = shutil.which("nvcc")
    assert compiler, "the machine that builds the kernels has nvcc on PATH"
    built = tmp_path_factory.mktemp("functions") / "functions.so"
    flags = ["-std=c++20", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-arch=native"]
    flags += ["-shared", "-Xcompiler=-fPIC", f"-I{ROOT / 'src'}"]
    source = Path(__file__).with_name("functions.cu")
    subprocess.run([compiler, *flags, "-o", built, source], check=True)
    library = ctypes.CDLL(str(built))
    library.apply.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
    library.wrong_reciprocals.restype = ctypes.c_int64
    return library


def test_digests_of_all_inputs(library: ctypes.CDLL) -> None:
    """Those of the host, function by function."""
    names = names_of(library.function_name)
    assert set(names) == set(RECORDED)

    def found(function: int) -> str:
        def apply(words: Words) -> Words:
            assert library.apply(function, words.ctypes.data, words.size) == 0
            return words

        return digest(apply)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = dict(zip(names, pool.map(found, range(len(names))), strict=True))
    assert digests == {name: expected["sha256"] for name, expected in RECORDED.items()}


def test_reciprocals_are_the_correctly_rounded_ones(library: ctypes.CDLL) -> None:
    """Of every number from 1 to 2^30, which is what the functions divide by."""
    assert library.wrong_reciprocals() == 0
