"""`estimate_quantiles` on the host: exactness, its edges, other libraries, and what it refuses."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import planq
from planq.audit.memory import Host, Layout, Workspace
from planq.audit.ops.statistics.estimate_quantiles.adapter import check_problem, descriptor, measure
from planq.audit.ops.statistics.estimate_quantiles.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, FLOATS, INPUT_DTYPES, STORAGE, bits
from support.alike import EXHAUSTIVE

F32 = np.float32
INF, NAN = float("inf"), float("nan")
KINDS = ("mixed", "finite", "nonfinite", "all_nonfinite", "zeros", "subnormal", "huge", "constant")
every_dtype = pytest.mark.parametrize("input_dtype", INPUT_DTYPES)


@every_dtype
def test_the_whole_table(input_dtype: str) -> None:
    """Every number of quantiles that changes a digit x tail x NonFinite x kind of input."""
    choices = itertools.product(
        (2, 3, 4, 5, 16, 17, 64, 65, 128, 129, 256),
        (None, 0, 0.25),
        ("propagate", "saturate"),
        KINDS,
    )
    for seed, (quantiles, tail, nonfinite, kind) in enumerate(choices):
        problem = Problem((1111,), input_dtype, quantiles, tail, nonfinite)
        check_problem(problem, inputs.make(kind, (1111,), input_dtype, seed))


@every_dtype
@pytest.mark.parametrize("count", [1, 2, 3, 15, 127, 254, 255, 256, 257, 511, 4095, 4097, 8191])
def test_every_count_of_elements(count: int, input_dtype: str) -> None:
    """Fewer elements than quantiles, two quantiles of one element, and counts of no round number.

    Nothing is dropped behind the last whole chunk, and no output is left as it was.
    """
    for quantiles, tail in ((256, None), (256, 0), (100, None), (2, 0)):
        problem = Problem((count,), input_dtype, quantiles, tail)
        check_problem(problem, inputs.make("normal", (count,), input_dtype, count))


@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16"])
def test_every_value_of_sixteen_bits(input_dtype: str) -> None:
    """All 65,536 patterns, NaN left out: the order of keys is that of values."""
    x = np.arange(2**16, dtype=np.uint16).view(STORAGE[input_dtype])
    counted = int((~np.isnan(x.astype(F32))).sum())
    for first in range(0, counted, 256):
        tail = first / (2 * (counted - 1))
        check_problem(Problem(x.shape, input_dtype, tail=tail, nonfinite="saturate"), x)


@pytest.mark.parametrize("threads", [1, 2, 5])
@every_dtype
def test_every_element_counts(input_dtype: str, threads: int) -> None:
    """One element is the smallest, and one the largest, wherever they are; on any threads."""
    count = 2**19 + 3
    problem = Problem((count,), input_dtype, 2, 0)
    for place in (0, 1, 7, 2**18 - 1, 2**18, count - 1):
        x = np.zeros(count, FLOATS[input_dtype].dtype)
        x[place] = -3
        x[place - 1] = 5
        assert measure(problem, x, Host(threads)).tolist() == [-3, 5]


@pytest.mark.parametrize("rank", range(1, 9))
def test_every_rank(rank: int) -> None:
    """In strided memory too."""
    shape = (2, 3, 1, 4, 2, 3, 2, 5)[-rank:]
    for pitch in (0, 3):
        x = inputs.make("finite", shape, "bfloat16", rank)
        check_problem(Problem(shape, "bfloat16"), x, Host(3), Layout(offset=1, pitch=pitch))


def test_large_float16_tensors_do_not_underflow() -> None:
    """Values are never scaled: the smallest subnormals of 2^22 elements come back as they were."""
    count = 2**22
    tiny = np.arange(1, count + 1, dtype=np.uint32) % 16
    x = tiny.astype(np.uint16).view(np.float16)
    found = measure(Problem((count,), "float16", 16, 0), x)
    assert np.array_equal(found, np.arange(16, dtype=F32) * F32(2.0**-24))


def test_two_quantiles_of_one_element_have_both_its_value() -> None:
    """255 and 256 elements have fewer places than there are quantiles, or as many."""
    for count in (255, 256, 300):
        x = np.random.default_rng(count).permutation(count).astype(F32)
        found = measure(Problem((count,)), x)
        assert np.isin(found, x).all()
        assert (np.diff(found) >= 0).all()
        assert len(set(found.tolist())) == min(count, 256)


def test_equal_elements() -> None:
    """All quantiles are that element, of one bucket to the last digit."""
    for value in (1.0, -2.5, INF, 1e-42):
        x = np.full(300001, value, F32)
        assert (measure(Problem(x.shape), x) == F32(value)).all()


def test_the_tail() -> None:
    """None is half of an equal share, and 0 gives both ends."""
    x = np.arange(1001, dtype=F32)[::-1].copy()
    assert measure(Problem((1001,), quantiles=5, tail=0), x).tolist() == [0, 250, 500, 750, 1000]
    assert measure(Problem((1001,), quantiles=5), x).tolist() == [100, 300, 500, 700, 900]
    assert measure(Problem((1001,), quantiles=2, tail=0.4), x).tolist() == [400, 600]


def test_positions_are_rounded_halves_up() -> None:
    """A half to the higher element; else as fractions without rounding say."""
    assert measure(Problem((2,), quantiles=3, tail=0), np.array([7, 9], F32)).tolist() == [7, 9, 9]
    for count in (2, 3, 10, 129, 1025, 4097):
        x = np.random.default_rng(count).permutation(count).astype(F32)
        exact = [Fraction(j, 127) * (count - 1) + Fraction(1, 2) for j in range(128)]
        found = measure(Problem((count,), quantiles=128, tail=0), x)
        assert found.tolist() == [int(place) for place in exact]


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def quantiles(self, *values: float, nonfinite: str = "propagate") -> list[float]:
        """One for each of the values, from end to end: the sorted values."""
        problem = Problem((len(values),), "float32", len(values), 0, nonfinite)
        found: list[float] = measure(problem, np.array(values, F32)).tolist()
        return found

    def test_infinities_are_numbers(self) -> None:
        """Under both policies."""
        for nonfinite in ("propagate", "saturate"):
            found = self.quantiles(1, -INF, 2, INF, nonfinite=nonfinite)
            assert found == [-INF, 1, 2, INF]

    def test_zeros_are_positive(self) -> None:
        """Whatever sign they had."""
        found = measure(Problem((3,), quantiles=3, tail=0), np.array([-0.0, 0.0, -0.0], F32))
        assert (bits(found) == 0).all()

    def test_saturate_leaves_nan_out(self) -> None:
        """Ranks are those among the others."""
        assert self.quantiles(NAN, 3, -NAN, 1, nonfinite="saturate") == [1, 1, 3, 3]
        assert self.quantiles(NAN, 7, NAN, nonfinite="saturate") == [7, 7, 7]

    @every_dtype
    def test_nan_everywhere(self, input_dtype: str) -> None:
        """One NaN is enough under PROPAGATE; under SATURATE nothing else may be left."""
        one = np.array([1, 2, -NAN, INF]).astype(FLOATS[input_dtype].dtype)
        for x, nonfinite in (
            (one, "propagate"),
            (np.full_like(one, NAN), "saturate"),
            (one[:0], "propagate"),
        ):
            found = measure(Problem(x.shape, input_dtype, 7, None, nonfinite), x)
            assert (bits(found) == CANONICAL_NAN[found.dtype.name]).all()


@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.data())
def test_properties(data: st.DataObject) -> None:
    """Any small tensor: the reference's bits, in any order of the elements, in any layout."""
    dtype = data.draw(st.sampled_from(INPUT_DTYPES))
    storage = FLOATS[dtype].dtype
    raw = data.draw(hnp.arrays(f"u{storage.itemsize}", hnp.array_shapes(max_side=9)))
    x = raw.view(storage)
    problem = Problem(
        x.shape,
        dtype,
        data.draw(st.integers(2, 256)),
        data.draw(st.none() | st.floats(0, 0.5, exclude_max=True)),
        data.draw(st.sampled_from(["propagate", "saturate"])),
    )
    layout = Layout(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)))
    check_problem(problem, x, layout=layout)
    mixed = np.random.default_rng(0).permutation(x.ravel()).reshape(x.shape)
    assert measure(problem, mixed).tobytes() == measure(problem, x).tobytes()


# As often a row is read: more than 2^31 elements, and with PLANQ_EXHAUSTIVE=1 more than 2^32.
TIMES = 2**16 + 1 if EXHAUSTIVE else 2**15 + 1


def test_more_elements_than_an_int_counts() -> None:
    """One row, read again and again: nearly all elements are in one bucket of the first pass."""
    row = np.resize(np.arange(128, 132) / 64, 2**16).astype(ml_dtypes.bfloat16)
    row[:16] = 1
    shape = (TIMES, 2**16)
    last_one = (16 * shape[0] - 1) / (shape[0] * shape[1] - 1)
    plan = planq.Plan.select(planq.HOST, descriptor(Problem(shape, "bfloat16", 2, last_one)))
    x = (row.ctypes.data, shape, (0, 1), "bfloat16", "host")
    output = np.empty(2, F32)
    workspace = Workspace(Host(), plan.workspace_size())
    plan.run(planq.HOST, workspace.argument, planq.EstimateQuantilesArgs(input=x, output=output))
    assert output.tolist() == [1, 131 / 64]


class TestPeers:
    """The same from other libraries, as far as they agree among themselves."""

    @pytest.mark.parametrize("input_dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("count", [4097, 8191, 100_000])
    def test_numpy_and_torch_quantiles(self, count: int, input_dtype: str) -> None:
        """Exactly NumPy's nearest element where no position is between two; near torch's."""
        x = inputs.make("normal", (count,), input_dtype, 5)
        found = measure(Problem((count,), input_dtype), x)
        shares = np.linspace(1 / 512, 511 / 512, 256)
        near = np.quantile(x.astype(np.float64), shares, method="nearest")
        whole = np.abs(shares * (count - 1) % 1 - 0.5) > 1e-6
        assert np.array_equal(found[whole], near[whole].astype(found.dtype))

    def test_torch_quantile_of_bell_shaped_values(self) -> None:
        """Between two elements torch interpolates: never 0.05 apart."""
        x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(1))
        found = measure(Problem(x.shape), x.numpy())
        theirs = torch.quantile(x, torch.linspace(1 / 512, 511 / 512, 256)).numpy()
        assert np.abs(found - theirs).max() <= 0.05


class TestRefusals:
    """What a descriptor and a call may not be, with the sentence."""

    @pytest.mark.parametrize(
        ("field", "changes", "text"),
        [
            ("shape", {"shape": ()}, "expected 1 to 8 axes, got 0"),
            ("shape", {"shape": (4, -1)}, "axis 1 is negative: -1"),
            ("input_dtype", {"input_dtype": "int8"}, "float64, got int8"),
            ("quantiles", {"quantiles": 1}, "expected 2 to 256, got 1"),
            ("quantiles", {"quantiles": 257}, "expected 2 to 256, got 257"),
            ("quantiles", {"quantiles": 2.5}, "expected an integer, got 2.5"),
            ("quantiles", {"quantiles": None}, "expected an integer, got None"),
            ("tail", {"tail": 0.5}, "expected a value of at least 0 and below 0.5, got 0.5"),
            ("tail", {"tail": -0.125}, "expected a value of at least 0 and below 0.5, got -0.125"),
            ("tail", {"tail": NAN}, "expected a number, got nan"),
            ("tail", {"tail": INF}, "expected a value of at least 0 and below 0.5, got inf"),
            ("tail", {"tail": "1/2"}, "expected a number or None, got '1/2'"),
            ("nonfinite", {"nonfinite": "drop"}, "nonfinite"),
        ],
    )
    def test_descriptors_that_say_nothing_sensible(
        self, field: str, changes: dict[str, Any], text: str
    ) -> None:
        """The field and the fault are named."""
        fields = {"shape": (4, 8), "input_dtype": "float32", **changes}
        with pytest.raises(planq.DescriptorError) as caught:
            planq.EstimateQuantilesDescriptor(**fields)
        assert caught.value.field == field
        assert text in str(caught.value)

    def test_defaults_are_resolved(self) -> None:
        """So that descriptors which mean the same are equal."""
        make = planq.EstimateQuantilesDescriptor
        default = make(shape=(9,), input_dtype="float32")
        assert (default.quantiles, default.tail) == (256, 1 / 512)
        assert default == make(shape=(9,), input_dtype="float32", tail=1 / 512)
        assert make(shape=(9,), input_dtype="float32", quantiles=10).tail == 0.05
        ends = make(shape=(9,), input_dtype="float32", tail=-0.0)
        assert ends == make(shape=(9,), input_dtype="float32", tail=0)
        for desc in (default, ends):
            assert planq.Descriptor.from_json(desc.to_json()) == desc

    def test_operands(self) -> None:
        """The output is of the compute type, and one for each quantile."""
        specs = descriptor(Problem((4, 5), "bfloat16", 7)).operands()
        assert (specs["output"].dtype, specs["output"].shape) == (planq.DType.FLOAT32, (7,))
        wide = descriptor(Problem((4, 5), "float64", 7)).operands()
        assert wide["output"].dtype is planq.DType.FLOAT64

    def test_calls(self) -> None:
        """Operands of another shape or type are named, and so is a workspace that is missing."""
        plan = planq.Plan.select(planq.HOST, descriptor(Problem((4,), quantiles=3)))
        x, output = np.zeros(4, F32), np.zeros(3, F32)
        args = planq.EstimateQuantilesArgs
        assert plan.can_implement(args(input=x, output=output))
        assert plan.can_implement(args(input=x, output=output[:2])).operand == "output"
        assert plan.can_implement(args(input=x[:3], output=output)).operand == "input"
        with pytest.raises(planq.WorkspaceError) as caught:
            plan.run(planq.HOST, None, args(input=x, output=output))
        assert caught.value.needed == plan.workspace_size()


def test_the_workspace_is_the_same_for_every_shape() -> None:
    """Fixed, and small."""
    sizes = {
        planq.Plan.select(planq.HOST, descriptor(Problem(shape, dtype, quantiles))).workspace_size()
        for shape in ((0,), (5,), (2**20, 2**20))
        for dtype in INPUT_DTYPES
        for quantiles in (2, 256)
    }
    assert sizes == {2**17}
