"""planq.distributed on a GPU: one rank with NCCL, and several that are threads of this process.

Likewise on two GPUs, ranks that are processes, in a run with ``PLANQ_GPUS=2``.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.multi_threaded_pg import (
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

import planq.distributed as pd
from collectives import jobs, shards
from collectives.formulas import Problem
from collectives.team import Team
from planq.audit.reference.formats import Array
from support.gpu import new_stream

DEVICE = "cuda:0"
RANKS = 3


@pytest.fixture
def nccl() -> Iterator[None]:
    """A group whose only rank is this process."""
    device = torch.device(DEVICE)
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_bits_of_one_rank_are_those_of_the_formulas(nccl: None, dtype: str) -> None:
    """On a stream that is not the default one, right after work that is still going on."""
    problem = Problem(shape=(999, 700), levels=(1,), input_dtype="bfloat16", dtype=dtype)
    [given] = problem.inputs(1)
    x = jobs.tensor(given).to(DEVICE)
    stream: Any = new_stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = x.clone()
        whole = pd.quantized_all_reduce(late, **problem.options)
        part = pd.quantized_reduce_scatter(late, **problem.options)
        found = pd.quantized_all_gather(late, out=torch.empty_like(late), **problem.options)
    torch.cuda.synchronize()
    assert jobs.bits(whole.cpu()) == problem.all_reduce([given]).tobytes()
    assert jobs.bits(part.cpu()) == problem.reduce_scatter([given])[0].tobytes()
    assert jobs.bits(found.cpu()) == problem.all_gather(given).tobytes()


def test_the_hook_gives_the_bits_of_the_host(nccl: None) -> None:
    """Two steps of DDP with error feedback: gradients of the second, and errors."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(300, 500, bias=False)
    inputs = [torch.randn(8, 300), torch.randn(8, 300)]
    options: dict[str, Any] = {"error_feedback": True, "beta": 0.25, "dtype": "int4"}
    model = DistributedDataParallel(layer.to(DEVICE), device_ids=[0])
    plain = torch.nn.Linear(300, 500, bias=False, device=DEVICE)
    state = pd.QuantizedAllReduceState(model, **options)
    model.register_comm_hook(state, pd.quantized_all_reduce_hook)
    errors = np.zeros((500, 300), np.float32)
    problem = Problem(shape=(500, 300), levels=(1,), dtype="int4", mean=True)
    for x in inputs:
        for each in (model, plain):
            each.zero_grad()
            each(x.to(DEVICE)).sum().backward()
        gradient = _grad(plain)
        h = gradient + errors
        assert _grad(model).tobytes() == problem.all_reduce([h]).tobytes()
        lost = h - problem.all_gather(h)
        errors = np.float32(0.25) * errors + np.float32(0.75) * lost
        assert state.errors["weight"].cpu().numpy().tobytes() == errors.tobytes()


def _grad(model: Any) -> Array:
    [parameter] = model.parameters()
    found: Array = parameter.grad.cpu().numpy()
    return found


def together(ranks: int, work: Callable[[int], Any]) -> list[Any]:
    """What threads return that are ranks of one group, which ends with them.

    Not every release of torch can destroy such a group.
    """
    world, store = _install_threaded_pg(), dist.HashStore()
    found: list[Any] = [None] * ranks
    torch._C._distributed_c10d._set_thread_isolation_mode(True)

    def run(rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=ranks, store=store)
        try:
            found[rank] = work(rank)
        except BaseException as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        _uninstall_threaded_pg()
    assert world is not None
    return found


@pytest.mark.parametrize(
    "problem",
    [
        Problem(shape=(3, 512), levels=(RANKS,)),
        Problem(shape=(1001, 37), levels=(RANKS,), input_dtype="float16", dtype="int4", mean=True),
        Problem(shape=(5000,), levels=(RANKS,), input_dtype="bfloat16", mode="asymmetric"),
    ],
    ids=str,
)
def test_bits_of_threads_are_those_of_the_formulas(problem: Problem) -> None:
    """Kernels and copies of several ranks on one GPU, without NCCL between them."""
    given = problem.inputs(2)
    op = dist.ReduceOp.AVG if problem.mean else dist.ReduceOp.SUM

    def work(rank: int) -> tuple[bytes, bytes]:
        x = jobs.tensor(given[rank]).to(DEVICE)
        part = pd.quantized_reduce_scatter(x, op=op, **problem.options)
        whole = pd.quantized_all_reduce(x, op=op, **problem.options)
        return jobs.bits(part.cpu()), jobs.bits(whole.cpu())

    whole = problem.all_reduce(given).tobytes()
    parts = [each.tobytes() for each in problem.reduce_scatter(given)]
    assert together(RANKS, work) == [(part, whole) for part in parts]


# --- Two GPUs, with NCCL between them


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Two processes, each with a GPU."""
    need_two()
    found = Team(str(tmp_path_factory.mktemp("ranks") / "store"), gpus=2)
    yield found
    found.end()


def need_two() -> None:
    """Fails where there is one."""
    count = torch.cuda.device_count()
    assert count >= 2, f"PLANQ_GPUS asks for two GPUs, this machine has {count}"


# Whole groups, which need no copy; odd sizes; every dtype, width and mode. The last has pieces.
PAIRS = [
    Problem(shape=(1 << 16,), levels=(2,), input_dtype="bfloat16"),
    Problem(shape=(1 << 16,), levels=(2,), dtype="int4", mean=True),
    Problem(shape=(1001, 37), levels=(2,), input_dtype="float16", dtype="int4"),
    Problem(shape=(5,), levels=(2,), mode="asymmetric"),
    Problem(shape=(999, 700), levels=(2,), mode="asymmetric", group_size=50, mean=True),
    Problem(shape=(3, 0), levels=(2,)),
]
LIMITS: dict[str, list[dict[str, int]]] = {
    "rows": [{}],
    "bulk": [{"FEW": 0}],
    "pieces": [{"PIECE_BYTES": 4096}],
    "other plans on each": [{"FEW": 0}, {"FEW": 8}],
}


@pytest.mark.two_gpus
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("problem", PAIRS, ids=str)
def test_bits_of_two_gpus_are_those_of_the_formulas(
    pair: Team, problem: Problem, limits: list[dict[str, int]]
) -> None:
    """Reduce-scatter, all-reduce and all-gather; plans may differ between the ranks."""
    given, args = problem.inputs(1), (problem.options, problem.mean)
    found = pair.run(
        jobs.otherwise, limits, "collective", "reduce_scatter", problem.levels, given, *args
    )
    assert found == [each.tobytes() for each in problem.reduce_scatter(given)]
    found = pair.run(
        jobs.otherwise, limits, "collective", "all_reduce", problem.levels, given, *args
    )
    assert found == [problem.all_reduce(given).tobytes()] * 2
    whole, length = given[0], problem.length
    parts = [whole.reshape(-1)[rank * length : (rank + 1) * length] for rank in range(2)]
    gather = (problem.levels, parts, problem.options, False, problem.shape)
    found = pair.run(jobs.otherwise, limits, "collective", "all_gather", *gather)
    assert found == [problem.all_gather(whole).tobytes()] * 2


@pytest.mark.two_gpus
@pytest.mark.parametrize("problem", PAIRS, ids=str)
def test_what_is_bound_on_two_gpus_takes_what_tensors_hold_by_then(
    pair: Team, problem: Problem
) -> None:
    """Reduce-scatter and all-reduce of values that came after ``bind``."""
    steps = [problem.inputs(seed) for seed in range(3)]
    found = pair.run(jobs.bound, problem.levels, steps, problem.options, problem.mean)
    for step, given in enumerate(steps):
        parts, whole = problem.reduce_scatter(given), problem.all_reduce(given)
        for rank in range(2):
            assert found[rank][step][:2] == (parts[rank].tobytes(), whole.tobytes())
        assert found[0][step][2] == found[1][step][2]


@pytest.mark.two_gpus
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1)])
def test_a_mesh_of_two_gpus_has_one_level(pair: Team, mesh: tuple[int, ...]) -> None:
    """Of one node, or of one device in each."""
    problem = Problem(shape=(999, 70), levels=(2,), input_dtype="bfloat16")
    given = problem.inputs(2)
    found = pair.run(jobs.collective, "all_reduce", mesh, given, problem.options)
    assert found == [problem.all_reduce(given).tobytes()] * 2


@pytest.mark.two_gpus
def test_lists_and_memory_of_the_caller_on_two_gpus(pair: Team) -> None:
    """Tensors of a list have the bits that they have alone, and so has a result in place."""
    problems = [Problem(shape=shape, levels=(2,)) for shape in ((300, 40), (1,), (4096,))]
    given = [problem.inputs(seed) for seed, problem in enumerate(problems)]
    lists = [list(each) for each in zip(*given, strict=True)]
    found = pair.run(jobs.collective, "all_reduce", (2,), lists, problems[0].options)
    pairs = zip(problems, given, strict=True)
    assert found == [[problem.all_reduce(each).tobytes() for problem, each in pairs]] * 2
    for each in pair.run(jobs.in_place, problems[0].inputs(5), problems[0].options):
        assert each == (problems[0].all_reduce(problems[0].inputs(5)).tobytes(),) * 3


@pytest.mark.two_gpus
@pytest.mark.parametrize("limits", [[{}], [{"PIECE_BYTES": 4096}]], ids=["whole", "pieces"])
def test_nothing_waits_for_a_device(pair: Team, limits: list[dict[str, int]]) -> None:
    """Calls return while the work before them is still going on, and have its results."""
    problem = Problem(shape=(1 << 16,), levels=(2,), input_dtype="bfloat16", dtype="int4")
    given = problem.inputs(3)
    found = pair.run(jobs.otherwise, limits, "late", given, problem.options)
    whole, parts = problem.all_reduce(given), problem.reduce_scatter(given)
    for rank, (early, each) in enumerate(found):
        assert early
        assert each == [whole.tobytes(), parts[rank].tobytes()]


@pytest.mark.two_gpus
@pytest.mark.parametrize("limits", [[{}], [{"PIECE_BYTES": 4096}]], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", ["reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("shape", [(1 << 16,), (999, 70)], ids=str)
@pytest.mark.parametrize("by_bind", [False, True], ids=["called", "bound"])
def test_a_graph_replays_a_collective(
    pair: Team, shape: tuple[int, ...], name: str, limits: list[dict[str, int]], by_bind: bool
) -> None:
    """Of other values than those of the capture; calls by hand between its replays."""
    problem = Problem(shape=shape, levels=(2,), input_dtype="bfloat16")
    steps = [problem.inputs(seed) for seed in range(3)]
    found = pair.run(jobs.otherwise, limits, "captured", name, steps, problem.options, by_bind)
    for step, given in enumerate(steps):
        whole = [problem.all_reduce(given)] * 2
        expected = whole if name == "all_reduce" else problem.reduce_scatter(given)
        for rank in range(2):
            assert found[rank][step] == (expected[rank].tobytes(),) * 2


@pytest.mark.two_gpus
@pytest.mark.parametrize("error_feedback", [False, True])
def test_ddp_on_two_gpus(pair: Team, error_feedback: bool) -> None:
    """The hook's means are the formula's; a network has the same weights on both, in every run."""
    problem = Problem(shape=(40, 30), levels=(2,), dtype="int4", mean=True)
    given = problem.inputs(6)
    options: dict[str, Any] = {"error_feedback": error_feedback, **problem.options}
    found = pair.run(jobs.hooked, (2,), [given], **options)
    assert [each[0][0] for each in found] == [problem.all_reduce(given).tobytes()] * 2
    runs = [pair.run(jobs.trained, 2, 30, size, **options) for size in (25.0, 25.0, 0.001)]
    assert len({weights for run in runs for _, weights in run}) == 1
    plain = pair.run(jobs.trained, 2, 30)
    loss, expected = (sum(loss for loss, _ in each) / 2 for each in (runs[0], plain))
    assert loss == pytest.approx(expected, rel=0.01)


@pytest.mark.two_gpus
@pytest.mark.parametrize("levels", [(2,), (1, 2), (2, 1)])
def test_fsdp2_on_two_gpus(pair: Team, levels: tuple[int, ...]) -> None:
    """Gradients behind fully_shard are those of the formulas."""
    options: dict[str, Any] = {"group_size": 32, "mode": "asymmetric"}
    found = pair.run(jobs.sharded, levels, **options)
    gradients = [whole for whole, _ in found]
    assert [parts for _, parts in found] == shards.expected(gradients, (2,), options)


@pytest.mark.two_gpus
def test_a_rank_that_dies_ends_the_other(tmp_path: Path) -> None:
    """By the watchdog of torch, after the time-out of the group: nobody waits for ever."""
    need_two()
    context: Any = multiprocessing.get_context("spawn")
    store = str(tmp_path / "store")
    ranks = [context.Process(target=jobs.dies, args=(rank, store)) for rank in range(2)]
    for each in ranks:
        each.start()
    try:
        for each in ranks:
            each.join(180)
        assert ranks[1].exitcode == 3
        assert ranks[0].exitcode not in (None, 0), "it waits, or came through without the other"
    finally:
        for each in ranks:
            each.kill()
