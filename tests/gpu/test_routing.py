"""Rows to experts and back on a GPU, where the generated tests are too small."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq

DEVICE = "cuda:0"
Tensors = dict[str, torch.Tensor]


def run(desc: Any, inputs: Tensors, plan: planq.Plan | None = None) -> Tensors:
    """The outputs of a run on the GPU, from poisoned ones."""
    stream: Any = torch.cuda.current_stream()
    extents = {} if plan is None else {"tokens": len(inputs["input"])}
    plan = plan or planq.Plan.select(stream, desc)
    outputs = plan.empty_outputs(torch, device=DEVICE, **extents)
    for output in outputs.values():
        output.view(-1).view(torch.uint8).fill_(0xA5)
    need = plan.workspace_size(**extents)
    room = torch.full((need,), 0xA5, dtype=torch.uint8, device=DEVICE)
    known = {info.name: info.args for info in planq.operators()}
    plan.run(stream, room if need else None, known[desc.operator](**inputs, **outputs))
    return dict(outputs)


def permutation(tokens: Any, width: int, top_k: int, experts: int, dtype: Any) -> Any:
    """A descriptor."""
    return planq.MoePermuteDescriptor(
        input_shape=(tokens, width), input_dtype=dtype, top_k=top_k, experts=experts
    )


def choices(tokens: int, top_k: int, experts: int, elsewhere: float = 0.0) -> torch.Tensor:
    """Different experts for the ranks of a token, some of them on no GPU here."""
    made = torch.Generator(DEVICE).manual_seed(tokens + experts)
    drawn = torch.rand(tokens, experts, generator=made, device=DEVICE)
    index = drawn.argsort(1)[:, :top_k].int()
    marked = torch.rand(tokens, top_k, generator=made, device=DEVICE) < elsewhere
    return index.masked_fill(marked, -1).contiguous()


def expected(x: torch.Tensor, index: torch.Tensor, experts: int) -> Tensors:
    """By torch's stable sort."""
    keys = index.masked_fill((index < 0) | (index >= experts), experts).flatten()
    ordered, order = keys.sort(stable=True)
    rows = x[order // index.shape[1]].masked_fill((ordered == experts)[:, None], 0)
    places = torch.empty_like(keys)
    places[order] = torch.arange(len(keys), dtype=torch.int32, device=DEVICE)
    bounds = torch.arange(experts + 1, dtype=torch.int32, device=DEVICE)
    return {
        "output": rows.view(*index.shape, x.shape[1]),
        "expert_offset": torch.searchsorted(ordered, bounds, out_int32=True),
        "destination": places.masked_fill(keys == experts, -1).view_as(index),
    }


def assert_same(found: Tensors, wanted: Tensors) -> None:
    """Every byte."""
    for name, values in wanted.items():
        assert torch.equal(found[name], values), name


@pytest.mark.parametrize("elsewhere", [0.0, 0.75])
@pytest.mark.parametrize(
    ("tokens", "width", "top_k", "experts"),
    [
        (16384, 7168, 8, 256),
        (8192, 4096, 2, 8),
        (100_003, 100, 6, 60),
        (3_000_000, 8, 4, 16),
        (40_000, 1001, 1, 5000),
    ],
)
def test_many_tokens(tokens: int, width: int, top_k: int, experts: int, elsewhere: float) -> None:
    """torch's order, three times over."""
    x = torch.randint(-(2**15), 2**15, (tokens, width), dtype=torch.int16, device=DEVICE)
    index = choices(tokens, top_k, experts, elsewhere)
    desc = permutation(tokens, width, top_k, experts, torch.bfloat16)
    wanted = expected(x, index, experts)
    for _ in range(3):
        found = run(desc, {"input": x.view(torch.bfloat16), "expert_index": index})
        found["output"] = found["output"].view(torch.int16)
        assert_same(found, wanted)


def test_more_bytes_than_32_bits_count() -> None:
    """Rows of 6 GB, to one expert and back."""
    tokens, width, top_k = 98_304, 8192, 4
    x = torch.randint(-100, 100, (tokens, width), dtype=torch.int8, device=DEVICE)
    index = torch.zeros((tokens, top_k), dtype=torch.int32, device=DEVICE)
    desc = permutation(tokens, width, top_k, 1, torch.int8)
    found = run(desc, {"input": x, "expert_index": index})
    assert torch.equal(found["output"], x[:, None].expand(-1, top_k, -1))
    assert found["expert_offset"].tolist() == [0, tokens * top_k]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [7168, 1001])
def test_there_and_back(width: int, dtype: torch.dtype) -> None:
    """Eight equal shares of a row are the row; float32 holds every sum of these numbers."""
    tokens, top_k, experts = 5000, 8, 64
    x = torch.randn(tokens, width, device=DEVICE).bfloat16().to(dtype)
    index = choices(tokens, top_k, experts)
    sent = run(
        permutation(tokens, width, top_k, experts, dtype), {"input": x, "expert_index": index}
    )
    desc = planq.MoeUnpermuteDescriptor(
        input_shape=(tokens, top_k, width), input_dtype=dtype, output_dtype=dtype
    )
    given = {
        "input": sent["output"],
        "destination": sent["destination"],
        "weight": torch.full((tokens, top_k), 1 / top_k, device=DEVICE),
    }
    assert torch.equal(run(desc, given)["output"], x)


def test_one_plan_counts_many_pairs_and_compares_few() -> None:
    """With a Dim, the body follows from the number of tokens; all have the bits of torch."""
    top_k, experts, width = 8, 128, 512
    dim = planq.Dim("tokens", max=4096)
    desc = permutation(dim, width, top_k, experts, torch.float16)
    plan = planq.Plan.select(torch.cuda.current_stream(), desc)
    bodies = set()
    for tokens in (0, 1, 64, 256, 257, 4096):
        x = torch.randn(tokens, width, device=DEVICE).half()
        index = choices(tokens, top_k, experts, 0.1)
        assert_same(
            run(desc, {"input": x, "expert_index": index}, plan), expected(x, index, experts)
        )
        bodies |= {body.name for body in plan.bodies(tokens=tokens) if body.chosen}
    assert bodies == {"compared", "counted"}


@pytest.mark.parametrize("tokens", [48, 1000])
def test_a_captured_graph_follows_the_router(tokens: int) -> None:
    """Nobody waits for the counts: other choices have other rows."""
    top_k, experts, width = 4, 32, 256
    desc = permutation(tokens, width, top_k, experts, torch.float16)
    plan = planq.Plan.select(torch.cuda.current_stream(), desc)
    x = torch.randn(tokens, width, device=DEVICE).half()
    index = choices(tokens, top_k, experts)
    outputs = plan.empty_outputs(torch, device=DEVICE)
    need = plan.workspace_size()
    room = torch.empty(need, dtype=torch.uint8, device=DEVICE) if need else None
    args = planq.MoePermuteArgs(input=x, expert_index=index, **outputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(torch.cuda.current_stream(), room, args)
    for shift in (0, 1, 17):
        index.copy_((index + shift) % experts)
        graph.replay()
        assert_same(dict(outputs), expected(x, index, experts))
