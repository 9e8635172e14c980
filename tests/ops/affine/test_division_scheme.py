"""The division by fused multiply-adds that the kernels use equals IEEE division."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def counts(name: str, folder: Path) -> tuple[int, int]:
    """What a program of this folder prints: how many it compared, and how many were wrong."""
    program = folder / name
    source = Path(__file__).with_name(f"{name}.cpp")
    compiler = os.environ.get("CXX", "c++")
    # Native, for the machine's fused multiply-add: the library's software one takes minutes.
    flags = ["-std=c++20", "-O2", "-march=native", "-ffp-contract=off"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    compared, wrong = map(int, done.stdout.split())
    return compared, wrong


def test_no_quotient_near_a_midpoint_is_rounded_wrongly(tmp_path: Path) -> None:
    """For every significand of the scale; hard_division.cpp says why that is enough."""
    assert counts("hard_division", tmp_path) == (360_508_359, 0)


def test_a_zero_keeps_its_sign_and_a_gradient_its_bits(tmp_path: Path) -> None:
    """Of every bfloat16 value, and of 20 million gradients over the window."""
    compared, wrong = counts("signed_division", tmp_path)
    assert compared > 10_000_000
    assert wrong == 0
