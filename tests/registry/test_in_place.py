"""Which operands a run may take in one memory, found by asking, and what documents say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import planq
from planq.audit.operators import OPERATORS
from planq.audit.runner import arguments
from support import docs

MOST_BYTES = 1 << 16
GRADIENTS = {name for name in OPERATORS if name.endswith("_backward")}


def memory(spec: planq.OperandSpec) -> Any:
    """What an operand may be."""
    dtype = np.dtype(getattr(ml_dtypes, spec.storage, spec.storage))
    if spec.kind is planq.OperandKind.LIST:
        return [np.zeros(shape, dtype) for shape in spec.shapes]
    return np.zeros(spec.extents, dtype)


def pairs(desc: planq.Descriptor) -> Iterator[tuple[str, str]]:
    """Outputs and inputs that are alike in memory, and have elements."""
    specs = desc.operands().values()
    for output in (spec for spec in specs if spec.role is planq.Role.OUTPUT):
        for input_ in (spec for spec in specs if spec.role is planq.Role.INPUT):
            alike = (output.kind, output.storage) == (input_.kind, input_.storage)
            if alike and output.shape == input_.shape and output.nbytes:
                yield output.name, input_.name


@cache
def found(operator: str) -> tuple[frozenset[tuple[str, str]], frozenset[str]]:
    """Outputs that may be exactly an input, with it, and operands that are updated."""
    tests: Any = OPERATORS[operator]
    replaced, updated = set(), set()
    for problem in {case.problem for case in tests.cases()}:
        desc = tests.descriptor(problem)
        specs = desc.operands()
        updated |= {name for name, spec in specs.items() if spec.role is planq.Role.INOUT}
        asked = [pair for pair in pairs(desc) if pair not in replaced]
        if not asked or sum(spec.nbytes for spec in specs.values()) > MOST_BYTES:
            continue
        plan = planq.Plan.select(planq.HOST, desc)
        operands = {name: memory(spec) for name, spec in specs.items()}
        assert plan.can_implement(arguments(desc, operands)), problem
        for output, input_ in asked:
            if plan.can_implement(arguments(desc, operands | {output: operands[input_]})):
                replaced.add((output, input_))
    return frozenset(replaced), frozenset(updated)


def test_outputs_that_may_be_an_input() -> None:
    """All of them, by operator."""
    expected = {
        "fake_quantize": {("output", "input")},
        "multiply": {("output", "input")},
        "unary": {("output", "input")},
        "add": {("output", "input")},
        "rms_norm": {("output", "input")},
        "layer_norm": {("output", "input")},
        "min_max": {(name, f"previous_{name}") for name in ("absmax", "minimum", "maximum")},
    } | {name: {("grad_input", "grad_output")} for name in GRADIENTS}
    assert {name: set(found(name)[0]) for name in OPERATORS if found(name)[0]} == expected


def test_concepts_name_the_operators_that_work_in_place() -> None:
    """In the sentence on outputs that may be an input, and in that on operands that are updated."""
    text = " ".join((docs.ROOT / "docs" / "concepts.md").read_text().split())
    [over] = re.findall(r"Some outputs may be exactly an input, [^.]*\.", text)
    [updates] = re.findall(
        r"An operand with the role `inout` is read and updated: [^.]*\. [^.]*\.", text
    )
    for sentence, index in ((over, 0), (updates, 1)):
        named = {name for name in re.findall(r"`(\w+)`", sentence) if name in OPERATORS}
        named |= GRADIENTS if "the gradients" in sentence else set()
        assert named == {name for name in OPERATORS if found(name)[index]}, sentence
