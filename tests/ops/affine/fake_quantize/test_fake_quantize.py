"""`fake_quantize` on the host: its table, values worked out by hand, ranges, and draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import make_descriptor
from planq.audit.memory import Host
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.cases import DATA, PARAMETERS, RANGES
from planq.audit.ops.affine.dequantize.adapter import TESTS as DEQUANTIZE
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dynamic_range_quantize import reference as dynamic_range
from planq.audit.ops.affine.dynamic_range_quantize.adapter import quantize as dynamic_range_quantize
from planq.audit.ops.affine.dynamic_range_quantize.cases import KINDS as DYNAMIC_DATA
from planq.audit.ops.affine.fake_quantize.adapter import TESTS
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, FLOATS, INPUT_DTYPES, Array, Arrays, bits
from planq.audit.reference.philox import philox, uniform, words
from planq.audit.runner import arguments
from support.tables import share

F32 = np.float32
INF, NAN = float("inf"), float("nan")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
SCOPES: tuple[ScopeSpec, ...] = (
    ("tensor",),
    ("channel", 0),
    ("channel", 1),
    ("channel", -1),
    ("token",),
    ("group", 4, -1),
    ("group", 3, 0),
    ("block", 2, 4),
)
CONVENTIONS = (
    ("symmetric", "divide"),
    ("symmetric", "reciprocal"),
    ("symmetric", "ratio"),
    ("asymmetric", "divide"),
    ("asymmetric", "reciprocal"),
)


@pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["given", "dynamic"])
@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
def test_the_whole_table(input_dtype: str, dynamic: bool, rounding: str) -> None:
    """Every scope x convention x NonFinite x scale dtype; bounds and operands take turns.

    Of these a type of input has a third.
    """
    scale_dtypes = (None, "float16", "bfloat16", "float64")
    rows = share(
        INPUT_DTYPES.index(input_dtype),
        *(CONVENTIONS, ("propagate", "saturate"), scale_dtypes, SCOPES),
    )
    for turn, ((mode, quotient), nonfinite, scale_dtype, scope) in enumerate(rows):
        bounds = ((None, None), *RANGES[mode])
        kinds = (None,) if dynamic or mode == "symmetric" else ("int32", "int8", "uint8")
        problem = FakeQuantizeProblem(
            shape=(4, 5, 9),
            scope=scope,
            scale_dtype=scale_dtype,
            input_dtype=input_dtype,
            mode=mode,
            q_min=bounds[turn % len(bounds)][0],
            q_max=bounds[turn % len(bounds)][1],
            zero_point_dtype=kinds[turn % len(kinds)],
            quotient=quotient,
            nonfinite=nonfinite,
            include_zero=not dynamic or turn % 3 > 0,
            rounding=rounding,
            dynamic=dynamic,
        )
        data = (DYNAMIC_DATA if dynamic else DATA)[turn // 3 % 8]
        parameters = PARAMETERS[turn // 7 % len(PARAMETERS)]
        TESTS.check(problem, **affine_inputs.make(problem, data, parameters, turn))


def row(*values: float, dtype: str = "float32") -> Array:
    """Values as a vector."""
    return np.array(values, np.float64).astype(FLOATS[dtype].dtype)


def faked(x: Array, scale: float = 1.0, zero_point: int | None = None, **fields: Any) -> Array:
    """A vector through one scale and, where it is given, one zero point."""
    fields = {"input_dtype": x.dtype.name, **fields}
    if zero_point is not None:
        fields["mode"] = "asymmetric"
    problem = FakeQuantizeProblem(x.shape, **fields)
    given: Arrays = {"input": x, "scale": row(scale, dtype=problem.stored_scale)}
    if zero_point is not None:
        given["zero_point"] = np.array([zero_point], problem.zero_point_dtype or "int32")
    return TESTS.run(problem, **given)["output"]


class TestValuesWorkedOutByHand:
    """The contract's sentences, one by one, without the reference."""

    def test_there_and_back(self) -> None:
        """`0.5 * clamp(rne(x / 0.5))`."""
        got = faked(row(0.25, 0.75, 1.0, 100, -100), 0.5)
        assert got.tolist() == [0, 1, 1, 63.5, -63.5]

    def test_asymmetric(self) -> None:
        """The range of -128 ... 127 around zero point 100."""
        assert faked(row(30, -300, 0.5), 1.0, 100).tolist() == [27, -228, 0]

    def test_the_zero_point_is_added_after_rounding(self) -> None:
        """An odd zero point moves no tie."""
        assert faked(row(0.5, 1.5, 2.5), 1.0, 1).tolist() == [0, 2, 2]

    @pytest.mark.parametrize(
        ("low", "high", "wanted"), [(-2, 1, [-2, 1]), (0, 255, [0, 255]), (-1, 254, [-1, 254])]
    )
    def test_bounds_of_two_to_eight_bits(self, low: int, high: int, wanted: list[int]) -> None:
        """Signed, unsigned, and in between."""
        assert faked(row(-999, 999), q_min=low, q_max=high).tolist() == wanted

    def test_a_huge_value_saturates_on_its_side(self) -> None:
        """Whatever the zero point."""
        assert faked(row(1e30, -1e30), 1.0, 127).tolist() == [0, -255]
        got = faked(row(1e30, INF, -INF), 1.0, INT_MAX)
        assert got.tolist() == [F32(127 - INT_MAX), F32(127 - INT_MAX), F32(-128 - INT_MAX)]
        got = faked(row(-1e30, -INF, INF), 1.0, INT_MIN)
        assert got.tolist() == [F32(-128 - INT_MIN), F32(-128 - INT_MIN), F32(127 - INT_MIN)]

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_a_nan_is_not_hidden(self, dtype: str) -> None:
        """PROPAGATE keeps it, canonical; infinities saturate."""
        got = faked(row(NAN, -NAN, INF, -INF, 1, dtype=dtype), 1.0, 0)
        assert bits(got[:2]).tolist() == [CANONICAL_NAN[dtype]] * 2
        assert got[2:].astype(np.float64).tolist() == [127, -128, 1]

    def test_saturate_takes_a_nan_for_zero(self) -> None:
        """The code of the zero point, clamped: 200 is beyond 127."""
        assert faked(row(NAN), 0.5, 5, nonfinite="saturate").tolist() == [0]
        assert faked(row(NAN), 0.5, 200, nonfinite="saturate").tolist() == [-36.5]

    def test_peculiar_scales_follow_ieee(self) -> None:
        """0 times a code is 0, infinity times 0 is no number."""
        zero = faked(row(1, -1, 0), 0.0)
        assert bits(zero).tolist() == bits(row(0.0, -0.0, 0.0)).tolist()
        assert bits(faked(row(1, INF), INF)).tolist() == [CANONICAL_NAN["float32"]] * 2
        assert bits(faked(row(1, 2), NAN)).tolist() == [CANONICAL_NAN["float32"]] * 2

    def test_float64_is_never_computed_through_float32(self) -> None:
        """The last bit decides."""
        got = faked(row(0.5 + 2.0**-53, 0.5, dtype="float64"), 1.0)
        assert got.tolist() == [1, 0]
        assert faked(row(0.7, dtype="float64"), 1 / 3).tolist() == [1 / 3 * 2]

    @pytest.mark.parametrize(
        ("quotient", "codes"),
        [("divide", [2, 2]), ("reciprocal", [2, 3]), ("ratio", [1, 2])],
    )
    def test_quotients_differ_near_ties(self, quotient: str, codes: list[int]) -> None:
        """Two elements under one scale: three divisions, three pairs of values."""
        scale = float.fromhex("0x1.e85672p-1")
        x = row(float.fromhex("0x1.6e40d6p0"), float.fromhex("0x1.313608p1"))
        assert faked(x, scale, quotient=quotient).tolist() == [F32(scale) * c for c in codes]

    def test_narrow_results_are_rounded_once(self) -> None:
        """`fl(s * q)` is float32, then bfloat16."""
        got = faked(row(77, dtype="bfloat16"), 1 / 3, q_min=0, q_max=255)
        product = F32(1 / 3) * F32(231)
        assert got.tolist() == [product.astype(FLOATS["bfloat16"].dtype)]


@pytest.mark.parametrize("input_dtype", INPUT_DTYPES)
@pytest.mark.parametrize(("mode", "quotient"), CONVENTIONS)
@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_it_is_dequantize_of_quantize(
    scope: ScopeSpec, mode: str, quotient: str, input_dtype: str
) -> None:
    """Three operators of the library agree; a NaN counts as 0 in all of them.

    Of the kinds of operands, each type and scope has a third.
    """
    problem = QuantizeProblem(
        (6, 5, 33), scope, None, input_dtype, mode, quotient=quotient, output_dtype="int8"
    )
    number = INPUT_DTYPES.index(input_dtype) + SCOPES.index(scope)
    for seed, (data, parameters) in enumerate(share(number, DATA[2:], PARAMETERS)):
        given = affine_inputs.make(problem, data, parameters, seed)
        codes = QUANTIZE.run(problem, **given)["output"]
        back = DequantizeProblem(problem.shape, scope, output_dtype=input_dtype, mode=mode)
        back = replace(back, scale_dtype=problem.stored_scale)
        there = DEQUANTIZE.run(back, **{**given, "input": codes})["output"]
        single = FakeQuantizeProblem(
            problem.shape, scope, None, input_dtype, mode, quotient=quotient, nonfinite="saturate"
        )
        assert np.array_equal(bits(there), bits(TESTS.run(single, **given)["output"]))


@pytest.mark.parametrize("input_dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("nonfinite", ["propagate", "saturate"])
@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
def test_dynamic_is_dequantize_of_dynamic_range_quantize(
    mode: str, nonfinite: str, input_dtype: str
) -> None:
    """With the same scales and zero points, given out on request."""
    for scope in SCOPES:
        for seed, kind in enumerate(("finite", "mixed", "nonfinite", "zeros", "subnormal")):
            x = inputs.make(kind, (12, 5, 33), input_dtype, seed)
            coded = dynamic_range.Problem(
                x.shape, input_dtype, scope=scope, mode=mode, nonfinite=nonfinite
            )
            made = dynamic_range_quantize(coded, x)
            back = DequantizeProblem(x.shape, scope, output_dtype=input_dtype, mode=mode)
            parameters = {name: made[name] for name in made if name != "output"}
            there = DEQUANTIZE.run(back, input=made["output"], **parameters)["output"]
            problem = FakeQuantizeProblem(
                x.shape, scope, None, input_dtype, mode, nonfinite=nonfinite, dynamic=True
            )
            ours = TESTS.run(problem, input=x)
            assert np.array_equal(bits(ours.pop("output")), bits(there))
            assert ours.keys() == parameters.keys()
            for name, values in ours.items():
                assert np.array_equal(bits(values), bits(parameters[name]))


def run_plain(
    problem: FakeQuantizeProblem, operands: dict[str, Any], host: Any = planq.HOST
) -> None:
    """Runs on the caller's own operands."""
    desc = make_descriptor("fake_quantize", **vars_of(problem))
    plan = planq.Plan.select(host, desc)
    memory = np.empty(plan.workspace_size() + 256, np.uint8)
    start = -memory.ctypes.data % 256
    workspace = memory[start : start + plan.workspace_size()] if plan.workspace_size() else None
    plan.run(host, workspace, arguments(desc, operands))


def vars_of(problem: FakeQuantizeProblem) -> dict[str, Any]:
    """The problem's fields by name."""
    return {name: getattr(problem, name) for name in problem.__dataclass_fields__}


@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_parameters_that_nobody_wants_are_left_out(scope: ScopeSpec, mode: str) -> None:
    """None in the place of the outputs of a dynamic run, all of them or one."""
    problem = FakeQuantizeProblem((6, 5, 33), scope, mode=mode, dynamic=True)
    x = inputs.make("mixed", problem.shape, "float32", 3)
    wanted = problem.expected({"input": x})
    names = [name for name in wanted if name != "output"]
    for kept in ((), *((name,) for name in names)):
        made = {name: np.full_like(wanted[name], 77) for name in kept}
        made["output"] = np.full_like(x, 77)
        run_plain(problem, {"input": x, **made})
        for name, values in made.items():
            assert np.array_equal(bits(values), bits(wanted[name]))


class TestDraws:
    """Philox4x32-10 of the seed, the offset and the element's index, and nothing else."""

    def test_the_known_vectors(self) -> None:
        """The reference's own generator against those that Random123 publishes."""
        vectors = {
            ((0, 0, 0, 0), 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
            ((0xFFFFFFFF,) * 4, 2**64 - 1): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
            (
                (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                0x299F31D0_A4093822,
            ): (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        }
        for (counter, key), wanted in vectors.items():
            c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
            assert [int(word[0]) for word in philox((c0, c1, c2, c3), key)] == list(wanted)

    def test_the_first_draws_of_seed_zero(self) -> None:
        """The published words, read off the library: `floor(t + u)` at either side of `1 - u`."""
        published = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])
        u = (published >> 8) * 2.0**-24
        problem = FakeQuantizeProblem((4,), rounding="stochastic")
        zero = np.array(0, np.int64)
        given: Arrays = {"scale": row(1), "seed": zero, "offset": zero}
        for input_dtype in ("float32", "float64"):
            typed = replace(problem, input_dtype=input_dtype, scale_dtype="float32")
            above = (1 - u).astype(input_dtype)
            assert TESTS.run(typed, **given, input=above)["output"].tolist() == [1] * 4
            below = (1 - u - 2.0**-24).astype(input_dtype)
            assert TESTS.run(typed, **given, input=below)["output"].tolist() == [0] * 4

    def test_a_published_block_by_its_counter_and_key(self) -> None:
        """Counters of more than 32 bits, keys of both halves, and the wrap at 2^64."""
        for seed, offset in ((2**40 + 5, 2**35 + 1), (-1, -2), (2**63, 2**63 - 1)):
            counter = [(offset + block) % 2**64 for block in range(3)]
            low = np.array([c % 2**32 for c in counter], np.uint64)
            high = np.array([c >> 32 for c in counter], np.uint64)
            zero = np.zeros(3, np.uint64)
            block = np.stack(philox((low, high, zero, zero), seed % 2**64), axis=-1)
            assert np.array_equal(words(seed, offset, np.arange(12)), block.reshape(-1))

    @pytest.mark.parametrize(("seed", "offset"), [(0, 0), (7, 2**40), (-3, -1), (2**64 - 3, 5)])
    def test_integers_and_scalars_mean_the_same(self, seed: int, offset: int) -> None:
        """Python's integers, int64 scalars of shape () and of shape (1,)."""
        problem = FakeQuantizeProblem((7, 33), ("token",), rounding="stochastic")
        given = affine_inputs.make(problem, "near", "ordinary", 1)
        as_int64 = [value - 2**64 if value >= 2**63 else value for value in (seed, offset)]
        scalars = [np.array(value, np.int64) for value in as_int64]
        given |= {"seed": scalars[0], "offset": scalars[1]}
        wanted = problem.expected(given)["output"]
        forms: list[list[Any]] = [[seed, offset], as_int64, scalars]
        forms += [[scalar.reshape(1) for scalar in scalars], [seed, scalars[1]]]
        for form in forms:
            output = np.full_like(given["input"], 77)
            operands = {**given, "output": output, "seed": form[0], "offset": form[1]}
            run_plain(problem, operands)
            assert np.array_equal(bits(output), bits(wanted)), form

    def test_seeds_and_offsets_matter(self) -> None:
        """All 64 bits of both; the offset shifts the draws by four elements."""
        x = np.full(4096, 0.5, F32)
        problem = FakeQuantizeProblem(x.shape, rounding="stochastic")

        def drawn(seed: int, offset: int) -> Array:
            given: Arrays = {"input": x, "scale": row(1), "seed": np.array(seed, np.int64)}
            return TESTS.run(problem, **given, offset=np.array(offset, np.int64))["output"]

        base = drawn(5, 11)
        for other in ((6, 11), (5 + 2**32, 11), (-5, 11), (5, 11 + 2**32), (5, 10**9)):
            assert 0.4 < np.mean(base != drawn(*other)) < 0.6
        assert np.array_equal(drawn(5, 12)[:-4], base[4:])
        assert np.array_equal(drawn(5, 11), base)

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_a_tensor_in_pieces_has_the_same_bits(self, dtype: str) -> None:
        """Each piece with the offset of its first element."""
        problem = FakeQuantizeProblem((1000,), input_dtype=dtype, rounding="stochastic")
        given = affine_inputs.make(problem, "near", "ordinary", 8)
        whole = TESTS.run(problem, **given)["output"]
        for first, last in ((0, 4), (4, 500), (500, 960), (960, 1000)):
            piece = replace(problem, shape=(last - first,))
            operands = {**given, "input": given["input"][first:last]}
            operands["offset"] = given["offset"] + np.int64(first // 4)
            part = TESTS.run(piece, **operands)["output"]
            assert np.array_equal(bits(part), bits(whole[first:last]))

    def test_neither_shape_nor_strides_nor_threads_matter(self) -> None:
        """The index counts logical elements in row-major order."""
        x = inputs.make("normal", (60, 700), "float32", 2)
        problem = FakeQuantizeProblem(x.shape, rounding="stochastic")
        scalars = {"seed": np.array(3, np.int64), "offset": np.array(9, np.int64)}
        given: Arrays = {"scale": row(0.25), **scalars}
        wanted = TESTS.run(problem, input=x, **given)["output"]
        for shape in ((42000,), (30, 2, 7, 100), (1, 1, 4, 1, 5, 3, 1, 700)):
            shaped = replace(problem, shape=shape)
            output = TESTS.run(shaped, input=x.reshape(shape), **given)["output"]
            assert np.array_equal(output.reshape(x.shape), wanted)
        for threads in (1, 2, 5):
            output = TESTS.run(problem, Host(threads), input=x, **given)["output"]
            assert np.array_equal(output, wanted)
        turned, output = np.asfortranarray(x.T).T, np.empty((60, 800), F32)
        wide = np.zeros((60, 900), F32)
        wide[:, 100:800] = turned
        operands = {"input": wide[:, 100:800], "output": output[:, 50:750], **given}
        run_plain(problem, operands)
        assert np.array_equal(output[:, 50:750], wanted)

    @pytest.mark.parametrize("value", [0.1, 0.25, 1 / 3, 0.5, 0.9, 100.3, -0.7, -20.05])
    def test_the_mean_is_the_value(self, value: float) -> None:
        """Within four standard errors of 1.25 million draws."""
        count = 1_250_000
        x = np.full(count, value, F32)
        problem = FakeQuantizeProblem(x.shape, rounding="stochastic")
        zero = np.array(0, np.int64)
        given: Arrays = {"input": x, "scale": row(1), "seed": zero + 17, "offset": zero}
        y = TESTS.run(problem, **given)["output"].astype(np.float64)
        part = float(F32(value)) % 1
        assert set(np.unique(y)) == {np.floor(value), np.floor(value) + 1}
        error = np.sqrt(part * (1 - part) / count)
        assert abs(y.mean() - float(F32(value))) < 4 * error + 2.0**-18

    def test_integers_stay_and_the_bounds_hold(self) -> None:
        """`floor(k + u) = k`, where C holds the sum; beyond the bounds there is nothing to draw."""
        x = np.concatenate([np.arange(-140, 140), [1e30, -1e30, INF, -INF]])
        problem = FakeQuantizeProblem(x.shape, input_dtype="float64", rounding="stochastic")
        one = np.array(1, np.int64)
        scale = row(1, dtype="float64")
        given: Arrays = {"input": x, "scale": scale, "seed": one, "offset": one}
        got = TESTS.run(problem, **given)["output"]
        assert np.array_equal(got, np.clip(x, -127, 127))

    def test_draws_are_uniform(self) -> None:
        """The reference's, in 16 bins of a million: a chi-squared of 15 degrees below 40."""
        u = uniform(99, 1234, (1_000_000,))
        counts = np.bincount((u * 16).astype(np.int64), minlength=16)
        assert ((counts - 62500.0) ** 2 / 62500).sum() < 40
        assert u.min() >= 0
        assert u.max() < 1
