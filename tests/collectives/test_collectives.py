"""Quantized collectives among processes, against formulas in NumPy."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import planq
import planq.distributed as pd
from collectives import jobs
from collectives.formulas import Problem
from collectives.team import SIZE, Team
from planq.audit.ops.group.reference import GroupQuantizeProblem

# Whole groups that need no copy; parts that are no whole groups; the last of them shorter; ranks
# without any; no elements; every dtype, width and mode.
PROBLEMS = [
    Problem(shape=(4, 512), levels=(4,)),
    Problem(shape=(4, 300), levels=(4,), input_dtype="bfloat16", mean=True),
    Problem(shape=(37, 53), levels=(3,), input_dtype="float16", mode="asymmetric", group_size=33),
    Problem(shape=(1001,), levels=(2,), dtype="int4", group_size=30, mean=True),
    Problem(shape=(5,), levels=(4,), dtype="int4", mode="asymmetric", group_size=2),
    Problem(shape=(3, 0), levels=(4,)),
    Problem(shape=(), levels=(2,)),
    Problem(shape=(700,), levels=(1,), input_dtype="bfloat16", mode="asymmetric"),
    Problem(shape=(6, 512), levels=(3, 2)),
    Problem(shape=(999,), levels=(2, 3), input_dtype="float16", dtype="int4", mean=True),
    Problem(shape=(43, 21), levels=(2, 2), mode="asymmetric", group_size=50),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_bits_are_those_of_the_formulas(team: Team, problem: Problem) -> None:
    """All ranks, whichever is late."""
    given = problem.inputs(1)
    parts = [each.tobytes() for each in problem.reduce_scatter(given)]
    whole = problem.all_reduce(given).tobytes()
    for late in ((), (0,), (2, 1)):
        args = (problem.levels, given, problem.options, problem.mean, None, late)
        found = team.run(jobs.collective, "reduce_scatter", *args)
        assert found[: problem.ranks] == parts
        found = team.run(jobs.collective, "all_reduce", *args)
        assert found[: problem.ranks] == [whole] * problem.ranks


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_gathered_bits_are_those_of_the_formulas(team: Team, problem: Problem) -> None:
    """Parts of one tensor, which some ranks have less of."""
    [whole] = problem.inputs(2)[:1]
    length, flat = problem.length, whole.reshape(-1)
    parts = [flat[rank * length : (rank + 1) * length] for rank in range(problem.ranks)]
    args = (problem.levels, parts, problem.options, False, problem.shape)
    found = team.run(jobs.collective, "all_gather", *args)
    assert found[: problem.ranks] == [problem.all_gather(whole).tobytes()] * problem.ranks


# Launches for all rows and copies; a launch for each row; whole groups in several pieces, which
# are sent while others are coded. The codes of ranks are the same, so that each may have its way.
LIMITS: dict[str, list[dict[str, int]]] = {
    "bulk": [{"FEW": 0}],
    "some in bulk": [{"FEW": 0}, {"FEW": 8}],
    "pieces": [{"PIECE_BYTES": 1}],
    "larger pieces": [{"PIECE_BYTES": 700}],
}


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_bits_do_not_depend_on_how_messages_are_made(
    team: Team, limits: list[dict[str, int]], name: str
) -> None:
    """By launches of each row or of all, whole or in pieces, in one level and in two."""
    for problem in PROBLEMS:
        given = problem.inputs(8)
        outs = None
        expected: Any = [problem.all_reduce(given).tobytes()] * problem.ranks
        if name == "reduce_scatter":
            expected = [each.tobytes() for each in problem.reduce_scatter(given)]
        if name == "all_gather":
            whole, length, outs = given[0], problem.length, problem.shape
            flat = whole.reshape(-1)
            given = [flat[rank * length : (rank + 1) * length] for rank in range(problem.ranks)]
            expected = [problem.all_gather(whole).tobytes()] * problem.ranks
        mean = problem.mean and name != "all_gather"
        args = (name, problem.levels, given, problem.options, mean, outs)
        found = team.run(jobs.otherwise, limits, "collective", *args)
        assert found[: problem.ranks] == expected


def test_pieces_are_sent_while_others_are_coded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are on their way before the first is waited for; each is waited for once."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from planq.distributed import _layout, _transport

    seen: list[str] = []

    class Work:
        """What is under way."""

        def wait(self) -> None:
            """Notes it."""
            seen.append("wait")

    def scatter(received: torch.Tensor, sent: torch.Tensor, group: Any, under_way: bool) -> Any:
        assert under_way

        def send() -> Work:
            seen.append(f"send {sent.numel()}")
            return Work()

        return send

    monkeypatch.setattr(_transport, "scatter", scatter)
    monkeypatch.setattr(_layout, "PIECE_BYTES", 1200)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        pd.quantized_reduce_scatter(torch.randn(2 * 2560), group_size=256)
    finally:
        dist.destroy_process_group()
        pd._exchange.forget()
    # 10 groups a rank, 2608 bytes: two pieces of 5, whose parameters end at a multiple of 16.
    assert seen == [f"send {2 * (5 * 256 + 32)}"] * 2 + ["wait", "wait"]


@pytest.mark.parametrize("name", ["reduce_scatter", "all_reduce"])
def test_what_is_kept_of_a_call_is_not_its_values(team: Team, name: str) -> None:
    """Calls of the same shape, at the addresses of the one before and at others."""
    problem = Problem(shape=(SIZE * 512,), levels=(SIZE,), dtype="int4")
    steps = [problem.inputs(seed) for seed in range(20)]
    found = team.run(jobs.again, name, steps, problem.options)
    for step, given in enumerate(steps):
        whole = [problem.all_reduce(given)] * SIZE
        expected = whole if name == "all_reduce" else problem.reduce_scatter(given)
        assert [each[step] for each in found] == [each.tobytes() for each in expected]


@pytest.mark.parametrize("mesh", [(1, SIZE), (SIZE, 1)])
def test_a_mesh_of_one_node_or_of_one_device_each_has_one_level(
    team: Team, mesh: tuple[int, ...]
) -> None:
    """Nothing is rounded for a level that sends nothing."""
    problem = Problem(shape=(500,), levels=(SIZE,))
    given = problem.inputs(7)
    found = team.run(jobs.collective, "all_reduce", mesh, given, problem.options)
    assert found == [problem.all_reduce(given).tobytes()] * SIZE


def test_what_is_gathered_without_out_has_the_ranks_before_its_shape(team: Team) -> None:
    """Like torch's, stacked."""
    problem = Problem(shape=(SIZE, 6, 7), levels=(SIZE,), group_size=8)
    [whole] = problem.inputs(3)[:1]
    found = team.run(jobs.collective, "all_gather", (SIZE,), list(whole), problem.options)
    assert found == [problem.all_gather(whole).tobytes()] * SIZE


LISTS: dict[str, list[dict[str, int]]] = {
    "copied": [{}],
    "direct": [{"DIRECT_ELEMENTS": 1}],
    "some direct": [{"DIRECT_ELEMENTS": 120}, {"DIRECT_ELEMENTS": 1}, {}],
    "direct pieces": [{"DIRECT_ELEMENTS": 1, "PIECE_BYTES": 300}],
    "bulk": [{"FEW": 0}],
}


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("limits", LISTS.values(), ids=LISTS)
def test_tensors_of_a_list_have_the_bits_that_they_have_alone(
    team: Team, limits: list[dict[str, int]], name: str
) -> None:
    """Whole groups and others, an empty one and one of a single element, whoever copies them."""
    shapes = [(30, 40), (0,), (180,), (360, 3), (1,), (64,), (999,), (180,)]
    options: dict[str, Any] = {"dtype": "int4", "group_size": 30, "mode": "asymmetric"}
    problems = [Problem(shape=shape, levels=(3,), **options) for shape in shapes]
    given = [problem.inputs(seed) for seed, problem in enumerate(problems)]
    lists = [list(each) for each in zip(*given, strict=True)]
    outs = None
    if name == "all_gather":
        lists = [[part(x, rank) for x in lists[0]] for rank in range(3)]
        outs = shapes
    args = (name, (3,), lists, options, False, outs)
    found = team.run(jobs.otherwise, limits, "collective", *args)
    expected = [whole_of(name, *each) for each in zip(problems, given, strict=True)]
    for rank in range(3):
        assert found[rank] == [each[rank] for each in expected]


def whole_of(name: str, problem: Problem, given: list[Any]) -> list[bytes]:
    """What each of three ranks gets; all-gather: of what the first has."""
    if name == "reduce_scatter":
        return [each.tobytes() for each in problem.reduce_scatter(given)]
    whole = problem.all_reduce(given) if name == "all_reduce" else problem.all_gather(given[0])
    return [whole.tobytes()] * 3


def part(x: Any, rank: int) -> Any:
    """That of one of three ranks."""
    length = -(-x.size // 3)
    return x.reshape(-1)[rank * length : (rank + 1) * length]


def test_nan_stays_in_its_group(team: Team) -> None:
    """A NaN or an infinity of one rank makes its group NaN on all, and no other."""
    problem = Problem(shape=(4, 128), levels=(4,), group_size=32)
    given = problem.inputs(4)
    given[1][0, 40], given[2][3, 127] = np.nan, np.inf
    found = team.run(jobs.collective, "all_reduce", (4,), given, problem.options)
    assert len(set(found[:4])) == 1
    nan = np.isnan(np.frombuffer(found[0], np.float32).reshape(16, 32))
    assert nan.all(axis=1).tolist() == [group in (1, 15) for group in range(16)]
    assert not nan.any(axis=1)[[0, 2, 14]].any()


@pytest.mark.parametrize("shape", [(SIZE, 512), (1023,)])
def test_memory_may_be_the_callers(team: Team, shape: tuple[int, ...]) -> None:
    """A workspace of any bytes, and the input for the result."""
    problem = Problem(shape=shape, levels=(SIZE,))
    for found in team.run(jobs.in_place, problem.inputs(5), problem.options):
        assert len(set(found)) == 1


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_what_is_bound_takes_what_tensors_hold_by_then(team: Team, problem: Problem) -> None:
    """Bits of all three collectives, of values that came after ``bind``, in the first outputs."""
    steps = [problem.inputs(seed) for seed in range(3)]
    args = (problem.levels, steps, problem.options, problem.mean)
    found = team.run(jobs.bound, *args)
    for step, given in enumerate(steps):
        expected = {
            "reduce_scatter": [each.tobytes() for each in problem.reduce_scatter(given)],
            "all_reduce": [problem.all_reduce(given).tobytes()] * problem.ranks,
        }
        for rank in range(problem.ranks):
            parts, whole, gathered = found[rank][step]
            assert parts == expected["reduce_scatter"][rank]
            assert whole == expected["all_reduce"][rank]
            assert gathered == found[0][step][2]
    assert found[0] == team.run(jobs.bound, *args, unbound=True)[0]


def test_what_is_bound_keeps_its_memory(alone: Any) -> None:
    """Of tensors, outputs and workspace that nobody else has, a list that is emptied among them."""
    tensors = [torch.randn(300, 40), torch.randn(7)]
    size = pd.workspace_size("all_reduce", tensors)
    lent = torch.empty(size + planq.WORKSPACE_ALIGNMENT, dtype=torch.uint8)
    lent = lent[-lent.data_ptr() % planq.WORKSPACE_ALIGNMENT :][:size]
    expected = pd.quantized_all_reduce(tensors)
    bound = pd.bind("all_reduce", tensors, workspace=lent)
    held = [weakref.ref(each) for each in (*tensors, lent)]
    tensors.clear()
    del lent
    gc.collect()
    assert all(each() is not None for each in held)
    bound()
    assert all(torch.equal(a, b) for a, b in zip(bound.out, expected, strict=True))
    del bound
    gc.collect()
    assert [each() for each in held] == [None] * 3


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_messages_have_the_documented_bytes(team: Team, dtype: str) -> None:
    """Codes, zeros or anything up to 16 bytes, parameters; those of rank i in row i."""
    problem = Problem(
        shape=(SIZE * 60,), levels=(SIZE,), dtype=dtype, group_size=20, mode="asymmetric"
    )
    given = problem.inputs(6)
    found = team.run(jobs.messages, given, problem.options)
    codes, offset, size = (60, 64, 96) if dtype == "int8" else (30, 32, 64)
    for rank, (sent, received) in enumerate(found):
        assert sent.shape == received.shape == (SIZE, size)
        expected = GroupQuantizeProblem(
            shape=problem.shape,
            input_dtype="float32",
            output_dtype=dtype,
            group_size=20,
            mode="asymmetric",
        ).expected({"input": given[rank]})
        assert sent[:, :codes].tobytes() == expected["output"].tobytes()
        assert sent[:, offset : offset + 24].tobytes() == expected["parameters"].tobytes()
        assert all((received[i] == found[i][0][rank]).all() for i in range(SIZE))


def test_what_is_kept_holds_neither_memory_nor_a_group() -> None:
    """Tensors, results and the group go when nobody else has them."""
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    group: Any = dist.group.WORLD
    x, odd = torch.randn(512), [torch.randn(9), torch.randn(512)]
    found = [pd.quantized_all_reduce(x), *pd.quantized_all_reduce(odd)]
    found += [pd.quantized_reduce_scatter(x), pd.quantized_all_gather(x)]
    held = [weakref.ref(each) for each in (group, x, *odd, *found)]
    dist.destroy_process_group()
    del group, x, odd, found
    gc.collect()
    assert [each() for each in held] == [None] * len(held)


def test_what_is_kept_is_not_taken_under_another_policy() -> None:
    """Which leaves no kernel; outside, the call is taken again."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = torch.randn(512)
        first = pd.quantized_all_reduce(x)
        with (
            planq.policy(planq.PlanPreference(backend="cuda")),
            pytest.raises(planq.NoKernelError, match="a policy in force"),
        ):
            pd.quantized_all_reduce(x)
        assert torch.equal(pd.quantized_all_reduce(x), first)
    finally:
        dist.destroy_process_group()


# --- Refusals, in this process: a group of one rank


class Wrapped(torch.Tensor):
    """A tensor on a host that has no memory there, as those of torch's functional collectives."""

    @staticmethod
    def __new__(cls, like: torch.Tensor) -> Any:
        """Of the same shape."""
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """No operation is meant to come here."""
        raise AssertionError(func)

    def __repr__(self) -> str:
        return "Wrapped"


X = torch.ones(8)
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("x", {}, "tensors: expected a tensor, or a list of tensors, got 'x'"),
    ([X, 3], {}, "tensors[1]: expected a tensor, got 3"),
    (X.double(), {}, "input_dtype: expected one of float16, bfloat16, float32, got float64"),
    ([X, X.half()], {}, "tensors[1]: expected torch.float32 on cpu, as the first, got"),
    (X.to("meta"), {}, "tensors: expected a tensor on cpu or cuda, got one on meta"),
    (torch.ones(4, 4).T, {}, "tensors: expected a contiguous tensor, got strides (1, 4)"),
    (torch._neg_view(X), {}, "tensors: expected a tensor without a negative bit, got one with it"),
    (Wrapped(X), {}, "tensors: expected a tensor with memory of its own, got a Wrapped"),
    (torch.ones(8, requires_grad=True), {}, "tensors: expected a tensor without a gradient"),
    (X, {"op": dist.ReduceOp.MAX}, "op: expected ReduceOp.SUM or ReduceOp.AVG, got"),
    (X, {"group": 3}, "group: expected a ProcessGroup or a DeviceMesh of 1 or 2 dimensions"),
    (X, {"dtype": "uint8"}, "output_dtype: expected one of int8, int4, got uint8"),
    (X, {"dtype": "int4", "group_size": 5}, "group_size:"),
    (X, {"group_size": 0}, "group_size:"),
    (X, {"mode": "odd"}, "mode:"),
    (X, {"out": torch.ones(7)}, "out: expected 8 elements, got 7"),
    (X, {"out": X.half()}, "out: expected torch.float32 on cpu, as what is given, got"),
    (X, {"out": [X]}, "out: expected a tensor, got 1 tensors"),
    ([X, X], {"out": [X]}, "out: expected a list of 2 tensors, got 1 tensors"),
    (X, {"workspace": torch.ones(3)}, "workspace: expected at least"),
    (X, {"workspace": torch.empty(0, dtype=torch.uint8)}, "workspace: expected at least"),
]


@pytest.mark.parametrize(("tensors", "options", "message"), REFUSED, ids=lambda x: str(x)[:40])
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    alone: Any, tensors: Any, options: dict[str, Any], message: str
) -> None:
    """With planq's errors."""
    calls: list[Any] = [pd.quantized_all_reduce, functools.partial(pd.bind, "all_reduce")]
    for call in calls:
        with pytest.raises(planq.PlanqError) as refused:
            call(tensors, **options)
        assert str(refused.value).startswith(message)


def test_no_group_at_all_is_refused() -> None:
    """Where torch.distributed is not initialized."""
    with pytest.raises(planq.ArgumentError, match=r"group: .*distributed is not initialized"):
        pd.quantized_all_reduce(X)


def test_other_refusals(alone: Any) -> None:
    """Options, parts and collectives that there are not; more ranks than can be added."""
    call: Any = pd.quantized_all_gather
    with pytest.raises(TypeError, match="no option 'bits'"):
        call(X, bits=4)
    with pytest.raises(planq.ArgumentError, match="8 elements, this rank's part"):
        pd.quantized_all_gather(X[:7], out=X)
    with pytest.raises(planq.ArgumentError, match="reduce_scatter, all_gather, all_reduce"):
        pd.workspace_size("broadcast", X)
    with pytest.raises(planq.ArgumentError, match="reduce_scatter, all_gather, all_reduce"):
        pd.bind("broadcast", X)
    with pytest.raises(planq.ArgumentError, match=r"op: expected ReduceOp\.SUM, as an all_gather"):
        pd.bind("all_gather", X, op=dist.ReduceOp.AVG)
    assert pd.bind("all_reduce", []).out == []
    line = init_device_mesh("cpu", (1,))
    x = torch.randn(700)
    assert torch.equal(pd.quantized_all_reduce(x, group=line), pd.quantized_all_reduce(x))
    assert pd.quantized_all_reduce([]) == []
    assert pd.workspace_size("all_reduce", []) == 0


def test_a_group_without_this_process_is_refused(team: Team) -> None:
    """Rather than waited for."""
    found = team.run(jobs.left_out, (2,))
    assert found[:2] == [None, None]
    assert all(each.startswith("group: expected a ProcessGroup") for each in found[2:])


def test_more_than_64_ranks_are_refused() -> None:
    """By what adds them; codes alone are gathered from any number."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=65)
    try:
        with pytest.raises(planq.DescriptorError, match="ranks: expected 1 to 64, got 65"):
            pd.quantized_reduce_scatter(X)
        assert pd.quantized_all_gather(X).shape == (65, 8)
    finally:
        dist.destroy_process_group()
