"""Every instruction set of the processor gives the same sums, not only the one that is chosen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_level_gives_the_sums_of_a_plain_loop(tmp_path: Path) -> None:
    """Under a sanitizer of addresses: no level reads beside what it multiplies."""
    program = tmp_path / "int8_levels"
    source = Path(__file__).with_name("int8_levels.cpp")
    # To optimize more takes longer than the program gains.
    flags = ["-std=c++20", "-Og", "-ffp-contract=off", "-fsanitize=address"]
    flags += ["-fno-sanitize-recover=all", f"-I{ROOT / 'src'}"]
    compiler = os.environ.get("CXX", "c++")
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    compared, wrong = map(int, done.stdout.split())
    assert compared >= 600
    assert wrong == 0
