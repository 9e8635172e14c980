"""PLANQ_VERBOSE prints one CSV line per event, before the launch, and nothing when it is off."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import numpy as np, planq
desc = planq.DynamicRangeQuantizeDescriptor(
    shape=(2, 4), input_dtype="float32", output_dtype="int8")
plan = planq.Plan.select(planq.HOST, desc)
x, q, s = np.ones((2, 4), np.float32), np.empty((2, 4), np.int8), np.empty(2, np.float32)
args = planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s)
plan.run(planq.HOST, None, args)
plan.run(planq.HOST, None, args)
plan.bind(None, args)(planq.HOST)
print(plan.sku)
print(desc.to_json())
"""


def events(value: str | None) -> tuple[list[list[str]], str, str]:
    """The CSV lines under a value of PLANQ_VERBOSE, the kernel's SKU, the descriptor as JSON."""
    environment = {k: v for k, v in os.environ.items() if k != "PLANQ_VERBOSE"}
    if value is not None:
        environment["PLANQ_VERBOSE"] = value
    result = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(sys.prefix),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    sku, desc = result.stdout.splitlines()
    return list(csv.reader(result.stderr.splitlines())), sku, desc


@pytest.mark.parametrize("value", [None, ""])
def test_off_it_prints_nothing(value: str | None) -> None:
    """Unset or empty."""
    assert events(value)[0] == []


@pytest.mark.parametrize(
    ("value", "order"),
    [("select", ["select"]), ("run", ["run"] * 3), ("select,run", ["select"] + ["run"] * 3)],
)
def test_each_event_is_one_line(value: str, order: list[str]) -> None:
    """planq, event, sku, device, descriptor."""
    lines, sku, desc = events(value)
    assert lines == [["planq", event, sku, "host", desc] for event in order]


def test_a_refused_run_prints_nothing() -> None:
    """Lines announce launches."""
    code = CODE.replace("plan.run(planq.HOST, None, args)", "plan.can_implement(args)")
    code = code.replace("plan.bind(None, args)(planq.HOST)", "")
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PLANQ_VERBOSE": "run"},
        cwd=Path(sys.prefix),
        check=True,
    )
    assert result.stderr == ""
