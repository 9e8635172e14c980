"""`linear_llm_int8` on the host: its edges, what the originals get wrong, and the whole chain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.linear_llm_int8.adapter import TESTS
from planq.audit.ops.linear.linear_llm_int8.cases import Case
from planq.audit.ops.linear.linear_llm_int8.reference import Problem, linear_llm_int8
from planq.audit.ops.outlier.llm_int8_quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.outlier.llm_int8_quantize.cases import planted
from planq.audit.ops.outlier.llm_int8_quantize.reference import Problem as QuantizeProblem
from planq.audit.reference.formats import INPUT_DTYPES, Array, Arrays, bits
from planq.audit.runner import Bench

F32 = np.float32
CHAIN = {"accumulation": "tensor_sm90"}
NAN = float("nan")


def run(problem: Problem, given: Arrays, threads: int = 1) -> Array:
    """The output, which is compared with the reference."""
    bench = Bench(Host(threads), TESTS.descriptor(problem))
    bench.load(given)
    bench.run()
    bench.check(given, linear_llm_int8(problem, given), problem.id)
    return bench.outputs()["output"]


@pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
def test_the_whole_table(output_dtype: str) -> None:
    """Every type of codes x of outliers x of scales x bias x residual."""
    choices = itertools.product(
        ("int8", "int4"), ("int8", "int4"), ("float16", "bfloat16", "float32"), (None, "float16")
    )
    extras = itertools.cycle(
        [(None, None), ("float32", None), (None, "bfloat16"), ("float64",) * 2]
    )
    for seed, (input_dtype, weight_dtype, outlier_dtype, scale_dtype) in enumerate(choices):
        bias, residual = next(extras)
        problem = Problem(
            (3, 37),
            (9, 37),
            output_dtype,
            input_dtype,
            weight_dtype,
            scale_dtype=scale_dtype,
            bias_dtype=bias,
            residual_dtype=residual,
            capacity=6,
            outlier_dtype=outlier_dtype,
        )
        run(problem, Case(problem, "normal", seed).inputs())


@pytest.mark.parametrize("columns", [1, 3, 15, 16, 17, 511, 512, 513, 1030])
def test_every_tail_length(columns: int) -> None:
    """Pieces of rows leave tails; so do groups of rows."""
    for threads, rows in ((1, 2), (3, 259)):
        problem = Problem((rows, 8), (columns, 8), "bfloat16", capacity=2, bias_dtype="float32")
        run(problem, Case(problem, "normal", columns).inputs(), threads)


@pytest.mark.parametrize("outlier_dtype", ["float16", "bfloat16"])
def test_a_chain_of_every_length(outlier_dtype: str) -> None:
    """Groups of 16 and what is left of one; several slices' worth of columns are one chain, too."""
    for listed in (0, 1, 15, 16, 17, 31, 33, 128, 129, 160, 300):
        problem = Problem(
            (5, 320),
            (37, 320),
            capacity=listed + 3,
            outlier_dtype=outlier_dtype,
            accumulation="tensor_sm90",
        )
        given = Case(problem, "normal", listed).inputs()
        given["count"][:] = listed
        given["index"][:listed] = np.sort(np.random.default_rng(listed).permutation(320)[:listed])
        given["outlier"][..., listed:] = np.inf  # beyond the list: no number
        run(problem, given, 2)


def test_a_chain_truncates_where_fma_rounds() -> None:
    """What is far below the sum is lost toward zero; by fma it rounds."""
    problem, given = small(1, **CHAIN)
    given["input"] = np.array([[127, 127], [-127, -127]], np.int8)
    given["weight"] = np.array([[127, 127]], np.int8)
    given["input_scale"], given["weight_scale"] = np.full(2, 2.0**10, F32), np.ones(1, F32)
    total = 127 * 127 * 2 * 2.0**10  # with a last place of 2
    given["outlier"] = np.array([[1.5 / 127, 0, 0], [-1.5 / 127, 0, 0]]).astype(np.float16)
    assert run(problem, given).ravel().tolist() == [total, -total]
    other, _ = small(1)
    assert run(other, given).ravel().tolist() == [total + 2, -total - 2]


def test_the_order_of_a_group_changes_nothing_and_that_of_groups_does() -> None:
    """As of tensor cores."""
    problem = Problem((4, 64), (9, 64), capacity=32, **CHAIN)
    given = Case(problem, "normal", 3).inputs()
    given["count"][:], given["index"][:] = 32, np.arange(32)
    want = run(problem, given)

    def permuted(order: Array) -> Array:
        """With the list in another order, which no list of planq's has."""
        moved = {"index": given["index"][order], "outlier": given["outlier"][..., order].copy()}
        return run(problem, {**given, **moved})

    within = np.concatenate([np.arange(16)[::-1], 16 + np.arange(16)[::-1]])
    assert permuted(within).tobytes() == want.tobytes()
    assert permuted(np.arange(32)[::-1]).tobytes() != want.tobytes()


def small(count: int, **changes: Any) -> tuple[Problem, Arrays]:
    """Two rows of two terms by one column, with room for three outliers."""
    given: Arrays = {
        "input": np.array([[1, 2], [3, 4]], np.int8),
        "weight": np.array([[10, -3]], np.int8),
        "input_scale": np.array([0.5, 2], F32),
        "weight_scale": np.array([0.25], F32),
        "index": np.array([0, 1, -1], np.int32),
        "count": np.array([count], np.int64),
        "outlier": np.array([[8, 1, 0], [-1, 100, 0]], np.float16),
    }
    fields = {"capacity": 3, **changes}
    return Problem((2, 2), (1, 2), "float32", **fields), given


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_outliers_are_added_under_the_columns_scale(self) -> None:
        """`(4 * 0.5 + 8 * 10 + 1 * -3) / 4`."""
        problem, given = small(2)
        assert run(problem, given).tolist() == [[(2 + 80 - 3) / 4], [(36 - 10 - 300) / 4]]

    @pytest.mark.parametrize(("count", "first"), [(0, 2), (1, 82), (-5, 2), (2, 79)])
    def test_the_count_is_read_where_it_lies(self, count: int, first: float) -> None:
        """As it is when the kernel runs."""
        problem, given = small(count)
        assert run(problem, given)[0].tolist() == [first / 4]

    def test_a_count_beyond_the_capacity(self) -> None:
        """The list ends with the room for it."""
        problem, given = small(2**40, capacity=1)
        given["index"], given["outlier"] = given["index"][:1], given["outlier"][:, :1].copy()
        assert run(problem, given).tolist() == [[82 / 4], [26 / 4]]

    def test_columns_that_the_weight_does_not_have(self) -> None:
        """Their codes are 0, and no memory beside the weight is read."""
        for column in (-1, 2, 2**31 - 1, -(2**31)):
            problem, given = small(2)
            given["index"] = np.array([column, 1, -1], np.int32)
            assert run(problem, given)[0].tolist() == [(2 - 3) / 4]

    def test_columns_one_after_another(self) -> None:
        """A large value first swallows the small sum, and last it does not."""
        problem, given = small(2, outlier_dtype="float32")
        given["weight"] = np.array([[1, 1]], np.int8)
        given["outlier"] = np.array([[2.0**30, -(2.0**30), 0]] * 2, F32)
        assert run(problem, given).tolist() == [[0], [0]]
        given["outlier"] = np.array([[1, 2.0**30, 0]] * 2, F32)
        assert run(problem, given)[0].tolist() == [2.0**28]

    def test_one_rounding_for_a_product_and_a_sum(self) -> None:
        """A product of 2^24 + 2^12 + 1 loses its last bit, and a fused one keeps it."""
        problem, given = small(1, outlier_dtype="float32")
        value = F32(1 + 2.0**-20)
        given["weight"] = np.array([[127, 0]], np.int8)
        given["input"] = np.array([[-127, 0], [0, 0]], np.int8)
        given["input_scale"], given["weight_scale"] = np.ones(2, F32), np.ones(1, F32)
        given["input"] = np.array([[-1, 0], [0, 0]], np.int8)
        given["outlier"] = np.array([[value, 0, 0], [0, 0, 0]], F32)
        assert run(problem, given)[0].tolist() == [127 * 2.0**-20]
        value = F32(1 + 2.0**-23)
        given["outlier"] = np.array([[value, 0, 0], [0, 0, 0]], F32)
        fused = float(127 * float(value) - 127)
        assert run(problem, given)[0].tolist() == [fused]
        assert float(F32(127) * value - F32(127)) != fused

    def test_an_overflowing_sum_of_a_listed_column_stays_there(self) -> None:
        """A row with an infinity or a NaN does not touch the others."""
        problem, given = small(2)
        given["input_scale"] = np.array([NAN, 2], F32)
        got = run(problem, given)
        assert bits(got[0]).tolist() == [0x7FC00000]
        assert got[1].tolist() == [(36 - 10 - 300) / 4]


@pytest.mark.parametrize("capacity", [0, 5])
@pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
def test_without_listed_columns_it_is_linear_w8a8(output_dtype: str, capacity: int) -> None:
    """The same bits, with everything that both have."""
    for seed in range(4):
        problem = Problem(
            (6, 50),
            (11, 50),
            output_dtype,
            bias_dtype="float32",
            residual_dtype="bfloat16" if seed % 2 else None,
            capacity=capacity,
        )
        given = Case(problem, "normal", seed).inputs()
        given["count"][:] = 0
        ours = run(problem, given)
        shared = {
            "input_shape": problem.input_shape,
            "weight_shape": problem.weight_shape,
            "output_dtype": output_dtype,
            "bias_dtype": problem.bias_dtype,
            "residual_dtype": problem.residual_dtype,
        }
        bench = Bench(Host(), planq.LinearW8A8Descriptor(**shared))
        names = set(given) - {"index", "count", "outlier"}
        bench.load({name: given[name] for name in names})
        bench.run()
        assert bench.outputs()["output"].tobytes() == ours.tobytes()


@pytest.mark.parametrize("capacity", [1, 40])
def test_the_whole_chain(capacity: int) -> None:
    """Nearer to the exact product than codes alone, and nearest where all outliers have room."""
    rows, terms, columns = 24, 256, 32
    x = planted(QuantizeProblem((rows, terms), "float32"), 5)
    random = np.random.default_rng(1)
    weight = random.integers(-127, 128, (columns, terms)).astype(np.int8)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)

    def error(threshold: float, room: int) -> float:
        """The largest error of the chain."""
        quantized = QUANTIZE.run(QuantizeProblem(x.shape, "float32", threshold, room), input=x)
        problem = Problem(x.shape, weight.shape, "float64", capacity=room, outlier_dtype="float32")
        given = {
            "input": quantized["output"],
            "weight": weight,
            "input_scale": quantized["scale"].astype(np.float64),
            "weight_scale": np.ones(columns),
            "index": quantized["index"],
            "count": quantized["count"],
            "outlier": quantized["outlier"],
        }
        return float(np.abs(run(problem, given) - exact).max())

    found = QUANTIZE.run(QuantizeProblem(x.shape, "float32", 6.0, 40), input=x)["count"][0]
    assert 1 < found < 40
    if capacity > found:
        assert error(6.0, capacity) < error(0.0, capacity) / 4
    else:
        assert error(6.0, capacity) > error(6.0, 40)


class TestRefusals:
    """What a descriptor may not be."""

    @pytest.mark.parametrize(
        ("field", "changes", "text"),
        [
            ("input_mode", {"input_mode": "asymmetric"}, "Mode.SYMMETRIC"),
            ("weight_mode", {"weight_mode": "asymmetric"}, "Mode.SYMMETRIC"),
            ("convention", {"convention": "bitsandbytes"}, "got bitsandbytes"),
            ("convention", {"convention": "baracuda"}, "got baracuda"),
            ("convention", {"convention": "ggml"}, "got ggml"),
            ("input_dtype", {"input_dtype": "uint8"}, "got uint8"),
            ("weight_dtype", {"weight_dtype": "uint4"}, "got uint4"),
            ("outlier_dtype", {"outlier_dtype": "float64"}, "got float64"),
            ("accumulation", {"accumulation": "lanes"}, "sequential or tensor_sm90, got lanes"),
            ("accumulation", {**CHAIN, "outlier_dtype": "float32"}, "got float32"),
            ("accumulation", {**CHAIN, "output_dtype": "float64"}, "adds up in float32"),
            ("capacity", {"capacity": -1}, "got -1"),
            ("weight_shape", {"weight_shape": (3, 9)}, "k = 8"),
        ],
    )
    def test_descriptors_that_say_nothing_sensible(
        self, field: str, changes: dict[str, Any], text: str
    ) -> None:
        """The field and the fault are named."""
        fields = {
            "input_shape": (4, 8),
            "weight_shape": (3, 8),
            "output_dtype": "float16",
            "capacity": 4,
            "outlier_dtype": "float16",
            **changes,
        }
        with pytest.raises(planq.DescriptorError) as caught:
            planq.LinearLlmInt8Descriptor(**fields)
        assert caught.value.field == field
        assert text in str(caught.value)

    def test_operands(self) -> None:
        """Of the outliers, and none for zero points."""
        specs = TESTS.descriptor(Problem((2, 3, 5), (7, 5), capacity=4)).operands()
        assert specs["outlier"].shape == (2, 3, 4)
        assert specs["index"].shape == (4,)
        assert specs["count"].shape == (1,)
        assert "input_zero_point" not in specs
        assert "weight_sum" not in specs
