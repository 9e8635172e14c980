"""Runs a case on every kernel of a device that takes it, and compares all that it wrote."""

from __future__ import annotations

import os
import random
import re
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import planq
from planq.audit.dims import NAME, shape_of, with_extent
from planq.audit.kernels import ANYTHING, PROMISE, is_taken, pinned
from planq.audit.memory import Device, Host, Layout, Operand
from planq.audit.operators import OPERATORS, Case, name_of
from planq.audit.promises import judge_of
from planq.audit.reference.formats import Arrays
from planq.audit.runner import Bench, arguments
from support.fuzz.layouts import layouts, meant
from support.fuzz.problems import Draw, bases, drawn, known
from support.fuzz.tally import Tally
from support.fuzz.values import hostile

ALONE = Host(1)
# How often there is a Dim, a bound launch, a second run; and of operands, how often one is left out
# that may be, and how often a scalar is a number.
VARIED, BOUND, TWICE, ABSENT, BY_VALUE = 0.25, 0.25, 0.25, 0.15, 0.3
SLACK = (0, 1, 7, 100, 2**20)
# The reference is asked up to this size of a case: parts of it are loops of Python.
REFERENCE = 2**13
MOST_SHOWN, MOST_SAID = 8, 2000


@dataclass(frozen=True)
class Problem:
    """All of a case but the kernel that runs it.

    Attributes:
        varied: The descriptor with a `Dim` whose extent is that of the case, if there is one.
        extents: Of the `Dim`.
        absent: Optional operands that are not given.
        by_value: Scalars that are given as numbers.
        bound: Whether a launch is bound to the operands first.
        twice: Whether there is a second run, which has to have the bits of the first.
    """

    case: Case
    desc: planq.Descriptor
    layouts: dict[str, Layout]
    inputs: Arrays
    varied: planq.Descriptor | None
    extents: dict[str, int]
    absent: frozenset[str]
    by_value: frozenset[str]
    bound: bool
    twice: bool


def varied(draw: Draw, desc: Any) -> tuple[planq.Descriptor | None, dict[str, int]]:
    """The descriptor with an extent that is known at run, where it admits one."""
    shape = () if hasattr(desc, "shapes") else shape_of(desc)[1]
    if len(shape) < 2 or not draw.chance(VARIED):
        return None, {}
    axis = draw.randrange(len(shape) - 1)
    extent = shape[axis]
    most = planq.Dim(NAME, max=max(extent, 1) + draw.choice(SLACK))
    try:
        return with_extent(desc, axis, most), {NAME: extent}
    except planq.DescriptorError:
        return None, {}


@cache
def targets(operator: str, seed: int) -> tuple[str, ...]:
    """The operator's kernels in an order of the seed's own."""
    names = list(bases(operator))
    random.Random(seed).shuffle(names)
    return tuple(names)


def problem_of(operator: str, seed: int, index: int, tally: Tally) -> Problem:
    """The case of this number."""
    draw = Draw(seed, operator, index)
    names = targets(operator, seed)
    if index % 2 == 0 and index < 2 * len(names):
        # Each kernel has one problem that it takes for certain, and operands that meet its wishes.
        case, desc = known(draw, operator, names[index // 2])
        lie: dict[str, Layout] = {}
        with_dim: planq.Descriptor | None = None
        extents: dict[str, int] = {}
    else:
        refused: list[planq.DescriptorError] = []
        case, desc = drawn(draw, operator, draw.choice(names), refused)
        tally.refused += len(refused)
        lie = layouts(draw, desc)
        with_dim, extents = varied(draw, desc)
    inputs = meant(lie, hostile(draw, desc, case.inputs()))
    specs = desc.operands().items()
    scalar = planq.OperandKind.SCALAR
    return Problem(
        case,
        desc,
        lie,
        inputs,
        with_dim,
        extents,
        frozenset(name for name, spec in specs if spec.optional and draw.chance(ABSENT)),
        frozenset(
            n for n, s in specs if s.kind is scalar and s.role == "input" and draw.chance(BY_VALUE)
        ),
        draw.chance(BOUND),
        draw.chance(TWICE),
    )


@cache
def is_elsewhere(operator: str, name: str, device: str) -> bool:
    """Whether a kernel was written for another device, as it says of a case that is its own."""
    first = min(bases(operator)[name], key=lambda case: case.size)
    desc = OPERATORS[operator].descriptor(first.problem)
    candidates = planq.explain(desc, ANYTHING, device=device).candidates
    return any(name_of(c) == name and c.reason_kind == "device" for c in candidates)


def takers(desc: planq.Descriptor, device: str) -> list[str]:
    """The kernels that take a descriptor on a device."""
    candidates = planq.explain(desc, ANYTHING, device=device).candidates
    return [name_of(c) for c in candidates if c.chosen or not c.reason]


def give(problem: Problem, bench: Bench) -> None:
    """Has a bench run with the operands that the problem gives, and scalars as it gives them."""
    given = {n: held for n, held in bench.tensors().items() if n not in problem.absent}
    for name in problem.by_value - problem.absent:
        given[name] = problem.inputs[name].item()
    bench.args = arguments(problem.desc, given)


def right_outputs(problem: Problem, *, reference: bool) -> Arrays:
    """What has to come out: by the reference, or by the host backend in one thread.

    The reference knows of no inputs that are left out.
    """
    missing = problem.absent & {place.partition("[")[0] for place in problem.inputs}
    if reference and problem.case.size <= REFERENCE and not missing:
        return problem.case.expected(problem.inputs)
    bench = Bench(ALONE, problem.desc, pref=PROMISE)
    give(problem, bench)
    bench.load(problem.inputs)
    bench.run()
    return bench.outputs()


def started(bench: Bench, *, bound: bool) -> None:
    """One run, of the plan or of what is bound to its operands."""
    if bound:
        bench.plan.bind(bench.workspace.argument, bench.args)(bench.stream)
        bench.device.synchronize()
    else:
        bench.run()


# What happens to what a kernel wrote before it is compared: nothing, unless a test means harm.
Spoil = Callable[[Bench], None]


def nothing(bench: Bench) -> None:
    """Leaves it as it is."""


def check_kernel(
    problem: Problem, device: Device, name: str, outputs: Arrays, tally: Tally, spoil: Spoil
) -> None:
    """Runs one kernel, from poisoned outputs, and compares every byte."""
    desc = problem.varied or problem.desc
    plan = planq.Plan.select(device.stream(), desc, pinned(name))
    bench = Bench(device, problem.desc, layouts=problem.layouts, plan=plan, extents=problem.extents)
    give(problem, bench)
    if not is_taken(bench):
        tally.unmet += 1
        return
    tally.runs[name] += 1
    what = f"{name} on {problem.desc} {problem.extents or ''} {problem.layouts or ''}"
    judge = judge_of(plan, problem.case, problem.inputs)
    left = {
        place: operand
        for place, operand in bench.operands.items()
        if place.partition("[")[0] in problem.absent
    }
    first: dict[str, bytes] | None = None
    for _ in range(1 + problem.twice):
        bench.load(problem.inputs)
        started(bench, bound=problem.bound)
        spoil(bench)
        for place, operand in left.items():
            kept = problem.inputs.get(place)
            operand.assert_holds(kept, f"{what}: {place}, which was not given")
        bench.check(problem.inputs, {**outputs, **unwritten(left)}, what, judge)
        if problem.twice:
            bits = {place: values.tobytes() for place, values in bench.outputs().items()}
            first = first or bits
            assert bits == first, f"{what}: another run has other bits"


def unwritten(operands: dict[str, Operand]) -> Arrays:
    """What operands hold."""
    return {name: operand.read() for name, operand in operands.items()}


@dataclass
class Fuzzer:
    """One operator on one device.

    Attributes:
        reference: Whether the operator's reference says what is right where it is quick enough;
            otherwise the host backend does.
        test: The test that runs it, by its name on a command line.
    """

    operator: str
    device: Device
    reference: bool
    test: str
    spoil: Spoil = nothing

    def check(self, seed: int, index: int, tally: Tally) -> None:
        """One case on all of its kernels; what is wrong goes to the tally."""
        with np.errstate(all="ignore"):
            try:
                problem = problem_of(self.operator, seed, index, tally)
                outputs = right_outputs(problem, reference=self.reference)
            except planq.NoKernelError:
                tally.refused += 1
                return
            except Exception as error:
                self._found(error, seed, index, tally)
                return
            tally.cases += 1
            tally.elements += problem.case.size
            for name in takers(problem.varied or problem.desc, self.device.name):
                try:
                    check_kernel(problem, self.device, name, outputs, tally, self.spoil)
                except planq.CudaError as error:  # nothing on the device works after some of them
                    error.add_note(self._repeats(seed, index))
                    raise
                except Exception as error:
                    self._found(error, seed, index, tally)

    def _repeats(self, seed: int, index: int) -> str:
        return f'PLANQ_FUZZ_CASE={seed}/{index} python3 -m pytest "{self.test}"'

    def _found(self, error: Exception, seed: int, index: int, tally: Tally) -> None:
        text = f"{type(error).__name__}: {error}"
        tally.found.append(f"{self._repeats(seed, index)}\n  {text[:MOST_SAID]}")

    def run(self, seed: int, indices: Iterable[int]) -> Tally:
        """Many cases; stops early where the environment says how long it may take."""
        backend = "cuda" if self.device.name.startswith("cuda") else "host"
        tally = Tally(self.operator, seed, backend)
        own = [name for name in bases(self.operator) if backend in re.split("[/:]", name)]
        tally.elsewhere = [s for s in own if is_elsewhere(self.operator, s, self.device.name)]
        end = time.monotonic() + float(os.environ.get("PLANQ_FUZZ_SECONDS", "inf"))
        for index in indices:
            self.check(seed, index, tally)
            if time.monotonic() > end:
                break
        return tally


def shard_of(
    operator: str, few: int, shard: int, shards: int, *, each: int = 1
) -> tuple[int, list[int]]:
    """The seed and the numbers of the cases of one of several tests of an operator.

    `few` cases of seed 0, unless the environment says otherwise: PLANQ_FUZZ how many of a new seed,
    one for `each` of its number, but twice as many as kernels at least; PLANQ_FUZZ_SEED which seed;
    PLANQ_FUZZ_CASE=seed/number which case.
    """
    if one := os.environ.get("PLANQ_FUZZ_CASE"):
        seed, _, index = one.partition("/")
        return int(seed), [int(index)] if int(index) // 2 % shards == shard else []
    many = os.environ.get("PLANQ_FUZZ")
    count = max(int(many) // each, 2 * len(bases(operator))) if many else few
    return _new_seed() if many else 0, [i for i in range(count) if i // 2 % shards == shard]


@cache
def _new_seed() -> int:
    """One for all tests of a run, whichever of pytest-xdist's workers has them."""
    if given := os.environ.get("PLANQ_FUZZ_SEED"):
        return int(given)
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    return zlib.crc32(run.encode()) if run else int.from_bytes(os.urandom(4), "little")


def summary(found: list[str]) -> str:
    """The first of what was found, and how much there is."""
    shown = "\n".join(found[:MOST_SHOWN])
    return f"{len(found)} wrong, of which the first:\n{shown}"
