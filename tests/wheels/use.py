"""Imports the installed planq, and runs plans of it beside their formulas; prints what it found.

Runs in an environment that has NumPy and planq alone, and knows nothing of the source tree.
"""

from __future__ import annotations

import sys
import time

begin = time.perf_counter(), time.process_time()
import planq  # noqa: E402

imported = time.perf_counter() - begin[0], time.process_time() - begin[1]

import numpy as np  # noqa: E402


def quantize() -> None:
    """Codes and scales of rows: s = max|x| / 127 in binary32, q = x / s rounded to even."""
    x = np.random.default_rng(5).standard_normal((300, 1024), np.float32)
    descriptor = planq.DynamicRangeQuantizeDescriptor(
        shape=x.shape, input_dtype="float32", output_dtype="int8", scope=planq.Scope.token()
    )
    plan = planq.Plan.select(planq.HOST, descriptor)
    outputs = plan.empty_outputs(np)
    args = planq.DynamicRangeQuantizeArgs(input=x, **outputs)
    plan.run(planq.HOST, None, args)
    scale = np.abs(x).max(axis=1) / np.float32(127)
    codes = np.rint(x / scale[:, None]).astype(np.int8)
    assert outputs["scale"].tobytes() == scale.tobytes()
    assert outputs["output"].tobytes() == codes.tobytes()


def multiply() -> None:
    """int32 sums of int8 products, on several threads: exact, whatever the order."""
    random = np.random.default_rng(6)
    a = random.integers(-128, 128, (65, 512), np.int8)
    b = random.integers(-128, 128, (96, 512), np.int8)
    descriptor = planq.MatmulInt8Descriptor(input_shape=a.shape, weight_shape=b.shape)
    stream = planq.host_stream(threads=2)
    plan = planq.Plan.select(stream, descriptor)
    outputs = plan.empty_outputs(np)
    plan.run(stream, plan.empty_workspace(np), planq.MatmulInt8Args(input=a, weight=b, **outputs))
    expected = a.astype(np.int64) @ b.astype(np.int64).T
    assert np.array_equal(outputs["output"], expected)


def refuse() -> None:
    """An operand of another shape has a typed error, which crosses from the library to Python."""
    descriptor = planq.DynamicRangeQuantizeDescriptor(
        shape=(2, 4), input_dtype="float32", output_dtype="int8", scope=planq.Scope.token()
    )
    plan = planq.Plan.select(planq.HOST, descriptor)
    x = np.zeros((2, 5), np.float32)
    args = planq.DynamicRangeQuantizeArgs(input=x, **plan.empty_outputs(np))
    operand = None
    try:
        plan.run(planq.HOST, None, args)
    except planq.ArgumentError as error:
        operand = error.operand
    assert operand == "input"


quantize()
multiply()
refuse()
gil = getattr(sys, "_is_gil_enabled", lambda: True)()
print(
    f"{imported[1]:.3f} s of a processor for the import ({imported[0]:.3f} s in all), "
    f"GIL {'on' if gil else 'off'}, build {planq.build_info().build_id}"
)
