"""The division by fused multiply-adds that the kernels use equals IEEE division."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def test_no_quotient_near_a_midpoint_is_rounded_wrongly(tmp_path: Path) -> None:
    """For every significand of the scale; hard_division.cpp says why that is enough."""
    program = tmp_path / "hard_division"
    source = Path(__file__).with_name("hard_division.cpp")
    compiler = os.environ.get("CXX", "c++")
    # Native, for the machine's fused multiply-add: the library's software one takes minutes.
    flags = ["-std=c++20", "-O2", "-march=native", "-ffp-contract=off"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    pairs, wrong = map(int, done.stdout.split())
    assert pairs == 360_508_359
    assert wrong == 0
