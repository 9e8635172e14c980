"""`histogram_scatter_add` on the host: its order, its edges, what torch adds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host
from planq.audit.ops.statistics.histogram_scatter_add.reference import Case, Problem, scatter_add
from planq.audit.reference.formats import Array, bits
from planq.audit.runner import Bench

F32 = np.float32


def add(histogram: Array, index1: Array, index2: Array, source: Array, threads: int = 1) -> int:
    """By planq, in place; how many sources have no bin."""
    desc = planq.HistogramScatterAddDescriptor(shape=histogram.shape, count=len(source))
    bench = Bench(Host(threads), desc)
    given = {"histogram": histogram, "index1": index1, "index2": index2, "source": source}
    bench.load(given)
    bench.run()
    found = bench.outputs()
    histogram[...] = found["histogram"]
    return int(found["outside"][0])


def one_bin(*sources: float, held: float = 0.0) -> Array:
    """What a bin holds that gets these."""
    bins = np.full((1, 1), held, F32)
    none = np.zeros(len(sources), np.int32)
    assert add(bins, none, none, np.array(sources, F32)) == 0
    return bins


def test_the_order_is_that_of_the_tree() -> None:
    """By hand: 2^24 + 1 is lost, 1 + 1 is not, and the bin comes last."""
    assert one_bin(2**24, 1, 1, 1).tolist() == [[2**24 + 2]]
    assert one_bin(1, 1, 1, held=2**24).tolist() == [[2**24 + 4]]
    assert one_bin(1, held=2**24).tolist() == [[2**24]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 1024, 1025, 1536, 2048, 3072, 3073])
def test_zeros_keep_their_sign_where_nothing_fills_the_tree(count: int) -> None:
    """+0 beside -0 is +0. It fills runs, and their number: that of 3072 is three."""
    filled = count in (3, 3072)
    held = one_bin(*[-0.0] * count, held=-0.0)
    assert bits(held).tolist() == [[0 if filled else 1 << 31]]


def test_rows_are_as_long_as_they_are() -> None:
    """A matrix that is not square; what lies outside of it on any side is counted alone."""
    held = np.zeros((2, 5), F32)
    index1 = np.array([0, 1, 1, 2, -1, 0, 0, 2**31 - 1], np.int32)
    index2 = np.array([4, 0, 3, 0, 0, 5, -1, -(2**31)], np.int32)
    assert add(held, index1, index2, np.arange(1, 9, dtype=F32)) == 5
    assert held.tolist() == [[0, 0, 0, 0, 1], [2, 0, 0, 3, 0]]


def test_bins_without_sources_keep_their_bits() -> None:
    """A NaN with a payload, and -0."""
    raw = np.array([[0x7FC12345, 1 << 31]], np.uint32)
    held = raw.view(F32).copy()
    assert add(held, *(np.zeros(0, np.int32),) * 2, np.zeros(0, F32)) == 0
    assert bits(held).tolist() == raw.tolist()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_change_no_bit(threads: int) -> None:
    """Bins that many threads begin and end in."""
    given = Case(Problem((6, 3), 100_000), "finite", 3).inputs()
    wanted, outside = scatter_add(*given.values())
    held = given["histogram"].copy()
    found = add(held, given["index1"], given["index2"], given["source"], threads)
    assert np.array_equal(bits(held), bits(wanted))
    assert found == outside[0]


def test_torch_adds_the_same_within_rounding() -> None:
    """By index_put, in float64."""
    rng = np.random.default_rng(2)
    index1, index2 = (rng.integers(0, n, 20_000).astype(np.int32) for n in (37, 91))
    source = rng.standard_normal(20_000).astype(F32)
    held = np.zeros((37, 91), F32)
    add(held, index1, index2, source)
    theirs = torch.zeros(37, 91, dtype=torch.float64)
    places = (torch.from_numpy(index1).long(), torch.from_numpy(index2).long())
    theirs.index_put_(places, torch.from_numpy(source).double(), accumulate=True)
    # A bin adds some ten numbers of about 1, and 16 is the largest sum on the way.
    assert theirs.abs().max() < 16
    assert np.allclose(held, theirs.numpy(), rtol=0, atol=10 * 16 * 2.0**-24)


def test_what_a_descriptor_refuses() -> None:
    """A histogram of another rank, fewer than no sources."""
    with pytest.raises(planq.DescriptorError) as error:
        planq.HistogramScatterAddDescriptor(shape=(3,), count=1)
    assert error.value.field == "shape"
    with pytest.raises(planq.DescriptorError) as error:
        planq.HistogramScatterAddDescriptor(shape=(3, 3), count=-1)
    assert error.value.field == "count"
