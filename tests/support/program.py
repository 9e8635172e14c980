"""Programs of a test's own around parts of the library, compiled for this processor."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compiled(source: Path, folder: Path) -> Path:
    """The program of one file, which is written to the folder."""
    program = folder / source.stem
    flags = ["-std=c++20", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, *flags, f"-I{ROOT / 'src'}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def lines_of(program: Path, given: Iterable[Sequence[object]]) -> list[str]:
    """What the program makes of lines of words: a line of each."""
    lines = [" ".join(map(str, words)) for words in given]
    done = subprocess.run(
        [str(program)], input="\n".join(lines), check=True, capture_output=True, text=True
    )
    made = done.stdout.splitlines()
    assert len(made) == len(lines)
    return made
