"""Elementary functions: their digests over all inputs, and the loops of the host by ctypes."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).parents[2]
# Of each function the SHA-256 of all results, and the largest error in ulp of the exact result:
# where that is normal, and where it is subnormal and that is more than a rounding.
EXPECTED = json.loads((ROOT / "tests/golden/functions.json").read_text())
INPUTS = 2**32
PART = 2**18  # inputs at a time, which a cache holds
CANONICAL_NAN, DIGESTED_NAN = np.uint32(0x7FC00000), np.uint32(0x7FFFFFFF)

Words = npt.NDArray[np.uint32]
# Bits of the results for bits of inputs; may write over them.
Apply = Callable[[Words], Words]


def digest(apply: Apply) -> str:
    """SHA-256 of the results of a function for the inputs 0 to 2^32 - 1, little-endian.

    planq's NaN counts as the pattern that the digests were defined with, and any other as itself.
    """
    sha, part = hashlib.sha256(), np.arange(PART, dtype=np.uint32)
    for first in range(0, INPUTS, PART):
        results = apply(part + np.uint32(first))
        results[results == CANONICAL_NAN] = DIGESTED_NAN
        sha.update(results.astype("<u4", copy=False))
    return sha.hexdigest()


def names_of(name: Any) -> list[str]:
    """What a function of C gives for 0, 1 and so on."""
    name.restype = ctypes.c_char_p
    return [each.decode() for each in iter(map(name, count()).__next__, None)]


class HostLoops:
    """The loops of every instruction set that this processor has, compiled as the library is."""

    def __init__(self, folder: Path) -> None:
        """Compiles them into a folder."""
        library = folder / "functions.so"
        source = ROOT / "tests/functions/functions.cpp"
        flags = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-tree-vrp"]
        flags += ["-shared", "-fPIC", f"-I{ROOT / 'src'}"]
        command = [os.environ.get("CXX", "c++"), *flags]
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        arguments = ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64
        self._library.apply.argtypes = arguments
        self.functions = names_of(self._library.function_name)
        # From narrow to wide.
        self.levels = names_of(self._library.level_name)
        self._places = {name: place for place, name in enumerate(self.levels)}
        self._places["chosen"] = int(self._library.chosen_level())

    def apply(self, level: str, function: str, words: Words) -> Words:
        """Bits of the results by a level, or by the one that the library chooses ("chosen")."""
        results = words.copy()
        place = self._places[level], self.functions.index(function)
        self._library.apply(*place, results.ctypes.data, results.size)
        return results
