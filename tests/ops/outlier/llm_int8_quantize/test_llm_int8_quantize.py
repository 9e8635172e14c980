"""`llm_int8_quantize` on the host: its edges, what the originals get wrong, other libraries."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.memory import Host, Layout
from planq.audit.ops.affine.dynamic_range_quantize.adapter import descriptor as dynamic_descriptor
from planq.audit.ops.outlier.llm_int8_quantize.adapter import TESTS, check_problem
from planq.audit.ops.outlier.llm_int8_quantize.cases import DTYPES, KINDS, Case, planted
from planq.audit.ops.outlier.llm_int8_quantize.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, bits
from support.bitsandbytes_host import bnb

F32 = np.float32
INF, NAN = float("inf"), float("nan")
every_dtype = pytest.mark.parametrize("input_dtype", DTYPES)


def run(rows: list[list[float]], **fields: Any) -> dict[str, Array]:
    """The outputs for these values."""
    dtype = fields.pop("input_dtype", "float32")
    x = np.array(rows, np.float64).astype(FLOATS[dtype].dtype)
    return TESTS.run(Problem(x.shape, dtype, **fields), input=x)


@every_dtype
def test_the_whole_table(input_dtype: str) -> None:
    """Every threshold x capacity x quotient x NonFinite x kind of input."""
    choices = itertools.product(
        (0.0, 6.0, 0.25),
        (0, 1, 5, 70),
        ("divide", "reciprocal", "ratio"),
        ("propagate", "saturate"),
        dict.fromkeys(KINDS),
    )
    for seed, (threshold, capacity, quotient, nonfinite, kind) in enumerate(choices):
        problem = Problem((5, 67), input_dtype, threshold, capacity, quotient, nonfinite)
        check_problem(problem, Case(problem, kind, seed).inputs()["input"])


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 511, 513, 8191, 8193])
@every_dtype
def test_every_tail_length(input_dtype: str, columns: int) -> None:
    """Words of columns, vectors and pieces leave tails."""
    for threads in (1, 3):
        problem = Problem((6, columns), input_dtype, capacity=columns // 2)
        check_problem(problem, planted(problem, columns, 3), Host(threads))


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank(rank: int) -> None:
    """In strided memory too."""
    shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
    for pitch in (0, 3):
        problem = Problem(shape, "bfloat16", 1.5, 3)
        check_problem(problem, planted(problem, rank, 2), Host(3), Layout(offset=1, pitch=pitch))


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_a_column_with_an_outlier_leaves_the_codes(self) -> None:
        """In every row, and its values are kept, large or not."""
        got = run([[1, 8, 0.5, -2], [4, 1, 2, -1], [0, -1, 127 / 64, 0]], capacity=2)
        assert got["count"].tolist() == [1]
        assert got["index"].tolist() == [1, -1]
        assert got["outlier"].tolist() == [[8, 0], [1, 0], [-1, 0]]
        assert got["scale"].tolist() == [F32(2) / F32(127), F32(4) / F32(127), F32(1) / F32(64)]
        assert got["output"].tolist() == [[64, 0, 32, -127], [127, 0, 64, -32], [0, 0, 127, 0]]

    def test_inliers_of_outlier_columns_bear_on_their_rows_scale(self) -> None:
        """The second row's largest element is no outlier, but it is in an outlier column."""
        got = run([[9, 1], [3, 1]], capacity=1)
        assert got["scale"].tolist() == [F32(1) / F32(127), F32(3) / F32(127)]
        assert got["output"].tolist() == [[0, 127], [0, 42]]

    def test_beyond_the_capacity_codes_clamp(self) -> None:
        """The count is the true number, and the first columns are those listed."""
        got = run([[7, 1, -8, 9, 1]], capacity=1)
        assert got["count"].tolist() == [3]
        assert got["index"].tolist() == [0]
        assert got["output"].tolist() == [[0, 127, -127, 127, 127]]
        assert got["outlier"].tolist() == [[7]]

    def test_no_capacity(self) -> None:
        """Nothing is listed, and everything counted."""
        got = run([[7, 1, -8]], capacity=0)
        assert got["count"].tolist() == [2]
        assert got["index"].shape == (0,)
        assert got["outlier"].shape == (1, 0)
        assert got["output"].tolist() == [[127, 127, -127]]

    def test_the_threshold_itself_is_an_outlier(self) -> None:
        """Compared as real numbers: 0.7 is no float32."""
        below, above = np.nextafter(F32(0.7), F32(0)), F32(0.7)
        assert float(below) < 0.7 < float(F32(0.70000005))
        got = run([[float(below), float(above), 0.1]], capacity=3, threshold=0.7)
        outliers = [i for i, x in enumerate((below, above, F32(0.1))) if float(x) >= 0.7]
        assert got["index"].tolist() == (outliers + [-1] * 3)[:3]
        assert run([[6, -6, 5.996]], capacity=3)["index"].tolist() == [0, 1, -1]

    def test_a_threshold_of_zero_finds_none(self) -> None:
        """Not every element."""
        got = run([[7, 100, -8]], capacity=2, threshold=0.0)
        assert got["count"].tolist() == [0]
        assert got["index"].tolist() == [-1, -1]
        assert got["outlier"].tolist() == [[0, 0]]
        assert got["output"].tolist() == [[9, 127, -10]]

    def test_a_row_of_outliers_alone(self) -> None:
        """Its scale is 1: it has no inlier."""
        got = run([[7, 100], [1, 2]], capacity=4)
        assert got["scale"].tolist() == [1, F32(2) / F32(127)]
        assert got["output"].tolist() == [[0, 0], [0, 0]]

    def test_propagate(self) -> None:
        """The row is given up, its finite outliers count, and other rows are not touched."""
        for bad in (NAN, INF, -INF):
            got = run([[1, bad, 9, 2], [1, 2, 3, 4]], capacity=3)
            assert np.isnan(got["scale"]).tolist() == [True, False]
            assert got["index"].tolist() == [2, -1, -1]
            assert got["output"].tolist() == [[0, 0, 0, 0], [32, 64, 0, 127]]
            assert got["outlier"].tolist() == [[0, 0, 0], [3, 0, 0]]

    def test_saturate(self) -> None:
        """Infinities are the largest numbers, NaN is 0, and neither makes an outlier column."""
        rows = [[1, INF, NAN, -INF, 2], [0, 9, 9, 9, 1]]
        got = run(rows, capacity=3, nonfinite="saturate", input_dtype="float16")
        assert got["index"].tolist() == [1, 2, 3]
        assert got["outlier"].tolist() == [[65504, 0, -65504], [9, 9, 9]]
        assert got["output"].tolist() == [[64, 0, 0, 0, 127], [0, 0, 0, 0, 127]]
        got = run(rows[:1], capacity=3, nonfinite="saturate")
        assert got["count"].tolist() == [0]
        assert got["output"].tolist() == [[64, 127, 0, -127, 127]]

    def test_kept_values_are_copied(self) -> None:
        """With the sign of a zero."""
        got = run([[9, 1], [-0.0, 1]], capacity=1, input_dtype="bfloat16")
        assert bits(got["outlier"]).ravel().tolist() == [0x4110, 0x8000]


class TestPlantedDefects:
    """What the originals leave out or get wrong."""

    @every_dtype
    def test_statistics_are_written(self, input_dtype: str) -> None:
        """All of them, of every row, whatever the outputs held: also where nothing is found."""
        for threshold, shape in itertools.product((0.0, 6.0), ((300, 40), (1, 40), (4, 0))):
            problem = Problem(shape, input_dtype, threshold, 50)
            check_problem(problem, np.zeros(shape, FLOATS[input_dtype].dtype))

    def test_no_row_is_special(self) -> None:
        """One row is a matrix like any other: its outlier columns leave the codes too."""
        one = run([[9, 1, 2]], capacity=1)
        two = run([[9, 1, 2], [9, 1, 2]], capacity=1)
        assert one["output"].tolist() == two["output"].tolist()[:1] == [[0, 64, 127]]

    def test_rows_are_not_batch_invariant(self) -> None:
        """And the guarantee says so, so that a preference for it finds no kernel."""
        alone = run([[1, 2]], capacity=1)["output"].tolist()
        beside = run([[1, 2], [9, 1]], capacity=1)["output"].tolist()
        assert alone == [[64, 127]]
        assert beside[0] == [0, 127]
        desc = TESTS.descriptor(Problem((2, 2)))
        promise = planq.Plan.select(planq.HOST, desc).precision_guarantee()
        assert not promise.batch_invariant
        assert "every row" in promise.basis
        with pytest.raises(planq.NoKernelError, match="takes its column's codes out of every row"):
            planq.Plan.select(planq.HOST, desc, planq.PlanPreference(batch_invariant=True))

    def test_an_overflowing_column_index_is_refused(self) -> None:
        """Where int32 numbers no more columns."""
        with pytest.raises(planq.DescriptorError) as caught:
            TESTS.descriptor(Problem((2, 2**31)))
        assert caught.value.field == "shape"

    def test_three_dimensional_inputs(self) -> None:
        """Rows are all axes but the last."""
        x = planted(Problem((3, 4, 40), "float16"), 7)
        flat = TESTS.run(Problem((12, 40), "float16"), input=x.reshape(12, 40))
        deep = TESTS.run(Problem((3, 4, 40), "float16"), input=x)
        for name, values in flat.items():
            assert deep[name].tobytes() == values.tobytes()


def test_without_outliers_it_is_dynamic_range_quantize() -> None:
    """The same codes and scales, by every quotient."""
    from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem as DynamicProblem
    from planq.audit.runner import Bench

    for quotient, dtype in itertools.product(("divide", "reciprocal", "ratio"), DTYPES):
        problem = Problem((9, 200), dtype, 0.0, 4, quotient)
        x = inputs.make("mixed", problem.shape, dtype, 11)
        ours = TESTS.run(problem, input=x)
        bench = Bench(
            Host(),
            dynamic_descriptor(DynamicProblem(problem.shape, dtype, quotient=quotient)),
        )
        bench.load({"input": x})
        bench.run()
        theirs = bench.outputs()
        for name in ("output", "scale"):
            assert ours[name].tobytes() == theirs[name].tobytes()


def test_against_bitsandbytes() -> None:
    """Its codes, with its columns zeroed, and its columns: RATIO where 127 / M is the quotient."""
    random = np.random.default_rng(2)
    x = random.standard_normal((40, 300)).astype(np.float16)
    x[:, ::50] *= np.float16(9)
    codes, absmax, columns = bnb.int8_vectorwise_quant(torch.from_numpy(x), threshold=6.0)
    problem = Problem(x.shape, "float16", 6.0, 300, "ratio")
    ours = TESTS.run(problem, input=x)
    count = int(ours["count"][0])
    assert ours["index"][:count].tolist() == columns.tolist()
    near = np.abs(ours["scale"] * 127 / absmax.numpy() - 1)
    assert near.max() < 2.0**-22
    apart = ours["output"].astype(np.int32) - codes.numpy()
    apart[:, columns.numpy()] = 0
    assert (apart != 0).mean() < 1e-3
    assert np.abs(apart).max() <= 1


class TestRefusals:
    """What a descriptor may not be, with the sentence."""

    @pytest.mark.parametrize(
        ("field", "changes", "text"),
        [
            ("shape", {"shape": ()}, "expected 1 to 8 axes, got 0"),
            ("input_dtype", {"input_dtype": "float64"}, "got float64"),
            ("input_dtype", {"input_dtype": "int8"}, "got int8"),
            ("threshold", {"threshold": -1.0}, "at least 0, got -1"),
            ("threshold", {"threshold": INF}, "expected a finite number of at least 0, got inf"),
            ("threshold", {"threshold": NAN}, "threshold"),
            ("capacity", {"capacity": -1}, "got -1"),
            ("capacity", {"capacity": 2**31}, "got 2147483648"),
            ("quotient", {"quotient": "floor"}, "quotient"),
        ],
    )
    def test_descriptors_that_say_nothing_sensible(
        self, field: str, changes: dict[str, Any], text: str
    ) -> None:
        """The field and the fault are named."""
        fields = {"shape": (4, 8), "input_dtype": "float32", "capacity": 4, **changes}
        with pytest.raises(planq.DescriptorError) as caught:
            planq.LlmInt8QuantizeDescriptor(**fields)
        assert caught.value.field == field
        assert text in str(caught.value)

    def test_operands(self) -> None:
        """Rows of the input, columns of the capacity."""
        specs = TESTS.descriptor(Problem((2, 3, 5), "bfloat16", capacity=7)).operands()
        shapes = {name: spec.shape for name, spec in specs.items()}
        assert shapes == {
            "input": (2, 3, 5),
            "output": (2, 3, 5),
            "scale": (2, 3),
            "index": (7,),
            "count": (1,),
            "outlier": (2, 3, 7),
        }
        assert specs["count"].dtype is planq.DType.INT64
        assert specs["index"].dtype is planq.DType.INT32
