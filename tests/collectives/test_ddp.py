"""The communication hook of DistributedDataParallel."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.distributed as pd
from collectives import jobs
from collectives.formulas import Problem
from collectives.team import Team
from planq.audit.ops.group.reference import F32

RANKS = 3


@pytest.mark.parametrize(
    "problem",
    [
        Problem(shape=(3, 512), levels=(3,), mean=True),
        Problem(
            shape=(40, 30), levels=(2, 3), input_dtype="bfloat16", mode="asymmetric", mean=True
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_errors_are_those_of_the_formula(team: Team, problem: Problem, beta: float) -> None:
    """``err' = fl(fl(beta * err) + fl(fl(1 - beta) * fl(h - d)))`` of every rank, for two steps."""
    check_errors(team, [{}], problem, beta)


@pytest.mark.parametrize("limits", [{"FEW": 0}, {"PIECE_BYTES": 1}], ids=str)
def test_errors_do_not_depend_on_how_messages_are_made(team: Team, limits: dict[str, int]) -> None:
    """In bulk, in pieces; in two levels, where codes lie in the order of the devices."""
    check_errors(team, [limits], Problem(shape=(3000,), levels=(2, 3), mean=True), 0.25)


def check_errors(team: Team, limits: list[dict[str, int]], problem: Problem, beta: float) -> None:
    """Compares gradients and errors of all ranks."""
    steps = [problem.inputs(seed) for seed in (1, 2)]
    options: dict[str, Any] = {"error_feedback": True, "beta": beta, **problem.options}
    found = team.run(jobs.otherwise, limits, "hooked", problem.levels, steps, **options)
    wide = Problem(shape=problem.shape, levels=problem.levels, mean=True, **problem.options)
    alone = Problem(shape=problem.shape, levels=problem.levels, **problem.options)
    errors = [np.zeros(problem.shape, F32) for _ in range(problem.ranks)]
    for step, given in enumerate(steps):
        h = [x.astype(F32) + e for x, e in zip(given, errors, strict=True)]
        d = [alone.all_gather(x) for x in h]
        share = F32(beta)
        errors = [
            share * e + (F32(1) - share) * (x - y) for e, x, y in zip(errors, h, d, strict=True)
        ]
        mean = wide.all_reduce(h).astype(steps[0][0].dtype).tobytes()
        for rank in range(problem.ranks):
            assert found[rank][step] == (mean, errors[rank].tobytes())


def test_without_error_feedback_it_is_an_all_reduce(team: Team) -> None:
    """The mean."""
    problem = Problem(shape=(77,), levels=(RANKS,), input_dtype="float16", dtype="int4", mean=True)
    given = problem.inputs(3)
    found = team.run(jobs.hooked, problem.levels, [given], **problem.options)
    assert found[:RANKS] == [[(problem.all_reduce(given).tobytes(), b"")]] * RANKS


def test_a_bucket_that_was_built_anew_is_not_taken_for_the_one_before(alone: Any) -> None:
    """Its memory is other memory, and that of the one before is let go."""
    model = torch.nn.Linear(30, 20)
    state = pd.QuantizedAllReduceState(model)
    parameters = [model.weight, model.bias]
    buckets: list[Any] = []
    for order in (parameters, parameters, parameters[::-1]):
        bucket: Any = jobs.Bucket(order, [np.zeros(each.shape, np.float32) for each in order])
        for seed in (1, 2):
            torch.manual_seed(seed)
            values = [torch.randn(each.shape) for each in order]
            for place, value in zip(bucket.gradients(), values, strict=True):
                place.copy_(value)
            pd.quantized_all_reduce_hook(state, bucket).wait()
            expected = pd.quantized_all_reduce(values, op=torch.distributed.ReduceOp.AVG)
            pairs = zip(bucket.gradients(), expected, strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
        buckets.append(weakref.ref(bucket.buffer()))
    del bucket
    gc.collect()
    assert [each() is None for each in buckets] == [True, True, False]


def test_an_error_that_is_not_finite_is_forgotten(team: Team) -> None:
    """A step that loss scaling skips leaves nothing in the next ones."""
    problem = Problem(shape=(2, 64), levels=(2,), group_size=64, mean=True)
    bad, good = problem.inputs(4), problem.inputs(5)
    bad[0][0, 3], bad[1][1, 5] = np.nan, np.inf
    found = team.run(jobs.hooked, (2,), [bad, good], error_feedback=True, **problem.options)
    for rank in range(2):
        first, second = (np.frombuffer(error, F32) for _, error in found[rank])
        assert np.isfinite(first).all()
        assert not first.reshape(2, 64)[rank].any()
        assert np.isfinite(second).all()
        assert second.any()


OPTIONS: list[dict[str, Any]] = [
    {"dtype": "int8", "group_size": 64},
    {"dtype": "int4", "group_size": 32, "error_feedback": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_network_learns_as_well_as_without_codes(team: Team, options: dict[str, Any]) -> None:
    """And has the same bits on all ranks, in every run and in buckets of any size."""
    plain = team.run(jobs.trained, RANKS, 60)[:RANKS]
    found = team.run(jobs.trained, RANKS, 60, **options)[:RANKS]
    again = team.run(jobs.trained, RANKS, 60, 0.001, **options)[:RANKS]
    loss, expected = (sum(loss for loss, _ in each) / RANKS for each in (found, plain))
    assert loss == pytest.approx(expected, rel=0.05)
    assert {weights for _, weights in found} == {weights for _, weights in again}
    assert len({weights for _, weights in found}) == 1
    assert found[0][1] != plain[0][1]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_goes_on_from_a_checkpoint(team: Team, options: dict[str, Any]) -> None:
    """With the bits that it had had without one."""
    for whole, second in team.run(jobs.resumed, RANKS, **options)[:RANKS]:
        assert whole == second


def test_refusals(alone: Any) -> None:
    """Arguments, and states of other models."""
    model = torch.nn.Linear(3, 2)
    state: Any = pd.QuantizedAllReduceState
    with pytest.raises(planq.ArgumentError, match="module: expected"):
        state(3)
    for beta in (1, -0.1, float("nan")):
        with pytest.raises(planq.ArgumentError, match="beta: expected"):
            state(model, beta=beta)
    with pytest.raises(planq.DescriptorError, match="output_dtype"):
        state(model, dtype="uint4")
    for name, shape in (("weight", (3, 2)), ("other", (2, 3))):
        with pytest.raises(planq.ArgumentError, match=name):
            state(model).load_state_dict({"errors": {name: torch.zeros(shape)}})
    other: Any = jobs.Bucket([torch.zeros(2)], [np.zeros(2, np.float32)])
    with pytest.raises(planq.ArgumentError, match="the model whose gradients are reduced"):
        pd.quantized_all_reduce_hook(state(model, error_feedback=True), other)


def test_the_example_learns_as_much_from_codes(team: Team) -> None:
    """Every rank has the same weights, other ones for each hook, and about the loss of float32."""
    found = {hook: team.run(jobs.example, hook, 12) for hook in ("none", "int8", "int4")}
    plain, _ = found["none"][0]
    assert plain[-1] < 0.8 * plain[0]
    for results in found.values():
        losses, _ = results[0]
        assert results == [results[0]] * len(results)
        assert losses[0] == plain[0]
        assert losses[-1] == pytest.approx(plain[-1], rel=0.02)
    assert len({results[0][1] for results in found.values()}) == len(found)
