"""Outliers and their lists on a GPU, where the generated tests are too small."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq

DEVICE = "cuda:0"


def run(desc: Any, inputs: dict[str, torch.Tensor], device: str = DEVICE) -> dict[str, Any]:
    """The outputs of a run on the GPU, or on the host."""
    stream: Any = torch.cuda.current_stream() if device == DEVICE else planq.HOST
    plan = planq.Plan.select(stream, desc)
    outputs = plan.empty_outputs(torch, device=device)
    for output in outputs.values():
        output.view(-1).view(torch.uint8).fill_(0xA5)
    room = torch.full((plan.workspace_size() + 256,), 0xA5, dtype=torch.uint8, device=device)
    room = room[-room.data_ptr() % 256 :][: plan.workspace_size()]
    known = {info.name: info.args for info in planq.operators()}
    args = known[desc.operator](**inputs, **outputs)
    plan.run(stream, room if room.numel() else None, args)
    return dict(outputs)


def same(desc: Any, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The outputs on the GPU, which have the bytes of those on the host."""
    ours = run(desc, inputs)
    host = run(desc, {name: values.cpu() for name, values in inputs.items()}, "cpu")
    for name, wanted in host.items():
        got = ours[name].cpu().view(-1).view(torch.uint8)
        assert torch.equal(got, wanted.view(-1).view(torch.uint8)), name
    return ours


def drawn(shape: tuple[int, int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Normal values."""
    made = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, generator=made, device=DEVICE).to(dtype)


@pytest.mark.parametrize("quotient", ["divide", "ratio"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("shape", [(4096, 4096), (1000, 28673), (300001, 24)])
def test_large_matrices(shape: tuple[int, int], dtype: torch.dtype, quotient: str) -> None:
    """The host's bytes; the list against torch's nonzero, whose order is that of the matrix."""
    x = drawn(shape, dtype, shape[1])
    desc = planq.DoubleQuantizeDescriptor(
        shape=shape, input_dtype=dtype, threshold=3.0, capacity=100_000, quotient=quotient
    )
    found = same(desc, {"input": x})
    places = (x.abs() >= 3).nonzero()
    held = min(len(places), 100_000)
    assert found["count"].item() == len(places)
    assert torch.equal(found["row_index"][:held], places[:held, 0].int())
    assert torch.equal(found["column_index"][:held], places[:held, 1].int())


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_more_rows_than_a_block_sums_at_once(threshold: float) -> None:
    """Millions of counts; with a threshold of 1, a third of all elements is listed."""
    shape = (2**22 + 77, 8)
    x = drawn(shape, torch.bfloat16, 1)
    desc = planq.DoubleQuantizeDescriptor(
        shape=shape, input_dtype="bfloat16", threshold=threshold, capacity=12_000_000
    )
    found = same(desc, {"input": x})
    assert found["count"].item() == (int((x.abs() >= 1).sum()) if threshold else 0)


def test_more_elements_than_32_bits_count() -> None:
    """One row, read 65,537 times."""
    row = torch.zeros(2**16, dtype=torch.float16, device=DEVICE)
    row[::257], row[1] = 2, 1.5
    shape = (2**16 + 1, 2**16)
    desc = planq.RowColumnAbsmaxDescriptor(shape=shape, input_dtype="float16", threshold=2.0)
    found = run(desc, {"input": row.expand(shape)})
    assert (found["row_absmax"] == 1.5).all()
    assert found["column_absmax"].nonzero().tolist() == [[1]]
    assert int(found["tile_count"].sum()) == shape[0] * len(range(0, 2**16, 257))
    assert torch.equal(found["tile_count"][0], found["tile_count"][-1])


@pytest.mark.parametrize(
    ("columns", "entries"), [(5, 100_003), (4096, 2_000_000), (70_000, 17_000_001)]
)
def test_a_long_list_by_columns(columns: int, entries: int) -> None:
    """torch's stable sort; as many runs give the same bytes."""
    made = torch.Generator(DEVICE).manual_seed(entries)
    room = entries + 1000
    row_index = torch.arange(room, device=DEVICE, dtype=torch.int32) // 3
    column_index = torch.randint(columns, (room,), generator=made, device=DEVICE, dtype=torch.int32)
    value = torch.randn(room, generator=made, device=DEVICE)
    desc = planq.CooToCscDescriptor(shape=(room, columns), capacity=room, value_dtype="float32")
    inputs = {
        "row_index": row_index,
        "column_index": column_index,
        "value": value,
        "count": torch.tensor([entries], device=DEVICE),
    }
    wanted, order = column_index[:entries].sort(stable=True)
    for _ in range(3):
        found = run(desc, inputs)
        assert torch.equal(found["output_row_index"][:entries], row_index[order])
        assert torch.equal(found["output_value"][:entries], value[order])
        assert (found["output_row_index"][entries:] == -1).all()
        bounds = torch.arange(columns + 1, device=DEVICE, dtype=torch.int32)
        assert torch.equal(found["pointer"].long(), torch.searchsorted(wanted, bounds))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight", [torch.float16, torch.bfloat16, torch.int8])
def test_a_large_product(weight: torch.dtype, transposed: bool) -> None:
    """What `double_quantize` lists, with whole vectors and without; the host's bytes."""
    x = drawn((700, 4096), torch.bfloat16, 3)
    x[5] *= 4  # a row with a thousand entries
    quantize = planq.DoubleQuantizeDescriptor(
        shape=x.shape, input_dtype="bfloat16", threshold=3.5, capacity=10_000
    )
    listed = run(quantize, {"input": x})
    names = ("row_index", "column_index", "value", "count")
    for n in (4096, 1001):
        dense = drawn((4096, n) if transposed else (n, 4096), torch.float32, n) * 30
        inputs = {name: listed[name] for name in names}
        inputs["weight"] = dense.clamp(-127, 127).to(weight)
        if weight == torch.int8:
            inputs["stats"] = drawn((1, n), torch.float32, 4)[0]
        desc = planq.SpmmCooDescriptor(
            shape=x.shape,
            capacity=10_000,
            value_dtype="bfloat16",
            weight_shape=inputs["weight"].shape,
            weight_dtype=weight,
            output_dtype="bfloat16",
            transpose_weight=transposed,
        )
        same(desc, inputs)


def test_a_captured_graph_counts_what_it_finds() -> None:
    """Nobody waits for the number of outliers: other elements have another one."""
    x = torch.zeros((64, 1024), dtype=torch.float16, device=DEVICE)
    desc = planq.DoubleQuantizeDescriptor(
        shape=x.shape, input_dtype="float16", threshold=6.0, capacity=16
    )
    plan = planq.Plan.select(torch.cuda.current_stream(), desc)
    outputs = plan.empty_outputs(torch, device=DEVICE)
    room = torch.empty(plan.workspace_size(), dtype=torch.uint8, device=DEVICE)
    args = planq.DoubleQuantizeArgs(input=x, **outputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan.run(torch.cuda.current_stream(), room, args)
    for count in (3, 0, 40):
        x.zero_()
        x.view(-1)[: 97 * count : 97] = 9
        graph.replay()
        held = min(count, 16)
        assert outputs["count"].item() == count
        assert (outputs["row_index"] >= 0).sum().item() == held
        places = torch.arange(held, device=DEVICE) * 97
        assert torch.equal(outputs["column_index"][:held], (places % 1024).int())
