"""The checks that every kernel passes, whatever its backend.

A kernel is pinned by its name, "SKU:body", and given every case that it accepts; one that accepts
none is a failure, because nothing would then have tested its promises. A check fails with an
`AssertionError` that says what differs. It returns how many runs it has held to its promise.
`most`: of how many cases.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeVar

import planq
from planq.audit import selections
from planq.audit.memory import CONTIGUOUS, Device, Host, Layout, SharedLayout
from planq.audit.operators import ADAPTERS, OPERATORS, Case, expected, inputs_of, name_of
from planq.audit.promises import judge_of
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench
from planq.selection import explain_exactly

C = TypeVar("C", bound=Case)
# Integers have one sum, whatever unit adds them.
EXACT_SUMS = {planq.MathPrecision.TENSOR_CORE_S8: planq.MathPrecision.INT32}
RUNS = 10
LARGEST = 2**63 - 1
PROMISE = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, max_ulp=0)


@cache
def bounded_skus(operator: str) -> frozenset[str]:
    """The operator's SKUs that promise a bound of their error instead of bits."""
    arithmetics = getattr(ADAPTERS[operator], "bounded", ())
    skus = {kernel.sku for kernel in by_name().values()}
    return frozenset(sku for sku in skus if is_of(sku, operator, arithmetics))


def is_of(sku: str, operator: str, arithmetics: Sequence[str]) -> bool:
    """Whether a SKU is the operator's, and of one of these kinds of arithmetic."""
    name, _, *rest = sku.split("/")
    return name.partition(".")[0] == operator and bool(rest) and rest[0] in arithmetics


def operators() -> list[planq.OperatorInfo]:
    """The operators that users see."""
    return [operator for operator in planq.operators() if operator.name in OPERATORS]


def kernels(backend: planq.Backend) -> Iterator[tuple[str, planq.KernelInfo]]:
    """Every kernel of a backend, with the name of its operator."""
    for operator in operators():
        for kernel in operator.kernels:
            if kernel.backend == backend:
                yield operator.name, kernel


@cache
def by_name() -> dict[str, planq.KernelInfo]:
    """Every kernel by its name."""
    return {
        name_of(kernel): kernel for operator in planq.operators() for kernel in operator.kernels
    }


def pinned(name: str) -> planq.PlanPreference:
    """All that this kernel promises of every descriptor, from this kernel only."""
    kernel = by_name()[name]
    return planq.PlanPreference(
        determinism=kernel.guarantee.determinism,
        max_ulp=kernel.guarantee.max_ulp,
        sku=kernel.sku,
        body=kernel.body,
    )


# What every kernel meets.
ANYTHING = planq.PlanPreference(determinism=planq.Determinism.NOT_GUARANTEED)


@cache
def takers(operator: str, problem: Hashable, device: str) -> frozenset[str]:
    """The kernels that take the problem, by the library's own explanation."""
    desc = ADAPTERS[operator].descriptor(problem)
    candidates = explain_exactly(desc, ANYTHING, device).candidates
    return frozenset(name_of(c) for c in candidates if c.chosen or not c.reason)


def accepts(operator: str, name: str, problem: Hashable, device: str) -> bool:
    """Whether the kernel takes the problem."""
    return name in takers(operator, problem, device)


def takes(operator: str, name: str, case: Case, device: str) -> bool:
    """The same of a case: by the recorded answer where there is one.

    To explain all cases of an operator takes a minute. A test compares the record.
    """
    known = selections.takes(operator, name, case, device)
    return accepts(operator, name, case.problem, device) if known is None else known


@cache
def accepted(operator: str, name: str, device: str, *, empty: bool = False) -> tuple[Case, ...]:
    """The operator's cases that the kernel takes."""
    tests = ADAPTERS[operator]
    cases = tests.empty_cases() if empty else tests.cases()
    if not selections.knows(operator, name, device):
        return tuple(case for case in cases if accepts(operator, name, case.problem, device))
    known = selections.takers(operator, device, empty=empty)
    return tuple(
        case
        for case, names in zip(cases, known, strict=True)
        if (accepts(operator, name, case.problem, device) if names is None else name in names)
    )


def spread(items: Sequence[C], count: int) -> list[C]:
    """At most `count` cases, the smallest half spread evenly over the list."""
    small = sorted(items, key=lambda case: case.size)
    small = small[: max(count, len(small) // 2)]
    count = min(count, len(small))
    return [small[i * len(small) // count] for i in range(count)]


def some(device: Device, operator: str, name: str, count: int) -> list[Case]:
    """Some of the cases that the kernel takes; on the host, half as many.

    A body there is the same source for all of its types, each of which has cases of its own.
    """
    count = (count + 1) // 2 if device.name == "host" else count
    return spread(accepted(operator, name, device.name), count)


def running(plan: planq.Plan, **extents: int) -> str:
    """The name of the kernel that a plan runs, where operands do not make it another."""
    (chosen,) = (body for body in plan.bodies(**extents) if body.chosen)
    return f"{plan.sku}:{chosen.name}"


def is_taken(bench: Bench) -> bool:
    """Whether the operands are what the kernel asks of them; a refusal is by what explain shows."""
    status = bench.plan.can_implement(bench.args)
    if not status:
        bodies = bench.plan.bodies()
        asked = [text.partition(": ") for body in bodies for text in body.constraints]
        told = [f"{operand}: expected {what}, got" for operand, _, what in asked]
        assert status.reason.startswith(tuple(told)), status.reason
    return bool(status)


def check_kernel(
    device: Device,
    operator: str,
    name: str,
    case: Case,
    layouts: dict[str, Layout] | None = None,
    runs: int = 1,
) -> int:
    """Runs a case on a kernel, from poisoned outputs each time, and holds it to what it promises.

    0: the kernel has constraints, and refuses operands that lie so.
    """
    desc = ADAPTERS[operator].descriptor(case.problem)
    bench = Bench(device, desc, pref=pinned(name), layouts=layouts)
    assert running(bench.plan) == name
    if not is_taken(bench):
        return 0
    check_bench(bench, case, inputs_of(case), expected(case), f"{name} on {case.id}", runs)
    return runs


def check_bench(
    bench: Bench,
    case: Case,
    inputs: dict[str, Array],
    outputs: dict[str, Array],
    what: str,
    runs: int = 1,
) -> None:
    """Runs on the inputs; every run is right, and has the bits of the first."""
    judge = judge_of(bench.plan, case, inputs)
    first = None
    for _ in range(runs):
        bench.load(inputs)
        bench.run()
        bench.check(inputs, outputs, what, judge)
        if runs > 1 and bench.plan.precision_guarantee().deterministic:
            bits = {name: values.tobytes() for name, values in bench.outputs().items()}
            first = first or bits
            assert bits == first, f"{what}: another run has other bits"


def check_bits(device: Device, operator: str, name: str, most: int | None = None) -> int:
    """The kernel gives what it promises on the cases that it accepts; None: on all of them."""
    cases: Sequence[Case] = accepted(operator, name, device.name)
    chosen = cases if most is None else spread(cases, most)
    held = sum(check_kernel(device, operator, name, case) for case in chosen)
    if not held and most is not None:  # it refuses these for how they lie
        return check_bits(device, operator, name)
    assert held, f"no case exercises {name}"
    return held


def check_ten_runs(device: Device, operator: str, name: str, most: int = 3) -> int:
    """Ten runs of one plan on one set of operands give the same bits."""
    cases = some(device, operator, name, most)
    return sum(check_kernel(device, operator, name, case, runs=RUNS) for case in cases)


def check_misaligned(device: Device, operator: str, name: str, most: int = 4) -> int:
    """Base pointers off by one element, all of them and one at a time, change nothing."""
    held = 0
    for case in some(device, operator, name, most):
        operands = (*inputs_of(case), *expected(case))
        places = [dict.fromkeys(operands, Layout(offset=1))]
        places += [{operand: Layout(offset=1)} for operand in operands]
        held += sum(check_kernel(device, operator, name, case, each) for each in places)
    return held


def check_strided(device: Device, operator: str, name: str, most: int = 4) -> int:
    """Gaps after rows and planes, aligned and not, change nothing and stay untouched."""
    held = 0
    for case in some(device, operator, name, most):
        operands = (*inputs_of(case), *expected(case))
        places = [dict.fromkeys(operands, Layout(pitch=pitch)) for pitch in (1, 16)]
        places += [{operand: Layout(offset=3, pitch=5)} for operand in operands]
        held += sum(check_kernel(device, operator, name, case, each) for each in places)
    return held


# Conventions whose groups have one size.
FIXED_GROUPS = ("ggml", "mx", "mx_round_up", "nvfp4")


@cache
def oversized(desc: planq.Descriptor) -> planq.Descriptor:
    """The same with every group and block that holds all there is as large as numbers are."""
    fields = json.loads(desc.to_json())
    shape, scope = fields.get("shape"), fields.get("scope", {})
    if shape is None or fields.get("convention") in FIXED_GROUPS:
        return desc
    extents = {"rows": shape[-2:][0], "columns": shape[-1]}
    if scope.get("kind") == "group":
        extents["size"] = shape[scope["axis"]]
    for name, extent in extents.items():
        if scope.get(name, 0) >= max(extent, 2):
            scope[name] = LARGEST
    if (fields.get("block_size") or 0) >= math.prod(shape):
        fields["block_size"] = LARGEST
    return planq.Descriptor.from_json(json.dumps(fields))


def check_oversized(device: Device, operator: str, name: str, most: int = 3) -> int:
    """A group or a block may be larger than the tensor by any amount."""
    descriptor = ADAPTERS[operator].descriptor
    cases = [
        case
        for case in accepted(operator, name, device.name)
        if oversized(descriptor(case.problem)) != descriptor(case.problem)
    ]
    chosen = spread(cases, most)
    for case in chosen:
        bench = Bench(device, oversized(descriptor(case.problem)), pref=pinned(name))
        what = f"{name} on {case.id}, oversized"
        check_bench(bench, case, inputs_of(case), expected(case), what)
    return len(chosen)


# Operands by name, and how each of them lies.
Sharing = tuple[tuple[str, SharedLayout], ...]


@cache
def outer_axes(operator: str, problem: Hashable) -> dict[str, tuple[int, ...]]:
    """The axes along which inputs may have any stride, of the inputs that have such axes."""
    specs = ADAPTERS[operator].descriptor(problem).operands()
    found = {
        name: tuple(axis for axis, extent in enumerate(spec.shape[:-1]) if extent > 1)
        for name, spec in specs.items()
        if spec.role == "input"
    }
    return {name: axes for name, axes in found.items() if axes}


def sharings(axes: dict[str, tuple[int, ...]]) -> Iterator[Sharing]:
    """Each input alone along each of its axes, all others than one, and all at once."""
    for name, own in axes.items():
        for axis in own:
            yield ((name, SharedLayout(repeated=(axis,))),)
        yield ((name, SharedLayout(slide=16)),)
        yield ((name, SharedLayout(slide=3, backwards=True)),)
    if len(axes) > 1:
        for alone in axes:
            rest = {name: own for name, own in axes.items() if name != alone}
            yield tuple((name, SharedLayout(repeated=own)) for name, own in rest.items())
        yield tuple((name, SharedLayout(slide=1)) for name in axes)


@lru_cache(maxsize=4096)
def shared(case: Case, sharing: Sharing) -> tuple[dict[str, Array], dict[str, Array]]:
    """The inputs that the strides mean, out of the case's own, and the reference's outputs."""
    layouts = dict(sharing)
    inputs = {
        name: layouts.get(name, CONTIGUOUS).meant(values)
        for name, values in inputs_of(case).items()
    }
    return inputs, case.expected(inputs)


def check_sharing(
    device: Device, operator: str, case: Case, sharing: Sharing, pref: planq.PlanPreference
) -> int:
    """Runs a case with operands that lie as told, and compares every byte; 0 if it is refused."""
    inputs, outputs = shared(case, sharing)
    layouts: dict[str, Layout] = dict(sharing)
    desc = ADAPTERS[operator].descriptor(case.problem)
    bench = Bench(device, desc, pref=pref, layouts=layouts)
    if not is_taken(bench):
        return 0
    what = f"{running(bench.plan)} on {case.id} with {sharing}"
    check_bench(bench, case, inputs, outputs, what)
    return 1


def check_shared(
    device: Device, operator: str, name: str, most: int = 2, places: int | None = None
) -> int:
    """Inputs whose rows repeat or overlap are read as their strides say; all may run backwards.

    `places`: in so many ways, the last ones; None: in all.
    """
    held = 0
    cases = accepted(operator, name, device.name)
    count = {case: len(outer_axes(operator, case.problem)) for case in cases}
    # Most operands first: what one of them repeats must not be taken to hold for the others.
    several = [case for case in cases if count[case] == max(count.values())]
    most_shared = (most + 1) // 2 if device.name == "host" else most
    for case in dict.fromkeys((*spread(several, most_shared), *spread(cases, most // 2))):
        operands = [each for each in (*inputs_of(case), *expected(case)) if "[" not in each]
        backwards = tuple((operand, SharedLayout(backwards=True)) for operand in operands)
        ways = [*sharings(outer_axes(operator, case.problem)), backwards]
        for each in ways[-places:] if places else ways:
            held += check_sharing(device, operator, case, each, pinned(name))
    return held


def check_empty(device: Device, operator: str, name: str, most: int | None = None) -> int:
    """Tensors without elements succeed, whatever their strides; scales of segments are written."""
    held = 0
    cases = accepted(operator, name, device.name, empty=True)[:most]
    strided = spread(cases, 3) if device.name == "host" else cases
    for case in cases:
        held += check_kernel(device, operator, name, case)
        for sharing in sharings(outer_axes(operator, case.problem)) if case in strided else ():
            held += check_sharing(device, operator, case, sharing, pinned(name))
    return held


def run_once(
    device: Device, operator: str, problem: Hashable, inputs: dict[str, Array], name: str
) -> dict[str, Array] | None:
    """One run on the kernel, or on the default one where it refuses a part this small.

    None: the kernel has constraints that the operands do not meet.
    """
    pref = pinned(name) if accepts(operator, name, problem, device.name) else PROMISE
    bench = Bench(device, ADAPTERS[operator].descriptor(problem), pref=pref)
    if not is_taken(bench):
        return None
    bench.load(inputs)
    bench.run()
    return bench.outputs()


def check_batch(device: Device, operator: str, name: str, most: int = 3) -> int:
    """A part that shares no result with the rest has alone the bits that it has among others."""
    held = 0
    for case in some(device, operator, name, most):
        inputs = inputs_of(case)
        whole = run_once(device, operator, case.problem, inputs, name)
        parts = list(case.parts()) if whole else []
        for part in parts[:: -(-len(parts) // 5)] if parts else ():
            alone = run_once(device, operator, part.problem, part.inputs(inputs), name)
            compare_part(alone or {}, part.outputs(whole or {}), f"{name} on {case.id}: {part}")
            held += 1
    return held


def compare_part(alone: dict[str, Array], among: dict[str, Array], what: str) -> None:
    """The bits of a part alone are those among others."""
    assert alone.keys() == among.keys(), what
    for name, values in alone.items():
        assert values.shape == among[name].shape, (what, name)
        assert values.tobytes() == among[name].tobytes(), f"{what}: {name} differs alone"


def check_guarantee(device: Device, operator: str, kernel: planq.KernelInfo) -> int:
    """The kernel promises what the other checks have tested, and its plans repeat it."""
    promise = kernel.guarantee
    exact = promise.determinism is planq.Determinism.BIT_EXACT
    assert exact == (promise.max_ulp == 0)
    assert (promise.error_bound is None) == (promise.max_ulp is not None)
    if operator in OPERATORS:
        assert exact == (kernel.sku not in bounded_skus(operator))
    assert promise.deterministic
    assert promise.bit_stable_on_same_hardware
    assert promise.basis
    assert "\n" not in promise.basis
    cases = accepted(operator, name_of(kernel), device.name)
    problems = dict.fromkeys(case.problem for case in cases)
    for problem in problems:
        check_promise(device, operator, kernel, problem)
    return len(problems)


def check_promise(
    device: Device, operator: str, kernel: planq.KernelInfo, problem: Hashable
) -> None:
    """A plan promises what its kernel does, but for what the problem says otherwise."""
    tests: Any = ADAPTERS[operator]
    plan = planq.Plan.select(device.stream(), tests.descriptor(problem), pinned(name_of(kernel)))
    promise = plan.precision_guarantee()
    math = tests.bounded_math if kernel.sku in bounded_skus(operator) else tests.math
    assert EXACT_SUMS.get(promise.math, promise.math) is math(problem)
    assert promise.rounding is tests.rounding(problem)
    if hasattr(tests, "accumulator"):
        assert promise.accumulator is tests.accumulator(problem)
    else:
        assert promise.accumulator is kernel.guarantee.accumulator
    same: dict[str, Any] = {
        "math": kernel.guarantee.math,
        "rounding": kernel.guarantee.rounding,
        "accumulator": kernel.guarantee.accumulator,
        "batch_invariant": kernel.guarantee.batch_invariant,
        "error_bound": promise.error_bound and replace(promise.error_bound, terms=None),
    }
    assert replace(promise, **same) == kernel.guarantee
    assert promise.batch_invariant <= kernel.guarantee.batch_invariant


NEW_INPUTS = 3


def check_new_inputs(device: Device, operator: str, name: str) -> int:
    """A plan keeps nothing of its last run: other inputs give their own results."""
    case = spread(accepted(operator, name, device.name), 1)[0]
    desc = ADAPTERS[operator].descriptor(case.problem)
    bench = Bench(device, desc, pref=pinned(name))
    for other in (case.reseeded(seed) for seed in range(NEW_INPUTS)):
        check_bench(bench, other, inputs_of(other), expected(other), f"{name} on {other.id}")
    return NEW_INPUTS


THREADS = (1, 2, 3, 7)


def check_threads(
    operator: str, name: str, most: int = 1, threads: tuple[int, ...] = THREADS
) -> int:
    """A host kernel has the same bits on any number of threads, on the largest case and others."""
    cases = accepted(operator, name, "host")
    largest = max(cases, key=lambda case: case.size)
    chosen = {largest, *spread(cases, most)}
    hosts = [Host(count) for count in threads]
    return sum(check_kernel(host, operator, name, case) for host in hosts for case in chosen)
