"""`percentile_clip` on the host: a hundred steps and more, edges, what bitsandbytes computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

INF, NAN = math.inf, math.nan


class Clipper:
    """One history, and the plan that goes on with it."""

    def __init__(self, size: int = 1, percentile: int = 5) -> None:
        """Nothing is remembered yet."""
        desc = planq.PercentileClipDescriptor(
            shape=(size,), input_dtype="float32", percentile=percentile
        )
        self.plan = planq.Plan.select(planq.HOST, desc)
        self.history = np.zeros(100, np.float32)

    def step(self, x: Array, number: Any) -> tuple[float, float, float]:
        """The factor, the norm and the bound."""
        outputs = self.plan.empty_outputs(np)
        room = np.empty(self.plan.workspace_size() + 256, np.uint8)
        room = room[-room.ctypes.data % 256 :][: self.plan.workspace_size()]
        args = planq.PercentileClipArgs(input=x, history=self.history, step=number, **outputs)
        self.plan.run(planq.HOST, room, args)
        scale, norm, bound = (outputs[n][0] for n in ("gradient_scale", "norm", "clip_value"))
        return float(scale), float(norm), float(bound)


# Of a sum of 50 squares, by 6 levels of a tree, in each of two norms, of two roots and of a ratio.
ROUNDINGS = 11 * 2.0**-24


def numbers(*values: float) -> Array:
    """As float32."""
    return np.array(values, np.float32)


def test_300_steps_have_the_bound_of_bitsandbytes_formula() -> None:
    """Sorted squared norms of the last 100 steps, of which the first stands for those before it."""
    rng = np.random.default_rng(0)
    clipper, seen = Clipper(50, 10), []
    for step in range(1, 301):
        x = rng.standard_normal(50).astype(np.float32) * np.float32(rng.exponential())
        seen.append(float(np.sum(x.astype(np.float64) ** 2)))
        scale, norm, bound = clipper.step(x, step)
        last = [*[seen[0]] * (100 - len(seen)), *seen[-100:]]
        wanted = math.sqrt(sorted(last)[10])
        assert bound == pytest.approx(wanted, rel=ROUNDINGS)
        assert norm == pytest.approx(math.sqrt(seen[-1]), rel=ROUNDINGS)
        assert scale == pytest.approx(min(1, wanted / math.sqrt(seen[-1])), rel=ROUNDINGS)


def test_the_first_step_is_every_step_before_it() -> None:
    """And clips nothing; the second of the same size neither."""
    clipper = Clipper(2)
    assert clipper.step(numbers(3, 4), 1) == (1, 5, 5)
    assert clipper.history.tolist() == [25] * 100
    assert clipper.step(numbers(30, 40), 2) == (float(np.float32(0.1)), 50, 5)
    assert clipper.history.tolist() == [25, 25, 2500, *[25] * 97]


@pytest.mark.parametrize(("value", "scale", "norm"), [(NAN, 1, NAN), (INF, 0, INF), (-INF, 0, INF)])
def test_what_is_not_finite_is_not_remembered(value: float, scale: float, norm: float) -> None:
    """The factor of an infinity is 0, which an optimizer's step makes NaN of: both are seen."""
    clipper = Clipper()
    clipper.step(numbers(2), 1)
    found = clipper.step(numbers(value), 2)
    assert found[0] == scale
    assert np.array_equal(found[1], norm, equal_nan=True)
    assert found[2] == 2
    assert clipper.history.tolist() == [4] * 100


def test_zeros_are_left_alone() -> None:
    """0 / 0 is not computed."""
    assert Clipper().step(numbers(0), 1) == (1, 0, 0)


def test_the_step_may_lie_in_memory() -> None:
    """Where a captured graph finds it."""
    clipper = Clipper()
    step = np.array([1], np.int64)
    for value in (1.0, 2.0, 3.0):
        clipper.step(numbers(value), step)
        step += 1
    assert clipper.history[:5].tolist() == [1, 1, 4, 9, 1]


@pytest.mark.parametrize("percentile", [-1, 100])
def test_percentiles_that_there_are_not(percentile: int) -> None:
    """Of a hundred norms, 0 to 99 are below one."""
    with pytest.raises(planq.DescriptorError) as error:
        planq.PercentileClipDescriptor(shape=(3,), input_dtype="float32", percentile=percentile)
    assert error.value.field == "percentile"
