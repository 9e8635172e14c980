"""Layouts and vectorwise codes on a GPU: rows that end anywhere, sizes beyond 32 bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import planq
from planq.audit import kernels
from planq.audit.memory import Layout
from planq.audit.operators import OPERATORS
from support.gpu import Cuda, cuda

DEVICE = "cuda:0"
GPU = Cuda(0)
FAMILY = ("transform_layout", "extract_outliers", "vectorwise_quantize", "vectorwise_dequantize")
SMALL = 20000  # elements


def run(desc: planq.Descriptor, operands: dict[str, Any]) -> None:
    """One run on the current stream."""
    args = {info.name: info.args for info in planq.operators()}[desc.operator]
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, desc)
    size = plan.workspace_size()
    room = torch.empty(size, dtype=torch.uint8, device=DEVICE) if size else None
    plan.run(stream, room, args(**operands))
    torch.cuda.synchronize()


@pytest.mark.parametrize("gap", [0, 4, 16, 7])
@pytest.mark.parametrize("operator", FAMILY)
def test_rows_that_begin_at_words_and_end_anywhere(operator: str, gap: int) -> None:
    """Small cases with rows that are multiples of 16 bytes apart, and with others."""
    for case in OPERATORS[operator].cases()[:: 1 if operator == "transform_layout" else 3]:
        if case.size > SMALL:
            continue
        specs = OPERATORS[operator].descriptor(case.problem).operands()
        layouts = {
            n: Layout(pitch=-spec.shape[-1] % 16 + gap)
            for n, spec in specs.items()
            if len(spec.shape) > 1
        }
        for name in kernels.takers(operator, case.problem, GPU.name):
            kernels.check_kernel(GPU, operator, name, case, layouts)


@pytest.fixture
def release() -> Iterator[None]:
    """What torch keeps of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", ["col", "col32", "col_turing", "col_ampere"])
def test_a_matrix_of_more_than_four_gigabytes(layout: str, transpose: bool) -> None:
    """The way back restores it; its last columns are where those of a narrow matrix are."""
    rows, columns = 2**17 + 5, 2**15 + 64
    matrix = torch.randint(-128, 128, (rows, columns), dtype=torch.int8, device=DEVICE)
    there = planq.TransformLayoutDescriptor(
        shape=(rows, columns), to_layout=layout, transpose=transpose
    )
    extents = (columns, rows) if transpose else (rows, columns)
    held = torch.full(
        planq.layouts.buffer_shape(extents, layout), 7, dtype=torch.int8, device=DEVICE
    )
    run(there, {"input": matrix, "output": held})
    back = planq.TransformLayoutDescriptor(
        shape=extents, from_layout=layout, to_layout="row", transpose=transpose
    )
    restored = torch.zeros_like(matrix)
    run(back, {"input": held, "output": restored})
    assert torch.equal(restored, matrix)
    listed = planq.ExtractOutliersDescriptor(shape=extents, layout=layout, capacity=3)
    names = torch.tensor([extents[1] - 1, 0, 1], dtype=torch.int32, device=DEVICE)
    found = torch.zeros((extents[0], 3), dtype=torch.int8, device=DEVICE)
    count = torch.tensor([2], device=DEVICE)
    run(listed, {"input": held, "index": names, "count": count, "output": found})
    plain = matrix.T if transpose else matrix
    assert torch.equal(found[:, 0], plain[:, -1])
    assert torch.equal(found[:, 1], plain[:, 0])
    assert not found[:, 2].any()


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("form", ["vector", "row_zeropoint"])
def test_more_elements_than_32_bits_count(form: str, axis: int) -> None:
    """The first rows, or columns, are those of a smaller tensor, and come back."""
    shape = (2**17, 2**15 + 8)
    x = torch.empty(shape, dtype=torch.float16, device=DEVICE).normal_()

    def codes_of(values: torch.Tensor) -> dict[str, torch.Tensor]:
        desc = planq.VectorwiseQuantizeDescriptor(
            shape=tuple(values.shape), input_dtype="float16", form=form, axis=axis
        )
        outputs = {
            name: torch.zeros(spec.shape, dtype=getattr(torch, spec.storage), device=DEVICE)
            for name, spec in desc.operands().items()
            if spec.role == "output"
        }
        run(desc, {"input": values, **outputs})
        return outputs

    whole = codes_of(x)
    part = codes_of(x[:, -64:].contiguous() if axis == 0 else x[-64:])
    for name, values in part.items():
        among = whole[name][:, -64:] if axis == 0 else whole[name][-64:]
        assert torch.equal(among, values), name
    desc = planq.VectorwiseDequantizeDescriptor(
        shape=shape, output_dtype="float16", form=form, axis=axis
    )
    back = torch.zeros_like(x)
    run(desc, {"input": whole.pop("output"), "output": back, **whole})
    # No vector of normal elements is longer than 6 in either direction, and has 254 steps.
    assert (back - x).abs().max() < 0.1
