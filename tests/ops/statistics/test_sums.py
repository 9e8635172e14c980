"""`square_sum` and `norm` on the host: their order, their edges, other libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host, Layout
from planq.audit.ops.statistics import sums
from planq.audit.ops.statistics.sums import Problem
from planq.audit.ops.statistics.sums_tests import measure
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, INPUT_DTYPES, STORAGE, Array, bits

F32 = np.float32
INF = float("inf")
HOST = Host()
ORDERS = ("one", "two", "infinity")
every_dtype = pytest.mark.parametrize("input_dtype", INPUT_DTYPES)


def square_sum(x: Array, host: Host = HOST, layout: Layout | None = None) -> Array:
    """By planq."""
    return measure(planq.SquareSumDescriptor(shape=x.shape, input_dtype=x.dtype), x, host, layout)


def norm(x: Array, p: str, host: Host = HOST, layout: Layout | None = None) -> Array:
    """By planq."""
    order = planq.NormOrder(p)
    return measure(
        planq.NormDescriptor(shape=x.shape, input_dtype=x.dtype, p=order), x, host, layout
    )


def check(x: Array, host: Host = HOST, layout: Layout | None = None) -> None:
    """Every order against the reference."""
    name = x.dtype.name
    wanted = sums.square_sum(Problem(x.shape, name), x)
    assert bits(square_sum(x, host, layout)) == bits(wanted)
    for p in ORDERS:
        wanted = sums.norm(Problem(x.shape, name, p), x)
        assert bits(norm(x, p, host, layout)) == bits(wanted), p


@every_dtype
def test_every_count_of_elements(input_dtype: str) -> None:
    """An odd one out at every level, and a leaf more or less."""
    for count in (*range(1, 70), 511, 1023, 1024, 1025, 2047, 2049, 5121, 65537):
        check(inputs.make("finite", (count,), input_dtype, count))


@pytest.mark.parametrize("threads", [1, 2, 5])
@every_dtype
def test_threads_and_strides_change_no_bit(input_dtype: str, threads: int) -> None:
    """Elements count in their logical order, in rows of any length and distance."""
    for shape, pitch in (((600, 257), 0), ((600, 257), 5), ((3, 100003), 1), ((70001, 2), 3)):
        x = inputs.make("tiled", shape, input_dtype, threads)
        check(x, Host(threads), Layout(offset=1, pitch=pitch))


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank(rank: int) -> None:
    """In strided memory too."""
    shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
    for pitch in (0, 3):
        check(
            inputs.make("finite", shape, "bfloat16", rank), Host(3), Layout(offset=1, pitch=pitch)
        )


def test_neighbours_are_added_first() -> None:
    """By hand: 2^24 + 1 is lost, 1 + 1 is not; and no square is contracted into its sum."""
    x = np.array([2**24, 1, 1, 1], F32)
    assert norm(x, "one").tolist() == [2**24 + 2]
    assert norm(x[1:], "one").tolist() == [3]
    assert norm(np.roll(x, 1), "one").tolist() == [2**24 + 2]
    a, b = F32(1 + 2**-12), F32(2**-6)
    assert square_sum(np.array([a, b])).tolist() == [F32(F32(a * a) + F32(b * b))]


@every_dtype
def test_sums_of_aligned_parts_add_up(input_dtype: str) -> None:
    """The tree of the whole has those of its parts of 2^k elements: backends may cut it so."""
    x = inputs.make("normal", (2**16,), input_dtype, 5)
    for part in (2**9, 2**12, 2**15):
        own = np.concatenate([square_sum(x[i : i + part]) for i in range(0, x.size, part)])
        assert bits(sums.tree_sum(own)) == bits(square_sum(x))[0]


@every_dtype
def test_the_error_of_a_norm_is_that_of_a_tree(input_dtype: str) -> None:
    """log2(n) + 1 roundings of the sum, half of which the root takes away, and one of the root."""
    x = inputs.make("finite", (200001,), input_dtype, 3)
    x = np.where(np.abs(x.astype(np.float64)) < 1e15, x, x.dtype.type(1))
    epsilon = 2.0**-53 if input_dtype == "float64" else 2.0**-24
    exact = math.fsum(float(value) ** 2 for value in x.astype(np.float64))
    assert abs(float(square_sum(x)[0]) / exact - 1) <= 19 * epsilon
    assert abs(float(norm(x, "two")[0]) / math.sqrt(exact) - 1) <= 11 * epsilon


@every_dtype
def test_torch_has_the_same_norms_within_rounding(input_dtype: str) -> None:
    """Its order is its own; the maximum is the same to the bit."""
    x = torch.randn(50000, generator=torch.Generator().manual_seed(1)).to(
        getattr(torch, input_dtype)
    )
    wide = x.double() if input_dtype == "float64" else x.float()
    array = x.view(torch.int16).numpy().view(STORAGE[input_dtype]) if x.itemsize == 2 else x.numpy()
    for p, order in zip(ORDERS, (1, 2, INF), strict=True):
        theirs = float(torch.linalg.vector_norm(wide, order))
        assert float(norm(array, p)[0]) == pytest.approx(theirs, rel=0 if p == "infinity" else 3e-6)


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def norms(self, *values: float) -> list[float]:
        """Square sum, and the norms of each order."""
        x = np.array(values, F32)
        return [float(square_sum(x)[0]), *(float(norm(x, p)[0]) for p in ORDERS)]

    def test_plain_numbers(self) -> None:
        """The triangle."""
        assert self.norms(3, -4) == [25, 7, 5, 4]

    def test_nothing(self) -> None:
        """Zeros of either sign are +0, and so is the norm of no elements."""
        for values in ((), (0.0,), (-0.0,), (-0.0, -0.0, -0.0)):
            x = np.array(values, F32)
            for number in (square_sum(x), *(norm(x, p) for p in ORDERS)):
                assert bits(number).tolist() == [0]

    def test_infinities(self) -> None:
        """Are infinite whatever their sign, and no difference of them is taken."""
        assert self.norms(1, -INF, INF) == [INF] * 4

    @every_dtype
    def test_nan(self, input_dtype: str) -> None:
        """Is above infinity, and is the canonical one whatever it was."""
        size = FLOATS[input_dtype].dtype.itemsize
        raw = np.zeros(3, f"u{size}")
        raw[1] = np.iinfo(raw.dtype).max  # negative, every bit of its payload set
        x = raw.view(STORAGE[input_dtype])
        x[2] = INF
        canonical = 0x7FF8 << 48 if input_dtype == "float64" else 0x7FC00000
        for number in (square_sum(x), *(norm(x, p) for p in ORDERS)):
            assert bits(number).tolist() == [canonical]

    def test_squares_may_leave_the_range(self) -> None:
        """Of large and of small elements; the other norms stay."""
        assert self.norms(1e30, 1e30) == [INF, float(F32(1e30) * 2), INF, float(F32(1e30))]
        assert self.norms(1e-30) == [0, float(F32(1e-30)), 0, float(F32(1e-30))]
        assert self.norms(2.0**-74) == [2.0**-148, 2.0**-74, 2.0**-74, 2.0**-74]

    def test_subnormals_count(self) -> None:
        """None is flushed."""
        tiny = 2.0**-149
        assert self.norms(tiny, tiny, tiny)[1] == 3 * tiny


def test_float64_is_float64_throughout() -> None:
    """Numbers that float32 has no room for."""
    x = np.array([1e200, 1 + 2.0**-52])
    assert norm(x, "infinity").tolist() == [1e200]
    assert square_sum(x[1:]).tolist() == [x[1] * x[1]]
    assert norm(x[1:], "one").dtype == np.float64


@pytest.mark.parametrize("name", ["SquareSumDescriptor", "NormDescriptor"])
def test_what_a_descriptor_refuses(name: str) -> None:
    """Types that are no floats, and a shape without axes."""
    made = getattr(planq, name)
    with pytest.raises(planq.DescriptorError) as error:
        made(shape=(3,), input_dtype="int8")
    assert error.value.field == "input_dtype"
    with pytest.raises(planq.DescriptorError) as error:
        made(shape=(), input_dtype="float32")
    assert error.value.field == "shape"
    with pytest.raises(planq.DescriptorError) as error:
        planq.NormDescriptor(shape=(3,), input_dtype="float32", p="three")  # type: ignore[arg-type]
    assert error.value.field == "p"


def test_what_operands_are_refused() -> None:
    """A word for each, with the operand's name."""
    plan = planq.Plan.select(planq.HOST, planq.NormDescriptor(shape=(3,), input_dtype="float16"))
    x, output = np.zeros(3, np.float16), np.zeros(1, F32)
    for args, operand in (
        (planq.NormArgs(input=x.astype(F32), output=output), "input"),
        (planq.NormArgs(input=x[:2], output=output), "input"),
        (planq.NormArgs(input=x, output=output.astype(np.float16)), "output"),
        (planq.NormArgs(input=x, output=np.zeros(2, F32)), "output"),
    ):
        status = plan.can_implement(args)
        assert not status
        assert status.operand == operand
