"""`import planq`: quick, without torch, without a driver, without noise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TIMED = """
import time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
import planq
print(middle - start, time.perf_counter() - middle)
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that sees the installed planq, and only the environment given."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", **environment},
        cwd=Path(sys.prefix),
        check=False,
    )


def test_importing_planq_takes_at_most_150_ms() -> None:
    """Beyond NumPy; where a machine is so slow that NumPy takes longer than that, as long as NumPy.

    The best of several, so that a busy machine does not matter.
    """
    python("import planq")
    lines = [python(TIMED).stdout.split() for _ in range(7)]
    numpy, planq = (min(float(line[i]) for line in lines) for i in (0, 1))
    assert planq <= max(0.150, numpy), (planq, numpy)


@pytest.mark.parametrize("module", ["torch", "cupy", "ml_dtypes", "typer", "rich", "cuda"])
def test_importing_planq_imports_none_of(module: str) -> None:
    """Nothing but NumPy and the standard library."""
    result = python(f"import planq, sys; print({module!r} in sys.modules)")
    assert result.stdout == "False\n", result.stderr


def test_planq_works_without_a_driver() -> None:
    """Import, selection for GPUs that are not there, and a run on the host."""
    code = """
import numpy as np, planq
assert planq.devices() == ()
desc = planq.DynamicRangeQuantizeDescriptor(
    shape=(2, 4), input_dtype="float32", output_dtype="int8")
planq.explain(desc, device="sm_90")
plan = planq.Plan.select(planq.HOST, desc)
x, q, s = np.ones((2, 4), np.float32), np.empty((2, 4), np.int8), np.empty(2, np.float32)
plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s))
assert (q == 127).all()
try:
    planq.Plan.select(planq.cuda_stream(0, 0), desc)
except (planq.CudaError, planq.StreamError, planq.NoKernelError) as error:
    print(type(error).__name__, error.code)
"""
    result = python(code, CUDA_VISIBLE_DEVICES="")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] in ("CudaError", "StreamError", "NoKernelError")


def test_executors_and_the_audit_know_nothing_of_checkpoints() -> None:
    """Nor do they need a package for files, or one for GPUs before a GPU is asked for."""
    code = """
import planq.executors, planq.audit, sys
unwanted = "planq.checkpoint", "safetensors", "cuda"
print([name for name in sys.modules if name.startswith(unwanted)])
print(callable(planq.devices))
"""
    result = python(code)
    assert result.stdout == "[]\nTrue\n", result.stderr


def test_importing_and_running_prints_nothing() -> None:
    """On neither stream."""
    result = python("import planq; planq.operators(); planq.build_info(); planq.devices()")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_public_name_exists_and_is_documented() -> None:
    """`__all__` is the contract."""
    code = """
import planq
for name in planq.__all__:
    thing = getattr(planq, name)
    assert not callable(thing) or thing.__doc__, name
print(len(planq.__all__))
"""
    result = python(code)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) > 30


def test_the_package_is_typed() -> None:
    """PEP 561's marker is installed."""
    code = (
        "import planq, pathlib; print((pathlib.Path(planq.__file__).parent / 'py.typed').exists())"
    )
    assert python(code).stdout == "True\n"
