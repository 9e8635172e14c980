"""`histogram_scatter_add` on more sources than the generated tests have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.statistics.histogram_scatter_add.reference import Case, Problem, scatter_add
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, bits
from support.gpu import on_gpu


def run(given: dict[str, Array]) -> dict[str, Array]:
    """On a GPU: what is updated, and how many sources have no bin."""
    tensors = {name: on_gpu(values) for name, values in given.items()}
    desc = planq.HistogramScatterAddDescriptor(
        shape=given["histogram"].shape, count=len(given["source"])
    )
    stream = torch.cuda.current_stream()
    plan = planq.Plan.select(stream, desc)
    workspace = torch.full((plan.workspace_size(),), 0xA5, dtype=torch.uint8, device="cuda:0")
    outputs = plan.empty_outputs(torch, device="cuda:0")
    plan.run(stream, workspace, planq.HistogramScatterAddArgs(**tensors, **outputs))
    return {
        "histogram": tensors["histogram"].cpu().numpy(),
        "outside": outputs["outside"].cpu().numpy(),
    }


@pytest.mark.parametrize("count", [2**16 + 5, 2**21 + 77])
def test_bins_of_many_runs(count: int) -> None:
    """A warp joins the leaves of a bin, or where they are many a block."""
    given = Case(Problem((3, 5), count), "finite", 1).inputs()
    after, outside = scatter_add(*given.values())
    found = run(given)
    assert np.array_equal(bits(found["histogram"]), bits(after))
    assert found["outside"].tolist() == outside.tolist()


def test_more_bins_than_two_digits_number() -> None:
    """Of whole numbers, whose sums are exact in any order: NumPy's is one."""
    count, shape = 2**22, (3000, 1001)
    index1, index2 = (
        (inputs.hashed(seed, count) % np.uint64(extent)).astype(np.int32)
        for seed, extent in enumerate(shape)
    )
    source = (inputs.hashed(2, count) % np.uint64(1000)).astype(np.float32)
    wanted = np.zeros(shape, np.float32)
    np.add.at(wanted, (index1, index2), source)
    given = {"histogram": np.zeros(shape, np.float32), "index1": index1, "index2": index2}
    found = run({**given, "source": source})
    assert np.array_equal(bits(found["histogram"]), bits(wanted))
    assert found["outside"].tolist() == [0]
