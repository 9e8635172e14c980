"""One plan, many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import planq
from adapters.dynamic_range_quantize import descriptor
from reference import inputs
from reference.cases import outputs
from reference.dynamic_range_quantize import Problem

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


def test_threads_share_a_bound_launch() -> None:
    """Same operands, same bits, whoever writes last."""
    x = inputs.make("normal", PROBLEM.shape, PROBLEM.input_dtype, 1)
    q, s = np.empty(PROBLEM.shape, np.uint8), np.empty(64, np.float32)
    zp = np.empty(64, np.int32)
    args = planq.DynamicRangeQuantizeArgs(input=x, output=q, scale=s, zero_point=zp)
    launch = planq.Plan.select(planq.HOST, descriptor(PROBLEM)).bind(None, args)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: launch(planq.HOST), range(THREADS * 10)))
    wanted = outputs(PROBLEM, x)
    assert np.array_equal(q, wanted["output"])
    assert s.tobytes() == wanted["scale"].tobytes()
    assert np.array_equal(zp, wanted["zero_point"])


def test_threads_select_at_the_same_time() -> None:
    """From the first selection on, with caches still empty."""
    descriptors = [descriptor(Problem((n, 33), "float16")) for n in range(1, 200)]
    with ThreadPoolExecutor(THREADS) as pool:
        plans = list(pool.map(lambda d: planq.Plan.select(planq.HOST, d), descriptors))
    assert [plan.descriptor for plan in plans] == descriptors
    assert len({plan.sku for plan in plans}) == 1
