"""Sizes beyond what 16-bit grids and 32-bit offsets count.

The tensors are made and compared on the GPU: the host only ever sees a tile of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor
from planq.audit.ops.affine.dynamic_range_quantize.cases import outputs
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array
from support.gpu import cuda, on_gpu

DEVICE = "cuda:0"
# One at a time: each takes some 30 GB.
pytestmark = pytest.mark.xdist_group("sizes")


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    """What torch keeps of tens of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


def run_all(problem: Problem, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Every output, on the GPU; codes as bytes."""
    specs = descriptor(problem).operands()
    q = torch.full(specs["output"].shape, 0xA5, dtype=torch.uint8, device=DEVICE)
    scale_dtype = getattr(torch, specs["scale"].dtype.value)
    s = torch.full(specs["scale"].shape, -1.0, dtype=scale_dtype, device=DEVICE)
    z = torch.full(specs["scale"].shape, -77, dtype=torch.int32, device=DEVICE)
    output = q if problem.output_dtype != "int8" else q.view(torch.int8)
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, descriptor(problem))
    need = plan.workspace_size()
    workspace = torch.empty(need, dtype=torch.uint8, device=DEVICE) if need else None
    zero_point = z if "zero_point" in specs else None
    plan.run(
        stream,
        workspace,
        planq.DynamicRangeQuantizeArgs(input=x, output=output, scale=s, zero_point=zero_point),
    )
    torch.cuda.synchronize()
    return {"output": q, "scale": s, "zero_point": z}


def run(problem: Problem, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes as bytes and scales, on the GPU."""
    found = run_all(problem, x)
    return found["output"], found["scale"]


def assert_tiled(whole: torch.Tensor, tile: Array) -> None:
    """Fails unless `whole` is `tile` again and again."""
    wanted = torch.from_numpy(np.ascontiguousarray(tile).reshape(1, -1).view(np.uint8)).to(DEVICE)
    flat = whole.reshape(-1).view(torch.uint8).reshape(-1, wanted.shape[1])
    for part in torch.split(flat, max(1, 2**28 // wanted.shape[1])):
        assert torch.equal(part, wanted.expand_as(part))


@pytest.mark.parametrize("output_dtype", ["int8", "int4", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("tile_shape", "repeats", "scope"),
    [
        ((1024, 16), 10_000, ("token",)),
        ((1024, 2050), 1030, ("token",)),
        ((1024, 2048), 1030, ("group", 128, -1)),
        ((1024, 2048), 1030, ("block", 128, 128)),
    ],
)
def test_rows_beyond_two_to_the_thirty_one_elements(
    tile_shape: tuple[int, int], repeats: int, scope: ScopeSpec, output_dtype: str
) -> None:
    """10^7 rows of 16, and more than 2^31 elements in all: every row as in the repeated tensor."""
    tile = inputs.make("mixed", tile_shape, "bfloat16", 4)
    problem = Problem(tile_shape, "bfloat16", output_dtype, scope)
    once = outputs(problem, tile)
    shape = (tile_shape[0] * repeats, tile_shape[1])
    q, s = run(Problem(shape, "bfloat16", output_dtype, scope), on_gpu(tile).repeat(repeats, 1))
    assert_tiled(q, once["output"])
    assert_tiled(s, once["scale"])


@pytest.mark.parametrize(
    "scope", [("tensor",), ("channel", 0), ("channel", -1), ("group", 2**20, 0)]
)
@pytest.mark.parametrize("shape", [(2**20 + 3, 2049), (3, 2**30 - 5)])
def test_long_segments_beyond_two_to_the_thirty_one_elements(
    shape: tuple[int, int], scope: ScopeSpec
) -> None:
    """Zeros with values planted before, at and after 2^31, of which each segment holds few."""
    total = shape[0] * shape[1]
    places = torch.tensor([0, 2**31 - 1, 2**31, 2**31 + 1, total - 1], device=DEVICE)
    planted = torch.tensor([127.0, 3.0, -127.0, 5.0, 64.0], device=DEVICE)
    x = torch.zeros(total, dtype=torch.bfloat16, device=DEVICE)
    x[places] = planted.to(torch.bfloat16)
    q, s = run(Problem(shape, "bfloat16", "int8", scope), x.reshape(shape))
    row, column = places // shape[1], places % shape[1]
    segment = {
        "tensor": torch.zeros_like(row),
        "channel": row if scope[-1] == 0 else column,
        "group": row // 2**20 * shape[1] + column,
    }[scope[0]]
    M = torch.stack([planted[segment == g].abs().max() for g in segment])
    assert torch.equal(s.reshape(-1)[segment], M / 127)
    assert int((s != 1).sum()) == len({int(g) for g, m in zip(segment, M, strict=True) if m != 127})
    codes = q.view(torch.int8).reshape(-1)
    assert torch.equal(codes[places].float(), torch.round(planted / (M / 127)))
    assert sum(int(part.count_nonzero()) for part in torch.split(codes, 2**28)) == len(places)


@pytest.mark.parametrize("columns", [2**16, 2**16 + 1, 2**20, 2**24 + 5])
@pytest.mark.parametrize("output_dtype", ["int8", "float8_e4m3fn"])
def test_long_rows(columns: int, output_dtype: str) -> None:
    """Around the longest row that is read once, and far beyond: a tile again and again."""
    tile = inputs.make("normal", (2, 8191), "bfloat16", 8)
    once = outputs(Problem(tile.shape, "bfloat16", output_dtype), tile)
    repeats = -(-columns // tile.shape[1])

    def long(values: torch.Tensor) -> torch.Tensor:
        return values.repeat(1, repeats)[:, :columns].contiguous()

    problem = Problem((2, columns), "bfloat16", output_dtype)
    q, s = run(problem, long(on_gpu(tile)))
    assert torch.equal(q, long(on_gpu(once["output"].view(np.uint8))))
    assert torch.equal(s, on_gpu(once["scale"]))


@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("megabytes", [2, 26, 40, 90, 149, 151])
@pytest.mark.parametrize(
    ("input_dtype", "output_dtype", "mode"),
    [
        ("bfloat16", "int8", "symmetric"),
        ("float16", "uint8", "asymmetric"),
        ("float32", "float8_e4m3fn", "symmetric"),
        ("float64", "int4", "asymmetric"),
    ],
)
def test_tensors_around_what_a_chip_holds(
    input_dtype: str, output_dtype: str, mode: str, megabytes: int, nonfinite: str
) -> None:
    """A tile again and again, and one row that holds the extreme, in turns all over the tensor."""
    tile = inputs.make("normal", (16, 4096), input_dtype, 9)
    extreme = tile[:1].copy()
    extreme[0, 77] = 40.0 if nonfinite == "propagate" else np.inf
    fields = (input_dtype, output_dtype, ("tensor",), mode)
    both = np.concatenate([tile, extreme])
    once = outputs(Problem(both.shape, *fields, nonfinite=nonfinite), both)
    codes = on_gpu(once["output"].view(np.uint8))

    repeats = megabytes * 10**6 // tile.nbytes
    x, wanted = on_gpu(tile).repeat(repeats, 1), codes[:16].repeat(repeats, 1)
    for share in (0.0, 0.2, 0.5, 0.8, 0.999):
        row = int(share * len(x))
        before, codes_before = x[row].clone(), wanted[row].clone()
        x[row], wanted[row] = on_gpu(extreme)[0], codes[16]
        found = run_all(Problem(tuple(x.shape), *fields, nonfinite=nonfinite), x)
        assert torch.equal(found["output"], wanted)
        assert torch.equal(found["scale"].view(-1), on_gpu(once["scale"]).view(-1))
        if mode == "asymmetric":
            assert torch.equal(found["zero_point"].view(-1), on_gpu(once["zero_point"]).view(-1))
        x[row], wanted[row] = before, codes_before
