"""The packing family on a GPU: torch's routines, rows that end anywhere, sizes beyond 32 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.quantization._quantized_conversions import (
    pack_int4_to_int8,
    unpack_int8_to_int4,
)
from torch.quantization._quantized_conversions import (
    quantized_weight_reorder_for_mixed_dtypes_linear_cutlass as torch_reorder,
)

import planq
from planq.audit import kernels
from planq.audit.memory import Layout
from planq.audit.operators import OPERATORS
from planq.audit.ops.packing.int4 import random_bytes
from planq.audit.ops.packing.reorder_mixed_dtype_weight.reference import Problem
from support.gpu import Cuda, cuda

DEVICE = "cuda:0"
GPU = Cuda(0)
FAMILY = ("pack_int4", "unpack_int4", "reorder_mixed_dtype_weight")
SMALL = 200000  # elements


def run(desc: planq.Descriptor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """One run on the current stream."""
    known: dict[type[planq.Descriptor], Any] = {
        planq.PackInt4Descriptor: planq.PackInt4Args,
        planq.UnpackInt4Descriptor: planq.UnpackInt4Args,
        planq.ReorderMixedDtypeWeightDescriptor: planq.ReorderMixedDtypeWeightArgs,
    }
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, desc)
    plan.run(stream, None, known[type(desc)](input=source, output=target))
    torch.cuda.synchronize()
    return target


def reorder(weight: torch.Tensor, shape: tuple[int, int], **fields: Any) -> torch.Tensor:
    """The reordered weight."""
    desc = planq.ReorderMixedDtypeWeightDescriptor(shape=shape, **fields)
    target = torch.zeros(desc.operands()["output"].shape, dtype=torch.uint8, device=DEVICE)
    return run(desc, weight, target)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("shape", [(64, 64), (192, 320), (1024, 4096), (4096, 1088)])
def test_torchs_reorder(shape: tuple[int, int], dtype: str, transpose: bool) -> None:
    """The routine that the operator replaces, where it may run."""
    stored = random_bytes(Problem(shape, dtype, transpose).matrix_shape, 1)
    weight = torch.from_numpy(stored).to(DEVICE)
    theirs_dtype = torch.int8 if dtype == "int8" else torch.quint4x2
    theirs = torch_reorder(weight.view(torch.int8), theirs_dtype, transpose)
    ours = weight.view(torch.int8) if dtype == "int8" else weight
    assert torch.equal(reorder(ours, shape, input_dtype=dtype, transpose=transpose), theirs)


@pytest.mark.parametrize("shape", [(3, 64), (1000, 4098), (64, 65536)])
def test_torchs_packing(shape: tuple[int, int]) -> None:
    """Both directions, on bytes of every value."""
    codes = torch.from_numpy(random_bytes(shape, 2)).to(DEVICE).view(torch.int8)
    packed = torch.zeros((shape[0], shape[1] // 2), dtype=torch.uint8, device=DEVICE)
    run(planq.PackInt4Descriptor(shape=shape), codes, packed)
    assert torch.equal(packed, pack_int4_to_int8(codes).view(torch.uint8))
    unpacked = torch.zeros(shape, dtype=torch.uint8, device=DEVICE)
    run(planq.UnpackInt4Descriptor(shape=shape, input_dtype="uint4"), packed, unpacked)
    assert torch.equal(unpacked, unpack_int8_to_int4(packed.view(torch.int8)).view(torch.uint8))


@pytest.mark.parametrize("gap", [0, 16, 48, 7])
@pytest.mark.parametrize("operator", FAMILY)
def test_rows_that_begin_at_vectors_and_end_anywhere(operator: str, gap: int) -> None:
    """Every case with rows that are multiples of 16 bytes apart, and with others."""
    for case in OPERATORS[operator].cases():
        if case.size > SMALL:
            continue
        specs = OPERATORS[operator].descriptor(case.problem).operands()
        layouts = {n: Layout(pitch=-spec.shape[-1] % 16 + gap) for n, spec in specs.items()}
        for name in kernels.takers(operator, case.problem, GPU.name):
            kernels.check_kernel(GPU, operator, name, case, layouts)


@pytest.fixture
def release() -> Iterator[None]:
    """What torch keeps of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("offset", [0, 1])
def test_more_packed_bytes_than_32_bits_count(offset: int) -> None:
    """Aligned and not, there and back."""
    count, piece = 2**32 + 6, 2**28
    memory = torch.randint(0, 16, (count + offset,), dtype=torch.uint8, device=DEVICE)
    codes = memory[offset:]
    packed = torch.zeros(count // 2 + offset, dtype=torch.uint8, device=DEVICE)[offset:]
    run(planq.PackInt4Descriptor(shape=(count,), output_dtype="uint4"), codes, packed)
    for start in range(0, count, piece):
        part = codes[start : start + piece]
        wanted = part[0::2] | part[1::2] << 4
        assert torch.equal(packed[start // 2 : (start + piece) // 2], wanted)
    restored = torch.full((count + offset,), 99, dtype=torch.uint8, device=DEVICE)[offset:]
    run(planq.UnpackInt4Descriptor(shape=(count,), input_dtype="uint4"), packed, restored)
    assert torch.equal(restored, codes)


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("transpose", [False, True])
def test_a_weight_of_more_than_four_gigabytes(transpose: bool) -> None:
    """The way back restores it, and its first and last columns are those of a small weight."""
    shape = (2**17, 2**15 + 64)
    stored = shape[::-1] if transpose else shape
    weight = torch.randint(-128, 128, stored, dtype=torch.int8, device=DEVICE)
    found = reorder(weight, shape, transpose=transpose)
    for start in (0, shape[1] - 64):
        cut = slice(start, start + 64)
        alone = weight[cut] if transpose else weight[:, cut].contiguous()
        wanted = reorder(alone, (shape[0], 64), transpose=transpose)
        runs = found.view(-1)[start * shape[0] : (start + 64) * shape[0]]
        assert torch.equal(runs, wanted.view(-1))
    restored = torch.zeros_like(weight)
    desc = planq.ReorderMixedDtypeWeightDescriptor(shape=shape, transpose=transpose, inverse=True)
    assert torch.equal(run(desc, found, restored), weight)
