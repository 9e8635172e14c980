"""Every instantiation of every kernel, with nothing around its operands: for compute-sanitizer.

Operands end where their allocations end and the workspace is as it was allocated, so that the tool
sees what guards and poison would hide. The bits are compared as well.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

import planq
from planq.audit import kernels
from planq.audit.memory import Layout
from planq.audit.operators import OPERATORS, expected, inputs_of, name_of
from planq.audit.ops.affine.dynamic_range_quantize.cases import Case, sampled_cases
from planq.audit.ops.affine.dynamic_range_quantize.instantiations import (
    ONE_A_CLASS,
    InstantiationCase,
    instantiation_cases,
)
from planq.audit.ops.gguf.linear_gguf_merged.reference import LinearGgufMergedProblem, row_bytes
from planq.audit.promises import judge_of
from planq.audit.runner import Bench
from support.gpu import Cuda

pytestmark = pytest.mark.sanitize
GPU = Cuda(0)
SMALL = 3000  # elements, for kernels whose time under the tool grows with them
CLASSES = {output_dtype for output_dtype, _ in ONE_A_CLASS}
UNALIGNED = dict.fromkeys(("input", "output", "scale", "zero_point"), Layout(offset=1))
APART = dict.fromkeys(("input", "output"), Layout(pitch=16))


def by_name() -> dict[str, list[Case]]:
    """The cases for each kernel of one output dtype of each class of codes."""
    found: dict[str, list[Case]] = defaultdict(list)
    for item in instantiation_cases():
        if item.case.problem.output_dtype in CLASSES:
            found[item.name].append(item.case)
    for case in sampled_cases():
        if case.problem.output_dtype in CLASSES and case.size <= SMALL:
            for body in ("resident", "split", "elements"):
                name = InstantiationCase(body, case).name
                if len(found[name]) < 4:
                    found[name].append(case)
    return found


CASES = by_name()


def check(name: str, case: Any, layouts: dict[str, Layout] | None) -> None:
    """One run and a comparison."""
    operator = name.partition("/")[0].partition(".")[0]
    desc = OPERATORS[operator].descriptor(case.problem)
    bench = Bench(GPU, desc, pref=kernels.pinned(name), layouts=layouts, unguarded=True)
    bench.load(inputs_of(case))
    bench.run()
    judge = judge_of(bench.plan, case, inputs_of(case))
    bench.check(inputs_of(case), expected(case), f"{name} on {case.id}", judge)


def by_types(name: str) -> Any:
    """A parameter that goes to the worker which has the other kernels of its dtypes."""
    return pytest.param(
        name, marks=pytest.mark.xdist_group(name.rpartition("/")[2].partition(":")[0])
    )


@pytest.mark.parametrize("name", [by_types(name) for name in sorted(CASES)])
def test_every_instantiation_of_a_kernel(name: str) -> None:
    """On aligned operands; then on unaligned ones, and on rows with gaps between them."""
    for case in CASES[name]:
        if kernels.accepts("dynamic_range_quantize", name, case.problem, GPU.name):
            check(name, case, None)
    for case in kernels.spread(CASES[name], 1):
        if kernels.accepts("dynamic_range_quantize", name, case.problem, GPU.name):
            check(name, case, UNALIGNED)
            check(name, case, APART)


OTHERS = [
    pytest.param(operator, name_of(kernel), marks=pytest.mark.xdist_group(name_of(kernel)))
    for operator, kernel in kernels.kernels(planq.Backend.CUDA)
    if operator != "dynamic_range_quantize"
]


@pytest.mark.parametrize(("operator", "name"), OTHERS)
def test_every_instantiation_of_an_elementwise_kernel(operator: str, name: str) -> None:
    """Small cases of all kinds, whole vectors and edges alike; then unaligned, and with gaps."""
    cases = sorted(kernels.accepted(operator, name, GPU.name), key=lambda case: case.size)
    small = [case for case in cases if case.size <= SMALL] or cases[:2]
    for case in kernels.spread(small, 12):
        check(name, case, None)
    for case in kernels.spread(small, 1):
        operands = (*inputs_of(case), *expected(case))
        check(name, case, dict.fromkeys(operands, Layout(offset=1)))
        check(name, case, dict.fromkeys(operands, Layout(pitch=16)))


# The types of blocks that small weights may have; a list of all of them is one launch.
SMALL_BLOCKS = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
# Rows of the input and of each weight, and terms: of the kernel for one row, and of those for
# several, of which the GPU has few blocks, or so many that each has many rows of the input.
SMALL_SHAPES = {
    "one": (1, 3, 512),
    "few": (9, 3, 512),
    "16": (16, 265, 1280),
    "32": (32, 265, 1280),
}


@pytest.mark.parametrize(
    ("given", "shape"),
    [*(("int8", shape) for shape in SMALL_SHAPES)]
    + [(given, "one") for given in ("float32", "float16", "bfloat16")],
)
def test_every_type_of_small_weights(given: str, shape: str) -> None:
    """Which each kernel has, of codes and of floats; aligned, and behind an element."""
    rows, least, k = SMALL_SHAPES[shape]
    weights = tuple((least + i % 7, row_bytes(kind, k)) for i, kind in enumerate(SMALL_BLOCKS))
    problem = LinearGgufMergedProblem(
        (rows, k), weights, SMALL_BLOCKS, given, "float32", "float16", "bfloat16"
    )
    inputs = problem.inputs("any", rows)
    wanted = problem.expected(inputs)
    desc = OPERATORS["linear_gguf_merged"].descriptor(problem)
    for layouts in (None, dict.fromkeys(inputs | wanted, Layout(offset=1))):
        bench = Bench(GPU, desc, layouts=layouts, unguarded=True)
        bench.load(inputs)
        bench.run()
        bench.check(inputs, wanted, problem.id)
