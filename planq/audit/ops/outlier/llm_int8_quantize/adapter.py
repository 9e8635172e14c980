"""`llm_int8_quantize` for the tests that are generated from the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planq.audit.from_reference import HOST_DEVICE, ReferenceTests
from planq.audit.memory import Device, Layout
from planq.audit.ops.outlier.llm_int8_quantize.cases import Case, empty_cases, sampled_cases
from planq.audit.ops.outlier.llm_int8_quantize.reference import Problem, llm_int8_quantize
from planq.audit.reference.formats import VECTOR, Array
from planq.audit.runner import Bench


@dataclass(frozen=True)
class LlmInt8QuantizeTests(ReferenceTests):
    """`llm_int8_quantize` against its NumPy reference."""

    operator: str = "llm_int8_quantize"

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return sampled_cases()

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""
        return empty_cases()

    def variety(self, problem: Problem) -> str:
        """Whether rows are whole vectors."""
        whole = problem.shape[-1] % VECTOR[problem.input_dtype] == 0
        return "whole vectors" if whole else "edges"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem on `count` elements in 64 columns, which int32 indices reach."""
        return {"shape": [count // 64, *[1] * (len(fields["shape"]) - 2), 64]}


TESTS = LlmInt8QuantizeTests()


def check_problem(
    problem: Problem, x: Array, device: Device = HOST_DEVICE, layout: Layout | None = None
) -> dict[str, Array]:
    """Runs and compares every byte with the reference."""
    layouts = {"input": layout} if layout else None
    bench = Bench(device, TESTS.descriptor(problem), layouts=layouts)
    bench.load({"input": x})
    bench.run()
    wanted = llm_int8_quantize(problem, x)
    bench.check({"input": x}, wanted, f"{bench.plan.sku} on {problem.id}")
    return wanted
