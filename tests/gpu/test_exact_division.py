"""Divisions and roots that the CUDA kernels write as FMAs, against true ones, for every float32."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def test_reciprocals_and_quotients_are_the_correctly_rounded_ones(tmp_path: Path) -> None:
    """Compiled with the flags that decide the kernels' arithmetic; the program counts."""
    compiler = shutil.which("nvcc")
    assert compiler, "the machine that builds the kernels has nvcc on PATH"
    program = tmp_path / "exact_division"
    flags = ["-std=c++20", "-O3", "--fmad=false", "--expt-relaxed-constexpr", "-arch=native"]
    source, include = HERE / "exact_division.cu", HERE.parents[1] / "src"
    subprocess.run([compiler, *flags, f"-I{include}", "-o", program, source], check=True)
    result = subprocess.run([program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
