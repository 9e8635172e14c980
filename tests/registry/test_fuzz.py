"""Random problems of every operator on every host kernel, against the operator's reference.

`make test` takes the same few of them every time; `make fuzz` takes others, and many: of each
operator a tenth of PLANQ_FUZZ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.operators import OPERATORS, name_of
from planq.audit.runner import Bench
from support.fuzz.engine import Fuzzer, nothing, shard_of, summary
from support.fuzz.tally import PROPERTY, Tally, gathered, unreached

FEW = 50
NAME = "tests/registry/test_fuzz.py::test_host_kernels_agree_with_the_reference[{}]"
# Two of the caller's choices, one for every other case.
HOSTS = (Host(1), Host(3))


def fuzzer(operator: str, host: Host, **changes: Any) -> Fuzzer:
    """Of an operator's host kernels."""
    return Fuzzer(operator, host, reference=True, test=NAME.format(operator), **changes)


@pytest.mark.parametrize("operator", OPERATORS)
def test_host_kernels_agree_with_the_reference(
    operator: str, record_property: Callable[[str, object], None]
) -> None:
    """Every byte of every output, and none beside them, in one thread and in three."""
    found: list[str] = []
    cases = refused = 0
    for shard, host in enumerate(HOSTS):
        seed, indices = shard_of(operator, FEW, shard, len(HOSTS), each=10)
        tally = fuzzer(operator, host).run(seed, indices)
        record_property(PROPERTY, tally.text())
        found += tally.found
        cases, refused = cases + tally.cases, refused + tally.refused
    assert not found, summary(found)
    assert refused <= cases, "most of the descriptors test nothing but their refusal"


def spoiled_bit(bench: Bench) -> None:
    """The lowest bit of the last byte of an output flips."""
    for name, operand in bench.operands.items():
        if bench.roles[name] == "output" and operand.read().size:
            values = np.ascontiguousarray(operand.read())
            values.reshape(-1).view(np.uint8)[-1] ^= 1
            operand.write(values)
            return


def spoiled_guard(bench: Bench) -> None:
    """The byte before the first operand's allocation's end changes."""
    memory = next(iter(bench.operands.values()))._memory
    image = memory.download()
    image[-1] ^= 1
    memory.upload(image)


@pytest.mark.parametrize("spoil", [spoiled_bit, spoiled_guard])
def test_a_bit_that_differs_is_found(spoil: Callable[[Bench], None]) -> None:
    """In nearly every case: few have no output with elements."""
    tally = fuzzer("quantize", HOSTS[0], spoil=spoil).run(0, range(40))
    assert tally.runs.total() >= 40
    assert len(tally.found) >= 35
    assert all("PLANQ_FUZZ_CASE=0/" in text for text in tally.found)


def tiny_ranges(bench: Bench) -> None:
    """As a backend would be wrong whose steps may not be subnormal: codes of tiny groups change."""
    desc = bench.plan.descriptor
    assert isinstance(desc, planq.FakeQuantizeDescriptor)
    x, y = (bench.operands[name] for name in ("input", "output"))
    values = x.read().astype(np.float64)
    width = values.max(initial=-np.inf) - values.min(initial=np.inf)
    steps = width / 2 ** (desc.bits or 8)
    if desc.convention is planq.Convention.DEEPSPEED and 0 < steps < 2.0**-126:
        y.write(np.zeros_like(y.read()))


def finds(fuzz: Fuzzer, most: int, what: str = "") -> bool:
    """Whether one of the first cases is found wrong, with these words; none after it is tried."""
    return any(what in text for index in range(most) for text in fuzz.run(0, [index]).found)


def test_steps_that_are_subnormal_are_among_the_cases() -> None:
    """A backend that computes them otherwise is found out."""
    assert finds(fuzzer("fake_quantize", HOSTS[0], spoil=tiny_ranges), 600)


def test_the_host_says_what_is_right_as_the_reference_does() -> None:
    """As on a GPU, whose bits are compared with those of the host in one thread."""
    fuzz = Fuzzer("fake_quantize", HOSTS[1], reference=False, test="", spoil=tiny_ranges)
    assert finds(fuzz, 600)
    fuzz.spoil = nothing
    assert not fuzz.run(0, range(100)).found


def test_operands_that_are_not_given_stay_as_they_are() -> None:
    """A kernel that writes to memory of an operand that it was not given is found out."""

    def harm(bench: Bench) -> None:
        norm = bench.operands.get("update_norm[0]")
        if norm is not None and bench.args.update_norm is None:
            norm.write(np.ones_like(norm.read()))

    fuzz = fuzzer("optimizer_step", HOSTS[0], spoil=harm)
    assert finds(fuzz, 200, "update_norm[0], which was not given")


def report(when: Literal["setup", "call", "teardown"], tally: Tally) -> pytest.TestReport:
    """As pytest makes one of a test that had this tally."""
    noted = [(PROPERTY, tally.text())]
    return pytest.TestReport("a", ("a", 0, "a"), {}, "passed", None, when, user_properties=noted)


def test_a_kernel_that_no_case_came_to_is_told() -> None:
    """Out of several tests of an operator; where there were cases enough, and on this device."""
    kernels = next(o.kernels for o in planq.operators() if o.name == "quantize")
    on_host = [name_of(kernel) for kernel in kernels if kernel.backend is planq.Backend.HOST]
    half = Tally("quantize", 0, "host", cases=len(kernels), elements=3)
    half.elsewhere = on_host[:1]
    other = replace(half, runs=Counter(on_host[2:]))
    reports = [
        *(report("setup", other), report("call", half)),
        *(report("call", other), report("teardown", half)),
    ]
    assert not unreached(gathered(reports[:2]))
    tallies = gathered(reports)
    assert [(tally.cases, tally.elements) for tally in tallies] == [(2 * len(kernels), 6)]
    assert unreached(tallies) == on_host[1:2]


def test_a_case_is_its_seed_and_number() -> None:
    """Alone as among others."""
    among, alone = (fuzzer("fake_quantize", HOSTS[0]) for _ in range(2))
    seen: list[dict[str, bytes]] = []

    def keep(bench: Bench) -> None:
        seen.append({name: operand.read().tobytes() for name, operand in bench.operands.items()})

    among.spoil = alone.spoil = keep
    among.run(3, range(7))
    last = seen[-1]
    seen.clear()
    alone.run(3, [6])
    assert seen[-1] == last
