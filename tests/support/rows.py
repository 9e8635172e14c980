"""The checks that every kernel row passes, whatever its backend.

A row is pinned by its SKU and given every case that it accepts; a row that accepts none is a
failure, because nothing would then have tested its promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

import planq
from reference.cases import Case, outputs
from reference.dynamic_range_quantize import Problem
from reference.formats import Array, unpack_nibbles
from support.bridge import OPERATORS, expected, inputs_of
from support.memory import Device, Layout
from support.runner import Bench

RUNS = 10
# The tests' own operator computes nothing; tests/api watches its rows instead.
PRIVATE = frozenset({"noop"})
EVERY_OPERAND = ("input", "output", "scale", "zero_point")
PROMISE = planq.PlanPreference(
    determinism=planq.Determinism.BIT_EXACT, batch_invariant=True, max_ulp=0
)


def operators() -> list[planq.OperatorInfo]:
    """The operators that users see."""
    return [operator for operator in planq.operators() if operator.name not in PRIVATE]


def rows(backend: planq.Backend) -> Iterator[tuple[str, planq.KernelInfo]]:
    """Every kernel row of a backend, with the name of its operator."""
    for operator in operators():
        for kernel in operator.kernels:
            if kernel.backend == backend:
                yield operator.name, kernel


def pinned(sku: str) -> planq.PlanPreference:
    """The full promise, from this row only."""
    return planq.PlanPreference(
        determinism=planq.Determinism.BIT_EXACT, batch_invariant=True, max_ulp=0, sku=sku
    )


@cache
def takers(operator: str, problem: Problem, device: str) -> frozenset[str]:
    """The rows that take the problem with the full promise, by the library's own explanation."""
    desc = OPERATORS[operator].descriptor(problem)
    candidates = planq.explain(desc, PROMISE, device=device).candidates
    return frozenset(c.sku for c in candidates if c.chosen or not c.reason)


def accepts(operator: str, sku: str, problem: Problem, device: str) -> bool:
    """Whether the row takes the problem."""
    return sku in takers(operator, problem, device)


@cache
def accepted(operator: str, sku: str, device: str, *, empty: bool = False) -> tuple[Case, ...]:
    """The operator's cases that the row takes."""
    tests = OPERATORS[operator]
    cases = tests.empty_cases() if empty else tests.cases()
    return tuple(case for case in cases if accepts(operator, sku, case.problem, device))


def spread(items: Sequence[Case], count: int) -> list[Case]:
    """At most `count` cases, the smallest half spread evenly over the list."""
    small = sorted(items, key=lambda case: int(np.prod(case.problem.shape)))
    small = small[: max(count, len(small) // 2)]
    return [small[i * len(small) // count] for i in range(min(count, len(small)))]


def check_row(
    device: Device,
    operator: str,
    sku: str,
    case: Case,
    layouts: dict[str, Layout] | None = None,
    runs: int = 1,
) -> None:
    """Runs a case on a row, from poisoned outputs each time, and compares every byte."""
    desc = OPERATORS[operator].descriptor(case.problem)
    bench = Bench(device, desc, pref=pinned(sku), layouts=layouts, operator=operator)
    assert bench.plan.sku == sku
    for _ in range(runs):
        bench.load(inputs_of(case))
        bench.run()
        bench.check(inputs_of(case), expected(case), f"{sku} on {case.id}")


def check_bits(device: Device, operator: str, sku: str) -> None:
    """The row gives the reference's bits on every case that it accepts."""
    cases = accepted(operator, sku, device.name)
    assert cases, f"no case exercises {sku}"
    for case in cases:
        check_row(device, operator, sku, case)


def check_ten_runs(device: Device, operator: str, sku: str) -> None:
    """Ten runs of one plan on one set of operands give the same bits."""
    for case in spread(accepted(operator, sku, device.name), 3):
        check_row(device, operator, sku, case, runs=RUNS)


def check_misaligned(device: Device, operator: str, sku: str) -> None:
    """Base pointers off by one element, all of them and one at a time, change nothing."""
    for case in spread(accepted(operator, sku, device.name), 4):
        names = (*case.inputs(), *expected(case))
        check_row(device, operator, sku, case, dict.fromkeys(names, Layout(offset=1)))
        for name in names:
            check_row(device, operator, sku, case, {name: Layout(offset=1)})


def check_strided(device: Device, operator: str, sku: str) -> None:
    """Gaps after rows and planes, aligned and not, change nothing and stay untouched."""
    for case in spread(accepted(operator, sku, device.name), 4):
        names = (*case.inputs(), *expected(case))
        for pitch in (1, 16):
            check_row(device, operator, sku, case, dict.fromkeys(names, Layout(pitch=pitch)))
        for name in names:
            check_row(device, operator, sku, case, {name: Layout(offset=3, pitch=5)})


def check_empty(device: Device, operator: str, sku: str) -> None:
    """Tensors without elements succeed, and every scale of an empty segment is written."""
    for case in accepted(operator, sku, device.name, empty=True):
        check_row(device, operator, sku, case)


def logical(problem: Problem, output: Array) -> Array:
    """Codes element by element, so that parts of a packed tensor can be compared."""
    if problem.output_dtype in ("int4", "uint4"):
        return unpack_nibbles(output, problem.shape[-1], problem.nibble_order)
    return output.view("u1")


def run_once(device: Device, problem: Problem, x: Array, sku: str) -> dict[str, Array]:
    """One run on the row, or on the default row where it refuses a part this small."""
    operator = "dynamic_range_quantize"
    pref = pinned(sku) if accepts(operator, sku, problem, device.name) else PROMISE
    bench = Bench(device, OPERATORS[operator].descriptor(problem), pref=pref)
    bench.load({"input": x})
    bench.run()
    return bench.outputs()


def check_batch(device: Device, operator: str, sku: str) -> None:
    """A segment quantized alone has the bits that it has among others."""
    for case in spread(accepted(operator, sku, device.name), 3):
        x = case.inputs()["input"]
        whole = run_once(device, case.problem, x, sku)
        parts = list(case.alone())
        for problem, piece, along in parts[:: -(-len(parts) // 5)] if parts else ():
            alone = run_once(device, problem, x[piece], sku)
            batch = logical(case.problem, whole["output"])[piece]
            assert np.array_equal(logical(problem, alone["output"]), batch), (sku, case.id, piece)
            for name in alone.keys() - {"output"}:
                single, among = alone[name], whole[name][along]
                assert single.tobytes() == among.tobytes(), (sku, case.id, name, piece)


def check_guarantee(device: Device, operator: str, kernel: planq.KernelInfo) -> None:
    """The row promises what the other checks have tested, and its plans repeat it."""
    promise = kernel.guarantee
    assert promise.determinism is planq.Determinism.BIT_EXACT
    assert promise.batch_invariant is True
    assert promise.max_ulp == 0
    assert promise.rounding is planq.Rounding.NEAREST_EVEN
    assert promise.deterministic
    assert promise.bit_stable_on_same_hardware
    assert promise.basis
    assert "\n" not in promise.basis
    case = accepted(operator, kernel.sku, device.name)[0]
    wide = case.problem.input_dtype == "float64"
    assert promise.math is (planq.MathPrecision.F64 if wide else planq.MathPrecision.F32)
    desc = OPERATORS[operator].descriptor(case.problem)
    plan = planq.Plan.select(device.stream(), desc, pinned(kernel.sku))
    assert plan.precision_guarantee() == promise


def check_new_inputs(device: Device, operator: str, sku: str) -> None:
    """A plan keeps nothing of its last run: other inputs give their own results."""
    case = spread(accepted(operator, sku, device.name), 1)[0]
    desc = OPERATORS[operator].descriptor(case.problem)
    bench = Bench(device, desc, pref=pinned(sku), operator=operator)
    for seed in range(3):
        inputs = Case(case.problem, "mixed", seed).inputs()
        bench.load(inputs)
        bench.run()
        bench.check(inputs, outputs(case.problem, inputs["input"]), f"{sku}, seed {seed}")
