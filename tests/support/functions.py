"""The loops of elementary functions of the host, by ctypes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

from planq.audit.every_input import Words

ROOT = Path(__file__).parents[2]


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
