"""Norms and gates of float32 whose codes products with GGUF's weights take: one kernel each.

Groups of 32 have every largest magnitude, ties, zeros and special values; operands lie anywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Layout
from planq.audit.operators import OPERATORS
from planq.audit.ops.activation.activation.cases import FUNCTIONS, GATES
from planq.audit.ops.activation.activation.reference import Problem, activation
from planq.audit.ops.norm.rms_norm.adapter import TESTS as RMS_NORM
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench
from support import int8_groups
from support.gpu import Cuda

GPU = Cuda(0)
# Rows of a warp's threads and of a block's, of one vector for each thread and of several; many.
SHAPES = ((1, 640), (1, 2048), (1, 32), (3, 672), (2, 5120), (1, 16384), (700, 640), (300, 2048))
SHAPES += ((9, 16416), (40, 64), (2, 2, 96), (1000, 128))
# Aligned vectors, what lies between them, and gaps of whole vectors and of less between rows.
LAYOUTS = (Layout(), Layout(offset=1), Layout(pitch=32), Layout(pitch=3))


def check(desc: planq.Descriptor, given: Arrays, wanted: Arrays, layout: Layout, what: str) -> None:
    """The bits of the reference, and no byte beside them, by one kernel."""
    layouts = dict.fromkeys((*given, *wanted), layout)
    bench = Bench(GPU, desc, layouts=layouts)
    assert [body.name for body in bench.plan.bodies() if body.chosen] == ["rows"], what
    bench.load(given)
    bench.run()
    bench.check(given, wanted, what)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("residual", [None, "float32", "float16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms(shape: tuple[int, ...], residual: str | None, layout: Layout) -> None:
    """Weights of the rows' type and of another, with special values in the rows and without."""
    for place, data in enumerate(("normal", "nonfinite", "patterns", "huge")):
        problem: Any = RMS_NORM.make_problem(
            shape=shape,
            input_dtype="float32",
            weight_dtype="bfloat16" if place == 2 else "float32",
            residual_dtype=residual,
            also_output=place % 2 == 1,
            **RMS_NORM.others[place % len(RMS_NORM.others)],
            **int8_groups.CODES,
        )
        case = int8_groups.NormCase(problem, RMS_NORM.formula, data, 1e-6, place)
        given = case.inputs()
        check(RMS_NORM.descriptor(problem), given, case.expected(given), layout, case.id)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_gates(function: str, gate: tuple[bool, str], layout: Layout) -> None:
    """Of every function and layout; RELU leaves what the groups have."""
    for place, shape in enumerate(SHAPES):
        problem = Problem(
            shape, function, *gate, "float32", also_output=place % 2 == 1, **int8_groups.CODES
        )
        whole = problem.input_shape
        rows = math.prod(whole[:-1])
        given = {"input": int8_groups.hostile(rows, whole[-1], place).reshape(whole)}
        if problem.gated and not problem.is_packed:
            given["up"] = int8_groups.hostile(rows, shape[-1], place + 1).reshape(shape)
        with np.errstate(all="ignore"):
            wanted = activation(problem, given)
        desc = OPERATORS["activation"].descriptor(problem)
        check(desc, given, wanted, layout, f"{problem}")
