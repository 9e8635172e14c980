"""Numbers of plans and launches: what ended stays ended, and what runs is kept."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from support import c_library as c
from support.samples import make_descriptor, make_sample

THREADS, ROUNDS = 8, 60
TEXT = make_descriptor().to_json()


def operands() -> tuple[Any, dict[str, Any]]:
    """A sample with its operands by name."""
    made = make_sample()
    return made, {"input": made.x, "output": made.q, "scale": made.s}


def ended() -> int:
    """The number of a plan that was released."""
    plan = c.Plan.select(TEXT)
    c.call("planq_plan_release", plan.handle)
    return plan.handle.value


def bound() -> c.Launch:
    """A launch on a sample of its own."""
    made, given = operands()
    launch = c.Plan.select(TEXT).bind(given)
    launch.sample = made
    return launch


def uses(handle: int) -> dict[str, Callable[[], None]]:
    """Every function that takes a plan."""
    plan = c.Plan()
    plan.handle = ctypes.c_uint64(handle)
    _, given = operands()
    texts = ("sku", "to_json", "guarantee", "operands", "explain")
    return {
        **{what: lambda what=what: plan.text(what) for what in texts},
        "workspace_size": plan.workspace_size,
        "can_implement": lambda: plan.can_implement(given),
        "run": lambda: plan.run(given),
        "bind": lambda: plan.bind(given),
        "retain": lambda: c.call("planq_plan_retain", handle),
        "release": lambda: c.call("planq_plan_release", handle),
    }


NONE = [0, 1, 2**64 - 1, 1 << 60, (1 << 60) | (1 << 32) | 4_000_000, (2 << 60) | (1 << 32)]


@pytest.mark.parametrize("handle", [*NONE, "ended", "launch"], ids=str)
def test_a_number_that_is_no_plans_is_refused(handle: Any) -> None:
    """By every function, time and again."""
    launch = bound()
    number = {"ended": ended, "launch": lambda: launch.handle.value}.get(handle, lambda: handle)()
    for _ in range(2):
        for use in uses(number).values():
            with pytest.raises(c.Refused, match="no plan has this number") as refused:
                use()
            assert refused.value.code == "handle"
    launch()


def test_a_number_that_is_no_launchs_is_refused() -> None:
    """A plan's, one that ended, and none at all."""
    plan, launch = c.Plan.select(TEXT), bound()
    gone = launch.handle.value
    c.call("planq_launch_release", gone)
    for handle in (0, plan.handle.value, gone, *NONE[:-1]):
        for name, more in (("run", (c.host(),)), ("retain", ()), ("release", ())):
            with pytest.raises(c.Refused, match="no launch has this number"):
                c.call(f"planq_launch_{name}", handle, *more)


def test_a_plan_ends_with_its_last_reference() -> None:
    """Each is given back once."""
    plan = c.Plan.select(TEXT)
    for _ in range(3):
        c.call("planq_plan_retain", plan.handle)
    for _ in range(3):
        c.call("planq_plan_release", plan.handle)
        assert plan.text("sku")
    c.call("planq_plan_release", plan.handle)
    with pytest.raises(c.Refused, match="no plan has this number"):
        plan.text("sku")


def test_no_number_comes_twice() -> None:
    """Though places do."""
    seen = {ended() for _ in range(3000)}
    assert len(seen) == 3000


def test_a_launch_keeps_its_plan() -> None:
    """And its operands' descriptions, but not their memory, which is the caller's."""
    made, given = operands()
    plan = c.Plan.select(TEXT)
    launch = plan.bind(given)
    c.call("planq_plan_release", plan.handle)
    launch()
    assert made.right()
    made.poison()
    c.call("planq_launch_retain", launch.handle)
    c.call("planq_launch_release", launch.handle)
    launch(c.host(3))
    assert made.right()


def test_threads_share_a_plan_and_let_go_of_it_in_any_order() -> None:
    """Each run is right or refused; after the last reference every one is refused."""
    plan = c.Plan.select(TEXT)
    for _ in range(THREADS - 1):
        c.call("planq_plan_retain", plan.handle)
    barrier = threading.Barrier(THREADS)

    def work(_: int) -> int:
        made, given = operands()
        array, count = c.operands(given)
        right = 0
        barrier.wait()
        for _ in range(ROUNDS):
            made.poison()
            c.call("planq_plan_retain", plan.handle)
            c.call("planq_run", plan.handle, c.host(), None, 0, array, count)
            c.call("planq_plan_release", plan.handle)
            right += made.right()
        c.call("planq_plan_release", plan.handle)
        return right

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [ROUNDS] * THREADS
    with pytest.raises(c.Refused, match="no plan has this number"):
        plan.text("sku")


def test_a_plan_that_another_thread_ends_is_kept_while_it_runs() -> None:
    """One reference, many runs: each is whole, or refused."""
    for _ in range(20):
        plan = c.Plan.select(TEXT)
        barrier = threading.Barrier(THREADS + 1)

        def work(_: int, plan: c.Plan = plan, barrier: threading.Barrier = barrier) -> bool:
            made, given = operands()
            array, count = c.operands(given)
            barrier.wait()
            for _ in range(2000):
                made.poison()
                try:
                    c.call("planq_run", plan.handle, c.host(), None, 0, array, count)
                except c.Refused as refused:
                    return refused.code == "handle" and made.untouched()
                if not made.right():
                    return False
            return False

        with ThreadPoolExecutor(THREADS) as pool:
            answers = pool.map(work, range(THREADS))
            barrier.wait()
            c.call("planq_plan_release", plan.handle)
            assert all(answers)


def test_threads_make_and_end_plans_at_once() -> None:
    """No two have one number, and none meets another's end."""
    barrier = threading.Barrier(THREADS)

    def work(_: int) -> list[int]:
        barrier.wait()
        numbers = []
        for _ in range(40):
            made, given = operands()
            plan = c.Plan.select(TEXT)
            launch = plan.bind(given)
            numbers.append(plan.handle.value)
            del plan
            launch()
            assert made.right()
        return numbers

    with ThreadPoolExecutor(THREADS) as pool:
        found = [number for numbers in pool.map(work, range(THREADS)) for number in numbers]
    assert len(set(found)) == len(found)


def test_a_sentence_is_its_threads() -> None:
    """Another thread's failure does not change it."""
    with pytest.raises(c.Refused):
        c.Plan.select("?")
    mine = c.C.planq_last_error()

    def fail() -> bytes:
        before = c.C.planq_last_error()
        with pytest.raises(c.Refused):
            c.call("planq_plan_release", 0)
        return bytes(before)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(fail).result() == b""
    assert c.C.planq_last_error() == mine


def test_a_run_from_c_allocates_nothing() -> None:
    """What it needs was made with the plan."""
    c.C.planq_allocations.restype = ctypes.c_uint64
    _, given = operands()
    c.Plan.select(TEXT).run(given)
    before = c.C.planq_allocations()
    plan = c.Plan.select(TEXT)
    launch = plan.bind(given)
    assert c.C.planq_allocations() > before
    before = c.C.planq_allocations()
    for _ in range(3):
        plan.run(given)
        plan.can_implement(given)
        launch()
    assert c.C.planq_allocations() == before
    assert np.isfinite(given["scale"]).all()
