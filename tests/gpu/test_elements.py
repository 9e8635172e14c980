"""`pipeline_copy`, `fill`, `arange` and `multiply` on more elements than generated tests have."""

from __future__ import annotations

import pytest
import torch

import planq

DEVICE = "cuda:0"


def copy(x: torch.Tensor, output: torch.Tensor) -> None:
    """By planq."""
    stream = torch.cuda.current_stream()
    desc = planq.PipelineCopyDescriptor(shape=x.shape, input_dtype=x.dtype)
    plan = planq.Plan.select(stream, desc)
    plan.run(stream, None, planq.PipelineCopyArgs(input=x, output=output))


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.int32, torch.float64])
def test_every_stage_is_filled_again_and_again(dtype: torch.dtype, offset: int) -> None:
    """Dozens of vectors a thread; between the vectors of memory none are staged."""
    count = 2**24 + 13
    x = torch.randint(0, 100, (count + 1,), device=DEVICE).to(dtype)
    output = torch.full((count + 2,), 77, device=DEVICE).to(dtype)
    copy(x[offset : offset + count], output[:count])
    assert torch.equal(output[:count], x[offset : offset + count])
    assert output[count:].tolist() == [77, 77]


def test_rows_that_are_apart_are_staged() -> None:
    """And what lies between them is not touched."""
    x = torch.randn(3000, 4000, device=DEVICE)
    output = torch.full((3000, 4004), 7.0, device=DEVICE)
    copy(x, output[:, :4000])
    assert torch.equal(output[:, :4000], x)
    assert output[:, 4000:].eq(7).all()


def test_more_elements_than_32_bits_count() -> None:
    """Every byte from its index, times itself, and over all of them a number."""
    count = 2**32 + 37
    x = torch.zeros(count, dtype=torch.uint8, device=DEVICE)
    stream = torch.cuda.current_stream()
    desc = planq.ArangeDescriptor(shape=(count,), output_dtype="uint8")
    planq.Plan.select(stream, desc).run(stream, None, planq.ArangeArgs(output=x, start=3))
    turns = (torch.arange(256, device=DEVICE) + 3).to(torch.uint8)
    whole = count // 256 * 256
    assert x[:whole].view(-1, 256).eq(turns).all()
    assert torch.equal(x[whole:], turns[: count - whole])

    product = planq.MultiplyDescriptor(shape=(count,), input_dtype="uint8")
    args = planq.MultiplyArgs(input=x, other=x.clone(), output=x)
    planq.Plan.select(stream, product).run(stream, None, args)
    assert x[:whole].view(-1, 256).eq(turns * turns).all()

    fill = planq.FillDescriptor(shape=(count,), output_dtype="uint8")
    planq.Plan.select(stream, fill).run(stream, None, planq.FillArgs(output=x, value=9))
    assert x.eq(9).all()
