"""`matmul_int8` on the host: its limits, its shapes, and where other libraries go wrong."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.matmul_int8.adapter import TESTS
from planq.audit.ops.linear.matmul_int8.reference import MatmulProblem
from planq.audit.ops.linear.products import CODES, codes, stored
from planq.audit.reference.formats import Array

# The largest product of two codes of each pair.
LARGEST = {"int8": 128, "uint8": 255, "int4": 8, "uint4": 15}
PAIRS = tuple(itertools.product(CODES, CODES))


def product(a: Array, w: Array, output_dtype: str = "int32", **fields: Any) -> Array:
    """planq's product of two arrays of whole bytes."""
    problem = MatmulProblem(
        a.shape, w.shape, a.dtype.name, w.dtype.name, output_dtype=output_dtype, **fields
    )
    return TESTS.run(problem, input=a, weight=w)["output"]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_as_many_terms_as_int32_holds_and_no_more(first: str, second: str) -> None:
    """Sums that would leave int32 wrap without a word elsewhere; here there is no descriptor."""
    most = (2**31 - 1) // (LARGEST[first] * LARGEST[second])
    fields = {"input_dtype": first, "weight_dtype": second}
    planq.MatmulInt8Descriptor(input_shape=(1, most), weight_shape=(1, most), **fields)
    with pytest.raises(planq.DescriptorError, match=f"more than {most} terms") as caught:
        planq.MatmulInt8Descriptor(input_shape=(1, most + 1), weight_shape=(1, most + 1), **fields)
    assert caught.value.field == "input_shape"


@pytest.mark.parametrize("columns", [1, 4, 70])
def test_the_longest_sum_is_exact(columns: int) -> None:
    """131071 times 128 times 128: the largest sum there is, by every body."""
    k = 131071
    for rows in (1, 20):
        got = product(np.full((rows, k), -128, np.int8), np.full((columns, k), -128, np.int8))
        assert (got == k * 2**14).all()
        got = product(np.full((rows, k), -128, np.int8), np.full((columns, k), 127, np.int8))
        assert (got == -k * 128 * 127).all()


def test_sums_above_two_to_the_24_lose_nothing() -> None:
    """A product by way of float32 does: there these two sums, neighbours above 2^30, are one."""
    k = 131071
    a, w = np.full((2, k), 127, np.int8), np.full((1, k), 127, np.int8)
    a[1, 0], w[0, 0] = 126, 1
    first, second = product(a, w)[:, 0]
    assert first == (k - 1) * 127 * 127 + 127 > 2**30
    assert first - second == 1
    assert np.float32(first) == np.float32(second)


def test_without_terms_sums_are_zero() -> None:
    """Outputs that nothing is added to are written all the same."""
    for m, n in ((1, 1), (5, 70), (200, 3)):
        got = product(np.zeros((m, 0), np.int8), np.zeros((n, 0), np.int8))
        assert got.shape == (m, n)
        assert (got == 0).all()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_one_row_is_not_taken_for_a_transposed_matrix(rows: int, *, turned: bool) -> None:
    """Some libraries guess a transposition from extents and strides; here it is a field."""
    a = codes("int8", (rows, 5), "any", 1).astype(np.int8)
    w = codes("int8", (5, 5), "any", 2).astype(np.int8)
    want = a.astype(int) @ (w.astype(int) if turned else w.astype(int).T)
    assert (product(a, w, transpose_weight=turned) == want).all()


def test_batches_have_three_sizes_of_their_own() -> None:
    """Elsewhere the output of a transposed batch takes the batch for its last axis."""
    a = codes("int8", (2, 3, 7), "any", 1).astype(np.int8)
    w = codes("int8", (2, 5, 7), "any", 2).astype(np.int8)
    want = a.astype(int) @ np.swapaxes(w.astype(int), 1, 2)
    for turned, turned_weight in itertools.product((False, True), repeat=2):
        first = np.ascontiguousarray(np.swapaxes(a, 1, 2)) if turned else a
        second = np.ascontiguousarray(np.swapaxes(w, 1, 2)) if turned_weight else w
        got = product(first, second, transpose_input=turned, transpose_weight=turned_weight)
        assert got.shape == (2, 3, 5)
        assert (got == want).all()


def test_int8_output_is_the_nearest() -> None:
    """Sums are clamped; they neither wrap nor end at 127 on both sides."""
    a = np.array([[1, 0], [127, 127], [-128, -128], [64, 0]], np.int8)
    got = product(a, np.array([[127, 127], [-1, 0], [2, 0]], np.int8), "int8")
    assert got.tolist() == [[127, -1, 2], [127, -127, 127], [-128, 127, -128], [127, -64, 127]]


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (4,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"weight_shape": (3, 6)}, "weight_shape", r"expected k = 5 in the last axis"),
        ({"weight_shape": (6, 3), "transpose_weight": True}, "weight_shape", "last axis but one"),
        ({"input_shape": (2, 4, 5), "weight_shape": (3, 3, 5)}, "weight_shape", "leading axes"),
        ({"input_dtype": "int32"}, "input_dtype", "int8, uint8, int4, uint4"),
        ({"weight_dtype": "float16"}, "weight_dtype", "int8, uint8, int4, uint4"),
        ({"output_dtype": "float32"}, "output_dtype", "int32, int8"),
        ({"input_shape": (2**40, 5), "weight_shape": (2**40, 5)}, "weight_shape", "2\\^60"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs; nothing is printed and no zeros are returned."""
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.MatmulInt8Descriptor(**{"input_shape": (4, 5), "weight_shape": (3, 5), **fields})
    assert caught.value.field == name


def test_a_wrong_operand_raises_and_writes_nothing() -> None:
    """Where others print an error and give zeros back."""
    desc = planq.MatmulInt8Descriptor(input_shape=(4, 5), weight_shape=(3, 5))
    plan = planq.Plan.select(planq.HOST, desc)
    output = np.full((4, 3), 77, np.int32)
    args = planq.MatmulInt8Args(
        input=np.ones((4, 5), np.int8), weight=np.ones((5, 3), np.int8), output=output
    )
    assert not plan.can_implement(args)
    with pytest.raises(planq.ArgumentError) as caught:
        plan.run(planq.HOST, None, args)
    assert caught.value.operand == "weight"
    assert (output == 77).all()


SIZES = (1, 2, 3, 4, 5, 7, 15, 16, 17, 33, 61, 97)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_every_size_of_edge(first: str, second: str) -> None:
    """Rows, columns and terms of every remainder, both sides stored both ways."""
    turns = itertools.cycle(itertools.product((False, True), repeat=2))
    seeds = itertools.count()
    for m, n in itertools.product(SIZES, SIZES[::2]):
        k, seed = (1, 3, 64, 127, 130, 257)[(m + n) % 6], next(seeds)
        turned, turned_weight = next(turns)
        problem = MatmulProblem(
            (k, m) if turned else (m, k),
            (k, n) if turned_weight else (n, k),
            first,
            second,
            transpose_input=turned,
            transpose_weight=turned_weight,
        )
        TESTS.check(problem, **problem.inputs("any", seed))


@pytest.mark.parametrize(("first", "second"), [("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_many_rows(first: str, second: str, threads: int) -> None:
    """More than a block has, of which sums of several slices are added in the output itself."""
    for m, n, k in ((1025, 70, 516), (2060, 128, 64), (131, 200, 1024), (700, 64, 1540)):
        problem = MatmulProblem((m, k), (n, k), first, second)
        TESTS.check(problem, Host(threads), **problem.inputs("any", m))
    batch = MatmulProblem((3, 300, 68), (3, 130, 68), first, second)
    TESTS.check(batch, Host(threads), **batch.inputs("ends", threads))


@pytest.mark.parametrize("dtype", CODES)
def test_strips_of_transposed_weights(dtype: str) -> None:
    """Few rows and many columns, shared by threads."""
    for rows, threads in itertools.product((1, 2, 3, 4, 5), (1, 3)):
        problem = MatmulProblem((rows, 1030), (1030, 4500), "int8", dtype, transpose_weight=True)
        TESTS.check(problem, Host(threads), **problem.inputs("any", rows))


def test_the_spare_nibble_is_not_looked_at() -> None:
    """Behind an odd axis, along terms and along rows."""
    for rows, turned, turned_weight in itertools.product((7, 31), (False, True), (False, True)):
        problem = MatmulProblem(
            (7, rows) if turned else (rows, 7),
            (7, 5) if turned_weight else (5, 7),
            "int4",
            "int4",
            transpose_input=turned,
            transpose_weight=turned_weight,
        )
        given = problem.inputs("any", rows)
        dirty = {name: values.copy() for name, values in given.items()}
        for name, values in dirty.items():
            values[:, -1] |= 0xF0  # the last axis of either is odd
            assert (values != given[name]).any()
        want = problem.expected(given)["output"]
        assert (TESTS.run(problem, **dirty)["output"] == want).all()


def test_a_batch_that_repeats_is_read_where_it_lies() -> None:
    """Leading axes of 1 and missing ones, on either side."""
    a, w = codes("uint8", (3, 1, 4, 9), "any", 1), codes("int8", (2, 6, 9), "any", 2)
    problem = MatmulProblem(a.shape, w.shape, "uint8", "int8")
    got = TESTS.run(problem, input=stored(a, "uint8"), weight=stored(w, "int8"))["output"]
    assert got.shape == (3, 2, 4, 6)
    assert (got == a @ np.swapaxes(w, -1, -2)).all()
