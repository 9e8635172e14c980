"""`fake_quantize` by DeepSpeed's convention on the host: its formulas, defects and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import descriptor_of
from planq.audit.memory import Host
from planq.audit.ops.affine.fake_quantize.adapter import TESTS
from planq.audit.ops.affine.fake_quantize.deepspeed import FORMS, Case, DeepSpeedProblem, tiny_cases
from planq.audit.ops.group.cases import ELEMENTS
from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, STORAGE, Array, Arrays, bits
from planq.audit.reference.philox import uniform
from planq.audit.runner import Bench

F32 = np.float32


def draws(rounding: str, seed: int, offset: int) -> Arrays:
    """The operands of a draw."""
    if rounding != "stochastic":
        return {}
    return {"seed": np.array(seed, np.int64), "offset": np.array(offset, np.int64)}


def problem_of(x: Array, size: int, **fields: Any) -> DeepSpeedProblem:
    """The problem of a tensor."""
    return DeepSpeedProblem(shape=x.shape, input_dtype=x.dtype.name, group_size=size, **fields)


def faked(x: Array, size: int, seed: int = 1, offset: int = 0, **fields: Any) -> Array:
    """What is left of a tensor."""
    problem = problem_of(x, size, **fields)
    return TESTS.run(problem, input=x, **draws(problem.rounding, seed, offset))["output"]


class TestFormulas:
    """Numbers worked out by hand; with an eps of 0 steps are powers of two."""

    def test_symmetric(self) -> None:
        """128 steps to 1: the largest positive element loses one, ties go to even."""
        x = np.array([1, -1, 0.5, 0.25, 2.5 / 128, 3.5 / 128, -0.001, 0.999], F32)
        wanted = np.array([127, -128, 64, 32, 2, 4, 0, 127]) / 128
        assert bits(faked(x, 8, eps=0.0)).tolist() == bits(wanted.astype(F32)).tolist()
        wanted = np.array([7, -8, 4, 2, 0, 0, 0, 7]) / 8
        assert bits(faked(x, 8, eps=0.0, bits=4)).tolist() == bits(wanted.astype(F32)).tolist()

    def test_asymmetric(self) -> None:
        """16 levels from the minimum in steps of 1; ties go up, the maximum to the last level."""
        x = np.array([-8, 8, 0.5, 1.5, -0.5, 0.49, 7.5, -7.75], F32)
        got = faked(x, 8, eps=0.0, bits=4, mode="asymmetric")
        assert got.tolist() == [-8, 7, 1, 2, 0, 0, 7, -8]

    @pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
    def test_draws(self, mode: str) -> None:
        """A code below moves on where its random number is below the share that was cut off."""
        u = uniform(5, 3, (4096,))
        x = np.full(4096, -0.3 if mode == "symmetric" else 0.3, F32)
        x[:2] = -8, 8
        got = faked(x, 4096, 5, 3, mode=mode, rounding="stochastic", bits=4, eps=0.0)
        share = 0.3 if mode == "symmetric" else float(F32(8) + F32(0.3)) - 8
        far = -1.0 if mode == "symmetric" else 1.0
        assert got[2:].tolist() == np.where(u < share, far, 0.0)[2:].tolist()
        assert got[:2].tolist() == [-8, 7]

    @pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
    def test_the_mean_of_draws_is_the_value(self, mode: str) -> None:
        """Within four standard errors of a million draws."""
        x = np.full(1_000_000, 0.3, F32)
        x[:2] = -8, 8
        got = faked(x, x.size, mode=mode, rounding="stochastic", bits=4, eps=0.0)[2:]
        error = np.sqrt(0.3 * 0.7 / got.size)
        assert abs(got.astype(np.float64).mean() - 0.3) < 4 * error

    def test_eps_is_added_to_the_width(self) -> None:
        """16 / (2 * 7.5 + 1) = 1; 16 levels of (7.5 + 7.5 + 1) / 16."""
        x = np.array([7.5, -7.5, 2.5, -3.5], F32)
        assert faked(x, 4, bits=4, eps=1.0).tolist() == [7, -8, 2, -4]
        got = faked(x, 4, bits=4, eps=1.0, mode="asymmetric")
        assert got.tolist() == [7.5, -7.5, 2.5, -3.5]

    def test_defaults(self) -> None:
        """8 bits and an eps of 1e-5; what follows from them is filled in."""
        fields = {"shape": (8,), "input_dtype": "float32", "convention": "deepspeed"}
        desc = planq.FakeQuantizeDescriptor(**fields, group_size=4)
        assert (desc.bits, desc.eps, desc.q_min, desc.q_max) == (8, 1e-5, -128, 127)
        assert desc.dynamic
        assert desc.rounding == planq.Rounding.NEAREST_EVEN
        desc = planq.FakeQuantizeDescriptor(**fields, group_size=4, mode="asymmetric", bits=3)
        assert (desc.q_min, desc.q_max) == (0, 7)
        assert desc.rounding == planq.Rounding.NEAREST_AWAY
        assert list(desc.operands()) == ["input", "output"]
        assert planq.Descriptor.from_json(desc.to_json()) == desc


class TestDefects:
    """What the originals do wrong, one test each, in the order in which they are listed."""

    def test_stochastic_asymmetric_codes_are_asymmetric(self) -> None:
        """(1) The symmetric kernel was launched: all values were multiples of M / 8."""
        x = np.linspace(100, 101, 256, dtype=F32)
        got = faked(x, 256, mode="asymmetric", rounding="stochastic", bits=4)
        assert len(np.unique(got)) == 16
        assert np.abs(got - x).max() < 1 / 16 + 1e-4  # a step, and how float32 rounds 100

    @pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
    def test_float32_values_are_no_integers(self, rounding: str) -> None:
        """(2) Values in (-0.5, 0.5) became 0."""
        x = inputs.make("normal", (512,), "float32", 3) / 16
        got = faked(x, 512, rounding=rounding)
        assert np.abs(got - x).max() <= np.abs(x).max() / 128 * 1.01  # a step, and eps
        assert (got != np.rint(got)).any()

    @pytest.mark.parametrize("size", [8, 64, 1000])
    @pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
    def test_calls_of_small_groups_draw_anew(self, mode: str, size: int) -> None:
        """(3) The offset did not move for groups of fewer than 1024 elements."""
        x = inputs.make("normal", (4 * size,), "float32", 4)
        fields = {"mode": mode, "rounding": "stochastic", "bits": 3}
        first = faked(x, size, offset=0, **fields)
        assert np.array_equal(first, faked(x, size, offset=0, **fields))
        assert (first != faked(x, size, offset=x.size // 4, **fields)).mean() > 0.1

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("size", [524_292, 1_048_580])
    def test_groups_of_any_length(self, size: int, mode: str, rounding: str) -> None:
        """(4), (6) Beyond 524288 draws overflowed an array; beyond 2^20 nothing was done."""
        x = inputs.make("normal", (size + 5,), "float16", size)
        problem = problem_of(x, size, mode=mode, rounding=rounding)
        given = {"input": x, **draws(rounding, 3, 4)}
        for threads in (1, 3):
            TESTS.check(problem, Host(threads), **given)
        assert not np.array_equal(problem.expected(given)["output"], x)

    @pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_ranges_beyond_ten_thousand(self, sign: int, rounding: str) -> None:
        """(5) Extremes began at 10000 and -10000."""
        x = (sign * np.linspace(20000, 20255, 256)).astype(F32)
        got = faked(x, 256, mode="asymmetric", rounding=rounding)
        assert np.abs(got - x).max() <= 1.0

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("dtype", ELEMENTS)
    @pytest.mark.parametrize("size", [1, 3, 5, 13, 1027])
    def test_groups_of_no_whole_vectors(
        self, size: int, dtype: str, mode: str, rounding: str
    ) -> None:
        """(7) Tails were left, or read beyond; guards lie around the operands here."""
        x = inputs.make("normal", (3 * size + size // 2,), dtype, size)
        problem = problem_of(x, size, mode=mode, rounding=rounding)
        TESTS.check(problem, input=x, **draws(rounding, 3, 4))

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_narrow_elements_are_quantized(self, dtype: str, mode: str, rounding: str) -> None:
        """(8) The float16 kernels were empty for some architectures; there was no bfloat16."""
        x = inputs.make("normal", (256,), dtype, 8)
        got = faked(x, 256, mode=mode, rounding=rounding, bits=2)
        assert got.dtype == x.dtype
        assert len(np.unique(got.astype(F32))) <= 4

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("dtype", ELEMENTS)
    @pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
    def test_a_bad_element_makes_its_group_nan(
        self, value: float, dtype: str, mode: str, rounding: str
    ) -> None:
        """(9) A NaN became 0 and was not in the range; others keep their bits."""
        x = inputs.make("normal", (96,), dtype, 5)
        bad = x.copy()
        bad[40] = value
        clean, got = (faked(each, 32, mode=mode, rounding=rounding) for each in (x, bad))
        assert (bits(got)[32:64] == CANONICAL_NAN[dtype]).all()
        outside = np.r_[0:32, 64:96]
        assert np.array_equal(bits(got)[outside], bits(clean)[outside])

    @pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
    def test_eps_may_be_less(self, mode: str) -> None:
        """(10) Groups below 5e-6 collapsed."""
        x = np.linspace(-1e-8, 1e-8, 64, dtype=F32)
        assert len(np.unique(faked(x, 64, mode=mode))) <= 2
        got = faked(x, 64, mode=mode, eps=0.0)
        assert np.abs(got - x).max() <= 2e-8 / 256 * 1.01  # a step, which the largest loses

    def test_asymmetric_codes_are_clamped(self) -> None:
        """The maximum took a code beyond the last one: 2^b + 1 levels."""
        x = np.linspace(0, 1000, 4001, dtype=F32)
        for rounding in ("nearest_even", "stochastic"):
            got = faked(x, x.size, mode="asymmetric", rounding=rounding, bits=4, eps=0.0)
            assert np.unique(got).tolist() == (np.arange(16) * 62.5).tolist()


class TestEdges:
    """Where formulas divide by 0 or overflow."""

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("eps", [0.0, None])
    @pytest.mark.parametrize("dtype", ELEMENTS)
    def test_zeros_stay(self, dtype: str, eps: float | None, mode: str, rounding: str) -> None:
        """And have no sign."""
        x = np.array([0.0, -0.0, 0.0, -0.0]).astype(STORAGE[dtype])
        assert not bits(faked(x, 2, mode=mode, rounding=rounding, eps=eps)).any()

    @pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
    @pytest.mark.parametrize("eps", [0.0, None])
    def test_a_constant_group_is_exact(self, eps: float | None, rounding: str) -> None:
        """Asymmetric: its minimum is a level."""
        for value in (3.0, -5.5, 1e-45, 3e38):
            x = np.full(20, value, F32)
            assert np.array_equal(faked(x, 10, mode="asymmetric", rounding=rounding, eps=eps), x)

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    @pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
    def test_the_widest_groups_stay_finite(self, dtype: str, mode: str, rounding: str) -> None:
        """2 M and hi - lo overflow; a step is a 256th of the width."""
        top = float(np.finfo(F32).max) if dtype == "float32" else (2 - 2.0**-7) * 2.0**127
        x = (np.linspace(-1, 1, 513) * top).astype(STORAGE[dtype])
        got = faked(x, x.size, mode=mode, rounding=rounding).astype(np.float64)
        assert np.isfinite(got).all()
        assert np.abs(got - x.astype(np.float64)).max() <= top / 127

    @pytest.mark.parametrize(("mode", "rounding"), FORMS)
    def test_output_may_be_the_input(self, mode: str, rounding: str) -> None:
        """As it is in DeepSpeed: short groups, and long ones that threads share."""
        for size in (7, 64, 40000):
            x = inputs.make("normal", (100_000,), "float32", size)
            problem = problem_of(x, size, mode=mode, rounding=rounding)
            given = {"input": x, **draws(rounding, 3, 4)}
            wanted = problem.expected(given)["output"]
            plan = planq.Plan.select(planq.host_stream(threads=3), TESTS.descriptor(problem))
            args = planq.FakeQuantizeArgs(input=x, output=x, **draws(rounding, 3, 4))
            plan.run(planq.host_stream(threads=3), None, args)
            assert np.array_equal(bits(x), bits(wanted)), size

    def test_strides_do_not_matter(self) -> None:
        """Rows backwards, with others in between, in place."""
        whole = inputs.make("normal", (90, 7, 40), "bfloat16", 4)
        before = whole.copy()
        x = whole[::-3, :, :33]
        problem = problem_of(x, 50, mode="asymmetric")
        wanted = problem.expected({"input": np.ascontiguousarray(x)})["output"]
        args = planq.FakeQuantizeArgs(input=x, output=x)
        planq.Plan.select(planq.HOST, TESTS.descriptor(problem)).run(planq.HOST, None, args)
        assert np.array_equal(bits(np.ascontiguousarray(x)), bits(wanted))
        before[::-3, :, :33] = wanted
        assert np.array_equal(bits(whole), bits(before))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("group_size", {"group_size": None}, "Convention.DEEPSPEED needs the number of elements"),
    ("group_size", {"group_size": 0}, "expected a positive integer or None, got 0"),
    ("bits", {"bits": 1}, "expected 2 to 8, got 1"),
    ("bits", {"bits": 9}, "expected 2 to 8, got 9"),
    ("eps", {"eps": -1e-9}, "expected a number from 0 to 1, got -1.0"),
    ("eps", {"eps": float("inf")}, "expected a number from 0 to 1, got inf"),
    ("input_dtype", {"input_dtype": "float64"}, "expected one of float16, bfloat16, float32"),
    ("q_min", {"q_min": -127}, "codes of 8 bits of Convention.DEEPSPEED are -128 to 127, got -127"),
    ("q_max", {"q_max": 7}, "codes of 8 bits of Convention.DEEPSPEED are -128 to 127, got 7"),
    ("scope", {"scope": planq.Scope.token()}, "Convention.DEEPSPEED leaves no choice here"),
    ("scale_dtype", {"scale_dtype": "float32"}, "Convention.DEEPSPEED leaves no choice here"),
    ("zero_point_dtype", {"zero_point_dtype": "int32"}, "Convention.DEEPSPEED leaves no choice"),
    ("quotient", {"quotient": "ratio"}, "Convention.DEEPSPEED leaves no choice here"),
    ("nonfinite", {"nonfinite": "saturate"}, "Convention.DEEPSPEED leaves no choice here"),
    ("include_zero", {"include_zero": False}, "Convention.DEEPSPEED leaves no choice here"),
    ("rounding", {"rounding": "nearest_away"}, "has nearest_even or stochastic, got nearest_away"),
    ("rounding", {"rounding": "none", "mode": "asymmetric"}, "has nearest_away or stochastic"),
    ("convention", {"convention": "ggml"}, "expected planq or deepspeed, got ggml"),
    ("bits", {"convention": "planq", "group_size": None, "bits": 8}, "goes with Convention.DEEPS"),
    ("group_size", {"convention": "planq"}, "goes with Convention.DEEPSPEED; use q_min, q_max"),
    ("eps", {"convention": "planq", "group_size": None, "eps": 0.0}, "goes with Convention.DEEPS"),
]


@pytest.mark.parametrize(("field", "change", "text"), REFUSED)
def test_bad_fields_are_refused(field: str, change: dict[str, Any], text: str) -> None:
    """By name, with what was expected and what came."""
    fields: dict[str, Any] = {"shape": (4, 6), "input_dtype": "float16", "group_size": 3}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.FakeQuantizeDescriptor(**fields | {"convention": "deepspeed"} | change)
    assert str(caught.value).startswith(f"{field}: ")
    assert text in str(caught.value)


def test_operands_that_there_are_not_are_refused() -> None:
    """A scale, and a seed without draws."""
    x = np.zeros(8, F32)
    plan = planq.Plan.select(planq.HOST, TESTS.descriptor(problem_of(x, 4)))
    for extra in ({"scale": np.ones(1, F32)}, {"seed": 3}, {"offset": 3}):
        with pytest.raises(planq.ArgumentError, match=next(iter(extra))):
            plan.run(planq.HOST, None, planq.FakeQuantizeArgs(input=x, output=x, **extra))


@pytest.mark.parametrize("case", tiny_cases(), ids=lambda case: str(case.id))
def test_steps_that_are_subnormal(case: Case) -> None:
    """A compiler that takes a subnormal step for 0 is found out."""
    bench = Bench(Host(), descriptor_of("fake_quantize", case.problem))
    given = case.inputs()
    bench.load(given)
    bench.run()
    bench.check(given, case.expected(given), case.id)
