"""Every code of every table against 2^28 float32 values around its thresholds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import planq
from ops.codebook.codebook_quantize.any_tables import check_any_tables
from planq.audit.ops.codebook.reference import FP4_ASCENDING, Codebook, table
from planq.audit.reference.formats import Array
from support.gpu import Cuda

DEVICE = "cuda:0"
COUNT = 2**28
PART = 2**26


def around(middles: Array, each: int) -> torch.Tensor:
    """For each value the `each` floats nearest to it, itself among them, by their bit patterns."""
    bits = torch.from_numpy(middles.astype(np.float32).view(np.int32).astype(np.int64)).to(DEVICE)
    steps = torch.arange(each, device=DEVICE) - each // 2
    # The order of floats by their bits turns around at zero; patterns beyond it are left alone.
    near = (bits[:, None] + steps).clamp(-(2**31), 2**31 - 1).to(torch.int32)
    values = near.view(torch.float32).ravel()
    return torch.where(values.abs() <= 2, values, torch.zeros_like(values))


def expected(codebook: Codebook, values: torch.Tensor) -> torch.Tensor:
    """The code of each value: how many thresholds it exceeds, in the stored order."""
    limits = torch.from_numpy(codebook.thresholds).to(DEVICE)
    if codebook.name == "fp4":
        codes = torch.from_numpy(FP4_ASCENDING).to(DEVICE)[torch.bucketize(values.abs(), limits)]
        return (codes + 8 * (values < 0)).to(torch.uint8)
    stored = codebook.stored(np.arange(len(limits) + 1)).astype(np.uint8)
    return torch.from_numpy(stored).to(DEVICE)[torch.bucketize(values, limits)]


@pytest.mark.parametrize("name", ["dynamic", "nf4", "fp4", "int4", "af4"])
def test_codes_around_every_threshold(name: str) -> None:
    """Quotients as they are, so that values around a threshold are what is searched."""
    codebook = Codebook(table(name), name, "even" if name == "dynamic" else "down")
    middles = codebook.thresholds
    if name == "fp4":
        middles = np.concatenate([-middles, np.zeros(1, np.float32), middles])
    values = around(middles, COUNT // len(middles) + 1)[:COUNT]
    assert len(values) == COUNT
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(
        stream,
        planq.CodebookQuantizeDescriptor(
            shape=(PART,),
            input_dtype="float32",
            output_dtype="uint8" if name == "dynamic" else "uint4",
            codebook=planq.Codebook(name),
            normalized=True,
        ),
    )
    stored = torch.empty(PART if name == "dynamic" else PART // 2, dtype=torch.uint8, device=DEVICE)
    for part in values.split(PART):
        plan.run(stream, None, planq.CodebookQuantizeArgs(input=part, output=stored))
        codes = stored
        if name != "dynamic":
            codes = torch.stack((stored >> 4, stored & 15), dim=1).ravel()
        wrong = codes != expected(codebook, part)
        assert not wrong.any(), f"{int(wrong.sum())} codes, first of {part[wrong][0].item()!r}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("codes", ["uint8", "uint4"])
def test_any_table_of_a_caller(codes: str, dtype: str) -> None:
    """With equal neighbours, both zeros in any order, subnormal and huge values."""
    check_any_tables(Cuda(0), codes, dtype)


def test_more_elements_than_31_bits_count() -> None:
    """Ones among zeros, there and back: only their places may hold anything else."""
    count = 2**31 + 2**20 + 67
    places = torch.tensor([0, 2**31 - 1, 2**31, 2**31 + 65, count - 1], device=DEVICE)
    x = torch.zeros(count, dtype=torch.bfloat16, device=DEVICE)
    x[places] = 1
    codes = torch.empty((count + 1) // 2, dtype=torch.uint8, device=DEVICE)
    absmax = torch.empty((count + 63) // 64, device=DEVICE)
    common = {"shape": (count,), "codebook": planq.Codebook.NF4, "block_size": 64}
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(
        stream,
        planq.BlockwiseQuantizeDescriptor(input_dtype="bfloat16", output_dtype="uint4", **common),
    )
    plan.run(stream, None, planq.BlockwiseQuantizeArgs(input=x, output=codes, absmax=absmax))
    # 7 is the code of 0, 15 that of 1; an odd count leaves the last half byte 0.
    wanted = torch.full_like(codes, 0x77)
    wanted[-1] = 0xF0
    for place in places[:-1].tolist():
        wanted[place // 2] = 0xF7 if place % 2 == 0 else 0x7F
    assert torch.equal(codes, wanted)
    assert torch.equal(absmax.nonzero().ravel(), (places // 64).unique())

    back = torch.full_like(x, -77)
    plan = planq.Plan.select(
        stream,
        planq.BlockwiseDequantizeDescriptor(input_dtype="uint4", output_dtype="bfloat16", **common),
    )
    plan.run(stream, None, planq.BlockwiseDequantizeArgs(input=codes, output=back, absmax=absmax))
    assert torch.equal(back, x)
