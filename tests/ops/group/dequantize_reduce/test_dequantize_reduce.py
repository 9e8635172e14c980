"""`dequantize_reduce` on the host: DeepSpeed's defects, orders of sums, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.group.dequantize_reduce.adapter import TESTS
from planq.audit.ops.group.dequantize_reduce.reference import DequantizeReduceProblem
from planq.audit.reference.formats import Array, Arrays

F32 = np.float32


def problem(shape: tuple[int, ...], ranks: int, **fields: Any) -> DequantizeReduceProblem:
    """A sum of int8 codes as float32, in one group, unless said otherwise."""
    sizes = {"input_dtype": "int8", "output_dtype": "float32", "group_size": max(shape[0], 1)}
    return DequantizeReduceProblem(shape=shape, ranks=ranks, **{**sizes, **fields})


def values(codes: Any, multipliers: Any, **fields: Any) -> Array:
    """The sum of ranks that have a group of symmetric codes each."""
    stored = np.array(codes, np.int8)
    parameters = np.array(multipliers, F32)[:, None, None]
    asked = problem((stored.shape[1],), len(stored), **fields)
    return TESTS.run(asked, input=stored, parameters=parameters)["output"]


def test_every_rank_has_offsets_of_its_own() -> None:
    """Parameters of the second asymmetric rank were read from the middle of the first one's."""
    codes = np.array([[1, 2], [3, 4], [-1, -2]], np.int8)
    pairs = np.array([[[1, 10]], [[2, 20]], [[4, 40]]], F32)
    found = TESTS.run(problem((2,), 3, mode="asymmetric"), input=codes, parameters=pairs)
    assert found["output"].tolist() == [1 + 10 + 6 + 20 - 4 + 40, 2 + 10 + 8 + 20 - 8 + 40]


def test_sums_do_not_overflow_float16() -> None:
    """65504 was the largest partial sum; it is when float16 is asked for."""
    assert values([[100], [100], [-100]], [600, 600, 600]).tolist() == [60000]
    assert values([[100], [100], [-100]], [600] * 3, sum_dtype="float16").tolist() == [np.inf]


def test_ranks_are_added_in_their_order() -> None:
    """2^24 + 1 + 1 is not 1 + 1 + 2^24."""
    assert values([[1], [1], [1]], [2**24, 1, 1]).tolist() == [2**24]
    assert values([[1], [1], [1]], [1, 1, 2**24]).tolist() == [2**24 + 2]


def test_float16_sums_are_rounded_at_every_step() -> None:
    """Values, sums and the mean."""
    assert values([[1], [1], [1]], [2048, 1, 1], sum_dtype="float16").tolist() == [2048]
    assert values([[1], [1]], [2049.0, 1.0], sum_dtype="float16").tolist() == [2048]
    mean = values([[1], [0], [0]], [1, 1, 1], sum_dtype="float16", mean=True)
    assert mean.tolist() == [float(np.float16(1 / 3))]
    assert values([[1], [0], [0]], [1, 1, 1], mean=True).tolist() == [float(F32(1) / F32(3))]


def test_zero_is_not_in_the_range_of_a_sum_without_it() -> None:
    """Idle lanes counted as 0."""
    codes = np.tile(np.arange(8, dtype=np.int8), 3)[None]
    pairs = np.array([[[1, 100]]], F32)
    asked = problem((24,), 1, mode="asymmetric", output_dtype="int8")
    found = TESTS.run(asked, input=codes, parameters=pairs)
    assert found["output_parameters"].tolist() == [[float(F32(0.027343748)), 103.5]]


@pytest.mark.parametrize("ranks", [1, 7, 16, 64])
@pytest.mark.parametrize("codes", ["int8", "int4"])
def test_any_number_of_ranks_and_any_groups(codes: str, ranks: int) -> None:
    """Groups of 98304 bytes were the largest, and had to be multiples of 8; threads share them."""
    for size, output_size in ((3, 7), (100, 99001), (99001, 100)):
        asked = problem(
            (3 * 9901 + ranks,),
            ranks,
            input_dtype=codes,
            output_dtype=codes,
            group_size=size,
            output_group_size=output_size,
            mode="asymmetric",
        )
        TESTS.check(asked, Host(3), **asked.inputs("ordinary", ranks))


def test_a_bad_group_of_one_rank_is_nan_in_the_sum() -> None:
    """And nowhere else; as codes, the groups that it reaches into."""
    asked = problem((30,), 3, group_size=10, output_group_size=None)
    given = asked.inputs("ordinary", 1)
    given["parameters"][1, 1] = np.nan
    found = TESTS.run(asked, **given)["output"]
    assert np.flatnonzero(np.isnan(found)).tolist() == list(range(10, 20))
    coded = problem((30,), 3, group_size=10, output_group_size=5, output_dtype="int8")
    lost = np.isnan(TESTS.run(coded, **given)["output_parameters"][:, 0])
    assert lost.tolist() == [False, False, True, True, False, False]


def test_ranks_may_lie_in_pages_with_their_parameters() -> None:
    """Codes, then parameters, of one rank behind those of another."""
    asked = problem((40,), 2, group_size=8, mode="asymmetric", output_dtype="int8")
    given = asked.inputs("ordinary", 3)
    pages = np.zeros((2, 96), np.uint8)
    pages[:, :40] = given["input"].view(np.uint8)
    stored = pages[:, 48:88].view(F32).reshape(2, 5, 2)
    stored[...] = given["parameters"]
    output, parameters = np.empty(40, np.int8), np.empty((5, 2), F32)
    args = planq.DequantizeReduceArgs(
        input=pages[:, :40].view(np.int8),
        parameters=stored,
        output=output,
        output_parameters=parameters,
    )
    planq.Plan.select(planq.HOST, TESTS.descriptor(asked)).run(planq.HOST, None, args)
    wanted = asked.expected(given)
    assert np.array_equal(output, wanted["output"])
    assert np.array_equal(parameters, wanted["output_parameters"], equal_nan=True)


def fed(codes: Any, multipliers: Any, error: Any, share: float = 0.0, **fields: Any) -> Arrays:
    """Codes, parameters and errors of the sum of ranks that have a symmetric group each."""
    stored, errors = np.array(codes, np.int8), np.asarray(error)
    parameters = np.array(multipliers, F32)[:, None, None]
    asked = problem(
        (stored.shape[1],),
        len(stored),
        output_dtype="int8",
        error_feedback=share,
        error_dtype=errors.dtype.name,
        **fields,
    )
    return TESTS.run(asked, input=stored, parameters=parameters, error=errors)


class TestErrorFeedback:
    """DeepSpeed's LoCo form."""

    def test_what_codes_of_the_sum_lose_is_kept(self) -> None:
        """A step of the sum is 1; the error comes behind the mean."""
        codes, error = [[-128, 3], [-128, 4]], np.array([0, 1.0], F32)
        for share, left in ((0.0, 0.5), (0.75, 0.75 * 1 + 0.25 * 0.5)):
            found = fed(codes, [1.0, 1.0], error, share, mean=True)
            assert found["output_parameters"].tolist() == [[1.0]]
            assert found["output"].tolist() == [-128, 4]
            assert found["error"].tolist() == [0.0, left]

    def test_float16_sums_have_deepspeeds_bits(self) -> None:
        """The sum and its error are rounded together, and what the code stands for is."""
        codes, multipliers = [[-1, 0], [-1, 3]], [2047, 1]
        error = np.array([-1, 0], np.float16)
        found = fed(codes, multipliers, error, sum_dtype="float16")
        assert found["output_parameters"].tolist() == [[16.0]]
        assert found["error"].tolist() == [0.0, 3.0]
        multiplier = F32(1) / (F32(128) / F32(2049))
        found = fed(codes, multipliers, error)
        assert found["output_parameters"].tolist() == [[float(multiplier)]]
        assert found["error"].tolist() == [float(F32(-2049) + F32(128) * multiplier), 3.0]

    def test_every_rank_has_offsets_of_its_own(self) -> None:
        """Those of the second asymmetric rank were read from the middle of the first one's."""
        codes = np.array([[0, 2], [0, 4], [0, -2]], np.int8)
        pairs = np.array([[[1, 10]], [[2, 20]], [[4, 40]]], F32)
        asked = problem((2,), 3, mode="asymmetric", output_dtype="int8", error_feedback=0.0)
        error = np.array([0 - 70, 256 - 72], F32)
        found = TESTS.run(asked, input=codes, parameters=pairs, error=error)
        assert found["output_parameters"].tolist() == [[1.0, 128.0]]
        assert found["output"].tolist() == [-128, 127]
        assert found["error"].tolist() == [0.0, 1.0]

    def test_sums_do_not_overflow_float16(self) -> None:
        """Of float32 neither a partial sum nor what is added to the errors does."""
        codes, multipliers = [[100], [100], [-100]], [600, 600, 600]
        for sums, left in (("float32", F32(60000) - 127 * F32(60000 / 128)), ("float16", np.nan)):
            found = fed(codes, multipliers, np.zeros(1, F32), sum_dtype=sums)
            assert np.array_equal(found["error"], F32([left]), equal_nan=True)

    def test_zero_is_not_in_the_range_of_a_sum_without_it(self) -> None:
        """Idle lanes counted as 0."""
        codes = np.tile(np.arange(8, dtype=np.int8), 3)[None]
        pairs = np.array([[[1, 90]]], F32)
        asked = problem((24,), 1, mode="asymmetric", output_dtype="int8", error_feedback=0.5)
        error = np.full(24, 10, F32)
        found = TESTS.run(asked, input=codes, parameters=pairs, error=error)
        assert found["output_parameters"].tolist() == [[float(F32(0.027343748)), 103.5]]

    def test_errors_lie_in_the_order_of_the_values(self) -> None:
        """Of two codes in a byte too, and of an odd number of them."""
        asked = problem(
            (5,),
            2,
            input_dtype="int4",
            output_dtype="int4",
            output_group_size=3,
            mode="asymmetric",
            error_feedback=0.0,
        )
        codes = np.zeros((2, 3), np.uint8)
        pairs = np.zeros((2, 1, 2), F32)
        error = np.array([0, 16, 6.25, -16, 0], F32)
        found = TESTS.run(asked, input=codes, parameters=pairs, error=error)
        assert found["output_parameters"].tolist() == [[1.0, 8.0], [1.0, -8.0]]
        assert found["output"].tobytes() == bytes.fromhex("87E870")
        assert found["error"].tolist() == [0.0, 1.0, 0.25, 0.0, 1.0]

    def test_a_bad_group_of_one_rank_is_nan_in_the_errors(self) -> None:
        """Of the groups of the sum that it reaches into, and of no others."""
        asked = problem(
            (30,),
            3,
            group_size=10,
            output_group_size=5,
            output_dtype="int8",
            error_feedback=0.5,
            error_dtype="float16",
        )
        given = asked.inputs("ordinary", 1)
        given["parameters"][1, 1] = np.nan
        found = TESTS.run(asked, **given)
        assert np.flatnonzero(np.isnan(found["error"])).tolist() == list(range(10, 20))

    @pytest.mark.parametrize("ranks", [1, 7, 64])
    @pytest.mark.parametrize("codes", ["int8", "int4"])
    def test_any_number_of_ranks_and_any_groups(self, codes: str, ranks: int) -> None:
        """Groups of 98304 bytes were the largest; threads share them."""
        for size, output_size in ((3, 7), (100, 99001), (99001, 100)):
            asked = problem(
                (3 * 9901 + ranks,),
                ranks,
                input_dtype=codes,
                output_dtype=codes,
                group_size=size,
                output_group_size=output_size,
                mode="asymmetric",
                error_feedback=0.1,
                error_dtype="float16",
                sum_dtype="float16",
            )
            TESTS.check(asked, Host(3), **asked.inputs("ordinary", 5 * ranks + 1))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ranks", {"ranks": 0}, "expected 1 to 64, got 0"),
    ("ranks", {"ranks": 65}, "expected 1 to 64, got 65"),
    ("input_dtype", {"input_dtype": "uint8"}, "expected one of int8, int4, got uint8"),
    (
        "output_dtype",
        {"output_dtype": "int4"},
        "expected int8, float16, bfloat16 or float32, got int4",
    ),
    (
        "output_group_size",
        {"output_group_size": 4},
        "goes with codes, and output_dtype is float32",
    ),
    ("sum_dtype", {"sum_dtype": "bfloat16"}, "expected one of float32, float16, got bfloat16"),
    ("group_size", {"group_size": 0}, "expected at least 1, got 0"),
    ("error_feedback", {"error_feedback": 0.5}, "goes with codes, and output_dtype is float32"),
    (
        "error_feedback",
        {"error_feedback": 1.5, "output_dtype": "int8"},
        "expected a value of at least 0 and below 1, got 1.5",
    ),
    (
        "error_dtype",
        {"error_feedback": 0.5, "output_dtype": "int8", "error_dtype": "float64"},
        "expected one of float32, float16, got float64",
    ),
    ("error_dtype", {"error_dtype": "float16"}, "float16 goes with error_feedback"),
]


@pytest.mark.parametrize(("field", "change", "text"), REFUSED)
def test_bad_fields_are_refused(field: str, change: dict[str, Any], text: str) -> None:
    """By name."""
    fields: dict[str, Any] = {
        "shape": (8,),
        "ranks": 2,
        "input_dtype": "int8",
        "output_dtype": "float32",
        "group_size": 4,
    }
    with pytest.raises(planq.DescriptorError) as caught:
        planq.DequantizeReduceDescriptor(**{**fields, **change})
    assert str(caught.value) == f"{field}: {text}"
