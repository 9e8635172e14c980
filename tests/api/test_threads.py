"""One plan, many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import planq
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import outputs
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference import inputs

THREADS, ROUNDS = 8, 30
PROBLEM = Problem((64, 3001), "bfloat16", "uint8", mode="asymmetric")


def test_eight_threads_share_a_plan() -> None:
    """Each with operands of its own, all at once, every round right."""
    plan = planq.Plan.select(planq.HOST, descriptor(PROBLEM))
    barrier = threading.Barrier(THREADS)

    def work(seed: int) -> int:
        x = inputs.make("mixed", PROBLEM.shape, PROBLEM.input_dtype, seed)
        wanted = outputs(PROBLEM, x)
        q, s = np.empty(PROBLEM.shape, np.uint8), np.empty(64, np.float32)
        zp = np.empty(64, np.int32)
        args = planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s, zero_point=zp)
        stream = planq.host_stream(threads=1 + seed % 3)
        barrier.wait()
        right = 0
        for _ in range(ROUNDS):
            q.fill(99)
            s.fill(-1)
            zp.fill(-1)
            plan.run(stream, None, args)
            same = (q == wanted["output"]).all() and (zp == wanted["zero_point"]).all()
            right += bool(same and s.tobytes() == wanted["scale"].tobytes())
        return right

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [ROUNDS] * THREADS


def outputs_of(problem: Problem) -> dict[str, np.ndarray]:
    """Room for one run."""
    rows = problem.shape[0]
    return {
        "output": np.empty(problem.shape, np.uint8),
        "scale": np.empty(rows, np.float32),
        "zero_point": np.empty(rows, np.int32),
    }


def test_threads_launch_at_once_what_they_bound() -> None:
    """Each with outputs of its own and all with one input; one launch goes round them in turns."""
    x = inputs.make("normal", PROBLEM.shape, PROBLEM.input_dtype, 1)
    plan = planq.Plan.select(planq.HOST, descriptor(PROBLEM))
    expected = {name: values.tobytes() for name, values in outputs(PROBLEM, x).items()}
    turn = threading.Lock()
    common = outputs_of(PROBLEM)
    shared = plan.bind(None, planq.DynamicRangeQuantizeArgs(input=x, **common))
    barrier = threading.Barrier(THREADS)

    def work(_: int) -> dict[str, np.ndarray]:
        own = outputs_of(PROBLEM)
        launch = plan.bind(None, planq.DynamicRangeQuantizeArgs(input=x, **own))
        barrier.wait()
        for _ in range(10):
            launch(planq.HOST)
            with turn:
                shared(planq.HOST)
        return own

    with ThreadPoolExecutor(THREADS) as pool:
        for made in [common, *pool.map(work, range(THREADS))]:
            assert {n: a.tobytes() for n, a in made.items()} == expected


def test_threads_select_at_the_same_time() -> None:
    """From the first selection on, with caches still empty."""
    descriptors = [descriptor(Problem((n, 33), "float16")) for n in range(1, 200)]
    with ThreadPoolExecutor(THREADS) as pool:
        plans = list(pool.map(lambda d: planq.Plan.select(planq.HOST, d), descriptors))
    assert [plan.descriptor for plan in plans] == descriptors
    assert len({plan.sku for plan in plans}) == 1
