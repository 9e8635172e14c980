"""The optimizer family on a GPU: long lists, large norms, captured training, the host's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.optimizer.optimizer_step.adapter import descriptor
from planq.audit.ops.optimizer.optimizer_step.cases import Case, long_cases, problem_of
from planq.audit.reference.formats import bits
from planq.audit.runner import Bench, gathered
from planq.memory import PagePool
from planq.torch import optim
from support.gpu import Cuda, cuda, on_gpu
from support.training import batch, network, train

DEVICE = "cuda:0"
GPU = Cuda(0)


def check(case: Case) -> None:
    """A case with guarded operands, to the bit."""
    bench = Bench(GPU, descriptor(case.problem))
    given = case.inputs()
    bench.load(given)
    bench.run()
    bench.check(given, case.expected(given), case.id)


@pytest.mark.parametrize(
    ("algorithm", "state_format"),
    [("lamb", "float32"), ("lars", "static8"), ("adam", "blockwise8")],
)
def test_lists_longer_than_a_launch_takes(algorithm: str, state_format: str) -> None:
    """650 tensors, some without elements: three launches a pass, and one count of steps."""
    shapes = tuple([(5,), (0,), (130,)][i % 3] for i in range(650))
    problem = problem_of(algorithm, shapes, state_format=state_format, advance_step=True)
    check(Case(problem, "normal", 1))


@pytest.mark.parametrize(
    ("algorithm", "options"), [("lamb", {}), ("lars", {"state_format": "static8"})]
)
def test_norms_of_more_leaves_than_a_run_has(algorithm: str, options: dict[str, Any]) -> None:
    """Three levels of the tree, beside a tensor of two."""
    check(Case(problem_of(algorithm, ((2**20 + 1500,), (70000,)), **options), "tiled", 1))


@pytest.mark.parametrize("case", long_cases(), ids=lambda case: case.id)
def test_long_tensors_and_other_maps(case: Case) -> None:
    """Whole tiles, whose elements are not asked for their type or their map, and more."""
    check(case)


@pytest.mark.parametrize("place", [0, 40000, 99999])
def test_a_static_maximum_is_that_of_the_whole_tensor(place: int) -> None:
    """Wherever it lies."""
    case = Case(problem_of("lion", ((100_000,),), state_format="static8"), "normal", 1)
    given = case.inputs()
    given["gradient[0]"][place] = 1e5
    expected = case.expected(given)
    bench = Bench(GPU, descriptor(case.problem))
    bench.load(given)
    bench.run()
    bench.check(given, expected, case.id)
    assert expected["absmax1[0]"][0] > 100


def test_a_captured_step_trains() -> None:
    """The rate is read and the step counted at every replay."""
    problem = problem_of("adam", ((3000,), (77,)), advance_step=True, state_format="blockwise8")
    given = Case(problem, "normal", 1).inputs()
    tensors = {name: on_gpu(values) for name, values in given.items() if values.ndim > 0}
    scalars = {name: on_gpu(values) for name, values in given.items() if values.ndim == 0}
    stream = cuda.Stream()
    plan = planq.Plan.select(stream, descriptor(problem))
    args = planq.OptimizerStepArgs(**gathered(plan.descriptor, tensors), **scalars)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        plan.run(stream, None, args)
    expected = dict(given)
    for rate in (0.5, 0.25, 0.0):
        scalars["lr"].fill_(rate)
        graph.replay()
        expected |= problem.expected({**expected, "lr": np.array(rate)})
    torch.cuda.synchronize()
    assert int(scalars["step"]) == int(given["step"]) + 3
    for name in ("parameter[0]", "parameter[1]", "state1[0]", "state2[1]", "absmax2[0]"):
        assert np.array_equal(bits(tensors[name].cpu().numpy()), bits(expected[name])), name


@pytest.mark.parametrize("state_format", ["float32", "blockwise8", "static8"])
@pytest.mark.parametrize(
    "make",
    [
        *(optim.AdamW, optim.AdEMAMix, optim.RMSprop, optim.LAMB),
        *(optim.Adagrad, optim.LARS, optim.Lion, optim.SGD),
    ],
)
def test_recorded_gradients_give_the_hosts_bits(make: Any, state_format: str) -> None:
    """Compiled-in maps among them; torch's own gradients differ between the two."""
    shapes, generator = ((100, 90), (4096,), (5,)), torch.Generator().manual_seed(1)
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    found = []
    for device in ("cpu", DEVICE):
        recorded = torch.Generator().manual_seed(2)
        params = [torch.nn.Parameter(p.to(device, copy=True)) for p in start]
        optimizer = make(params, weight_decay=0.01, state_format=state_format)
        for _ in range(4):
            for p in params:
                p.grad = torch.randn(p.shape, generator=recorded).to(device)
            optimizer.step()
        found.append([p.detach().cpu() for p in params])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def steps_of(optimizer: Any, params: list[torch.nn.Parameter], step: Any, count: int) -> None:
    """Steps, each with gradients of its own in the memory of the last ones."""
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        for p in params:
            p.grad.copy_(torch.randn(p.shape, generator=generator))  # type: ignore[union-attr]
        step()
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", ["Adam", "AdEMAMix8bit"])
def test_states_that_page_have_the_bits_of_those_that_do_not(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded after two steps, then captured; a step fetches them, a captured one does not."""
    fetched, prefetch_all = [], PagePool.prefetch_all

    def spy(pool: PagePool, *order: Any) -> None:
        fetched.append(len(pool))
        prefetch_all(pool, *order)

    monkeypatch.setattr(PagePool, "prefetch_all", spy)
    found, states = [], 2 if name == "Adam" else 3
    for make in (getattr(optim, name), getattr(optim, f"Paged{name}")):
        generator = torch.Generator().manual_seed(1)
        params = [
            torch.nn.Parameter(torch.randn(count, generator=generator).to(DEVICE))
            for count in (150_000, 5, 100_000)
        ]
        for p in params:
            p.grad = torch.zeros_like(p)
        first, optimizer, stream = make(params), make(params), cuda.Stream()
        steps_of(first, params, first.step, 2)
        optimizer.load_state_dict(first.state_dict())
        with cuda.stream(stream):
            steps_of(optimizer, params, optimizer.step, 2)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=stream):
            optimizer.step()
        steps_of(optimizer, params, graph.replay, 2)
        optimizer.prefetch()
        values = [optimizer.state[p][f"state{k + 1}"].cpu() for p in params for k in range(states)]
        found.append([p.detach().cpu() for p in params] + values)
        assert len(optimizer.pool) == (2 * states if optimizer.default_paged else 0)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    # The second step of the first, two of the second, and what was asked for.
    assert fetched == [2 * states] * 4


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_a_step_waits_for_nothing() -> None:
    """Eighty parameters, on a stream that sleeps; bitsandbytes waited after each."""
    params = [torch.nn.Parameter(torch.ones(5000 + i, device=DEVICE)) for i in range(80)]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer, stream = optim.Adam8bit(params), cuda.Stream()
    optimizer.step()  # makes the plan and the states
    torch.cuda.synchronize()
    with cuda.stream(stream):
        cuda._sleep(2_000_000_000)
        try:
            torch.cuda.set_sync_debug_mode("error")
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert not stream.query()
    torch.cuda.synchronize()
    assert all(int(optimizer.state[p]["step"]) == 2 for p in params)


@pytest.mark.parametrize("make", [optim.Adam8bit, optim.LAMB])
def test_an_optimizer_in_a_graph_has_the_bits_of_one_outside(make: Any) -> None:
    """300 steps on recorded gradients, whose rate changes; resumed half way from a state dict."""
    start = torch.randn(8192, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    recorded = torch.randn(16, 8192, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    rate = torch.tensor(0.0, device=DEVICE)
    outside, inside = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizer = make([outside], lr=rate, weight_decay=0.01)
    for step in range(300):
        rate.fill_(1e-3 / (1 + step))
        outside.grad = recorded[step % 16] * (1 + step % 5)
        optimizer.step()
    inside.grad = torch.zeros_like(inside)
    optimizer = make([inside], lr=rate, weight_decay=0.01)
    for step in range(300):
        rate.fill_(1e-3 / (1 + step))
        inside.grad.copy_(recorded[step % 16] * (1 + step % 5))
        if step == 150:
            state = optimizer.state_dict()
            optimizer = make([inside], lr=rate, weight_decay=0.01)
            optimizer.load_state_dict(state)
            rate = optimizer.param_groups[0]["lr"]  # loaded values are copies
        if step % 150 < 2:
            optimizer.step()  # makes the plan and the states
            continue
        if step % 150 == 2:
            torch.cuda.synchronize()
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                optimizer.step()
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(outside, inside)


def test_a_graph_of_a_whole_training_step_learns() -> None:
    """300 steps on a text: the loss of the last fifty within 2 percent of Adam's of 32 bits."""
    wide = network().to(DEVICE)
    aim = train(wide, optim.Adam(wide.parameters(), lr=3e-3), range(300), DEVICE)
    model, stream = network().to(DEVICE), cuda.Stream()
    optimizer = optim.Adam8bit(model.parameters(), lr=3e-3)
    with cuda.stream(stream):  # makes the plans, the states and what torch needs
        losses = train(model, optimizer, range(3), DEVICE)
    torch.cuda.synchronize()
    given, wanted = (x.to(DEVICE) for x in batch(3))
    optimizer.zero_grad()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=stream):
        loss = torch.nn.functional.cross_entropy(model(given), wanted)
        loss.backward()
        optimizer.step()
    for step in range(3, 300):
        for held, new in zip((given, wanted), batch(step), strict=True):
            held.copy_(new)
        graph.replay()
        losses.append(loss.item())
    assert np.mean(losses[-50:]) < 1.02 * np.mean(aim[-50:])
    assert np.mean(losses[-50:]) < 0.7 * losses[0]
