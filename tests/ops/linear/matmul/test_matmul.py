"""`matmul` on the host: what its orders of sums are good for, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.operators import name_of
from planq.audit.ops.linear.matmul.adapter import TESTS
from planq.audit.ops.linear.matmul.reference import FloatMatmulProblem
from planq.audit.reference.formats import FLOATS, Array
from planq.audit.reference.inputs import make

ORDERS = ("tensor_sm90", "lanes")


def product(a: Array, w: Array, **fields: Any) -> Array:
    """planq's product of two arrays."""
    problem = FloatMatmulProblem(a.shape, w.shape, a.dtype.name, **fields)
    return TESTS.run(problem, input=a, weight=w)["output"]


@pytest.mark.parametrize("accumulation", ORDERS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_size_of_edge(dtype: str, accumulation: str) -> None:
    """Rows, columns and terms of every remainder, both sides stored both ways."""
    turns = itertools.cycle(itertools.product((False, True), repeat=2))
    sizes = (1, 2, 3, 4, 5, 8, 9, 31, 33, 97)
    for m, n in itertools.product(sizes, (1, 2, 15, 16, 17, 31, 32, 33, 65)):
        k = (1, 3, 16, 17, 31, 127, 129, 150)[(m + n) % 8]
        turned, turned_weight = next(turns)
        problem = FloatMatmulProblem(
            (k, m) if turned else (m, k),
            (k, n) if turned_weight else (n, k),
            dtype,
            transpose_input=turned,
            transpose_weight=turned_weight,
            accumulation=accumulation,
        )
        TESTS.check(problem, **problem.inputs("any", m + n))


@pytest.mark.parametrize("accumulation", ORDERS)
def test_threads_and_rows_change_no_bit(accumulation: str) -> None:
    """One row alone, all rows, one thread, many: the same bits."""
    a, w = make("normal", (40, 500), "bfloat16", 1), make("normal", (300, 500), "bfloat16", 2)
    whole = product(a, w, accumulation=accumulation)
    problem = FloatMatmulProblem(a.shape, w.shape, accumulation=accumulation)
    assert (TESTS.run(problem, Host(7), input=a, weight=w)["output"] == whole).all()
    for row in (0, 17, 39):
        alone = product(a[row : row + 1], w, accumulation=accumulation)
        assert (alone == whole[row : row + 1]).all()


def test_sides_change_places() -> None:
    """y^T = w a^T to the bit, in either order of sums."""
    a, w = make("normal", (9, 200), "float16", 1), make("normal", (33, 200), "float16", 2)
    for accumulation in ORDERS:
        one = product(a, w, accumulation=accumulation)
        assert (one == product(w, a, accumulation=accumulation).T).all()


def test_a_tensor_core_truncates_each_term() -> None:
    """Beside 1, the unit is 2^-25: halves of it are lost one by one, however many there are."""
    a, w = np.zeros((1, 16), np.float16), np.zeros((1, 16), np.float16)
    a[:], w[:] = 2.0**-13, 2.0**-13  # products of 2^-26
    a[0, 0] = w[0, 0] = 1
    assert product(a, w)[0, 0] == 1
    assert product(a, w, accumulation="lanes")[0, 0] == 1
    a[0, 1:] = 2.0**-12  # 15 units, of which the last bit of 1 is four
    assert product(a, w)[0, 0] == 1 + 3 * 2.0**-23
    # The sum so far is aligned with them: the same terms in another group find the same unit.
    a, w = (np.concatenate([side, 0 * side, side[:, 1:]], axis=1) for side in (a, w))
    assert product(a, w)[0, 0] == 1 + 6 * 2.0**-23


@pytest.mark.parametrize("accumulation", ORDERS)
def test_sums_are_near_the_exact_ones(accumulation: str) -> None:
    """No term is lost and none counts twice, whatever k is."""
    for k in (1, 16, 100, 128, 129, 1000, 2049):
        a, w = make("normal", (5, k), "bfloat16", k), make("normal", (40, k), "bfloat16", k + 1)
        wide = a.astype(np.float64), w.astype(np.float64)
        exact, size = wide[0] @ wide[1].T, np.abs(wide[0]) @ np.abs(wide[1]).T
        assert (np.abs(product(a, w, accumulation=accumulation) - exact) <= size * 2.0**-19).all()


@pytest.mark.parametrize("accumulation", ORDERS)
def test_a_number_that_is_none_spoils_its_row_alone(accumulation: str) -> None:
    """NaN, infinities of one sign and of both, zero times infinity."""
    a, w = np.ones((5, 40), np.float16), np.ones((3, 40), np.float16)
    a[1, 20], a[2, 39], a[3, :2] = np.nan, -np.inf, (np.inf, -np.inf)
    w[2, 39] = 0
    got = product(a, w, accumulation=accumulation)
    want = [[40, 40, 39], [np.nan] * 3, [-np.inf, -np.inf, np.nan], [np.nan] * 3, [40, 40, 39]]
    np.testing.assert_array_equal(got, want)
    assert (got.view(np.uint32)[np.isnan(got)] == 0x7FC00000).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_without_terms_the_epilogue_is_that_of_zero(dtype: str) -> None:
    """Outputs that nothing is added to are written all the same."""
    for accumulation in ORDERS:
        problem = FloatMatmulProblem(
            (3, 0), (50, 0), dtype, bias_dtype="float32", accumulation=accumulation
        )
        bias = make("normal", (50,), "float32", 3)
        given = {"input": np.zeros((3, 0), FLOATS[dtype].dtype), "bias": bias}
        given["weight"] = np.zeros((50, 0), FLOATS[dtype].dtype)
        assert (TESTS.run(problem, **given)["output"] == bias).all()


def test_dtypes_are_those_of_the_input_by_default() -> None:
    """Of the weights and of the output."""
    desc = planq.MatmulDescriptor(input_shape=(4, 5), weight_shape=(3, 5), input_dtype="float16")
    assert desc.weight_dtype is desc.output_dtype is planq.DType.FLOAT16
    assert desc.accumulation is planq.Accumulation.TENSOR_SM90
    assert planq.Plan.select(planq.HOST, desc).sku == "matmul/host/tensor_sm90/f16_f16"


# m, n, k, the transposed sides, and whether all rows in memory are whole vectors of 8 numbers.
ROWS_IN_MEMORY = (
    ((5, 7, 16), (False, False), True),
    ((8, 16, 12), (False, False), False),
    ((8, 7, 16), (True, False), True),
    ((7, 8, 16), (True, False), False),
    ((8, 8, 12), (True, False), False),
    ((5, 8, 16), (False, True), True),
    ((8, 7, 16), (False, True), False),
    ((8, 8, 12), (False, True), False),
    ((8, 16, 3), (True, True), True),
    ((12, 16, 16), (True, True), False),
    ((8, 12, 16), (True, True), False),
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("extents", "sides", "whole"), ROWS_IN_MEMORY)
def test_tensor_cores_take_rows_of_whole_vectors(
    extents: tuple[int, int, int], sides: tuple[bool, bool], whole: bool, dtype: str
) -> None:
    """However a side lies, along k or transposed; of others warps do. Of builds that have them."""
    m, n, k = extents
    desc = planq.MatmulDescriptor(
        input_shape=(k, m) if sides[0] else (m, k),
        weight_shape=(k, n) if sides[1] else (n, k),
        input_dtype=dtype,
        transpose_input=sides[0],
        transpose_weight=sides[1],
    )
    chosen = planq.explain(desc, device="sm_90").chosen
    body = "wgmma" if whole else "mma"
    wanted = f"matmul/cuda/tensor_sm90/{'f16' if dtype == 'float16' else 'bf16'}:{body}"
    assert (name_of(chosen) if chosen else None) == (wanted if planq.build_info().cuda else None)


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (4,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"weight_shape": (3, 6)}, "weight_shape", r"expected k = 5 in the last axis"),
        ({"input_shape": (2, 4, 5), "weight_shape": (3, 3, 5)}, "weight_shape", "leading axes"),
        ({"input_dtype": "float32"}, "input_dtype", "float16, bfloat16"),
        ({"weight_dtype": "float16"}, "weight_dtype", "expected bfloat16 as input_dtype"),
        ({"output_dtype": "float64"}, "output_dtype", "float16, bfloat16, float32"),
        ({"bias_dtype": "int32"}, "bias_dtype", "float16"),
        ({"residual_dtype": "int32"}, "residual_dtype", "float16"),
        ({"accumulation": "sequential"}, "accumulation", "lanes or tensor_sm90"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    given = {"input_shape": (4, 5), "weight_shape": (3, 5), "input_dtype": "bfloat16", **fields}
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.MatmulDescriptor(**given)
    assert caught.value.field == name
