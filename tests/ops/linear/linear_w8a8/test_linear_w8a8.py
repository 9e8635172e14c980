"""`linear_w8a8` on the host: fused and unfused bits, conventions, and where others go wrong."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import make_descriptor
from planq.audit.memory import Host
from planq.audit.ops.linear.linear_w8a8.adapter import TESTS
from planq.audit.ops.linear.linear_w8a8.reference import BITSANDBYTES_FACTOR, LinearProblem, fused
from planq.audit.ops.linear.products import codes
from planq.audit.reference.formats import INPUT_DTYPES, Array, Arrays
from planq.audit.reference.inputs import make
from planq.audit.runner import Bench

F32 = np.float32


def run(operator: str, inputs: Arrays, **fields: Any) -> Arrays:
    """One run on the host."""
    bench = Bench(Host(), make_descriptor(operator, **fields))
    bench.load(inputs)
    bench.run()
    return bench.outputs()


@pytest.mark.parametrize("bias_dtype", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("output_dtype", INPUT_DTYPES)
def test_fused_is_a_product_and_a_dequantization(output_dtype: str, bias_dtype: str | None) -> None:
    """To the bit: matmul_int8, then dequantize with Scope.pair()."""
    for m, n, k in ((1, 5, 7), (7, 48, 64), (33, 65, 1030)):
        problem = LinearProblem((m, k), (n, k), output_dtype, bias_dtype=bias_dtype)
        given = problem.inputs("any", m)
        sums = run(
            "matmul_int8",
            {name: given[name] for name in ("input", "weight")},
            input_shape=(m, k),
            weight_shape=(n, k),
        )["output"]
        parts = {
            "input": sums,
            "scale": given["input_scale"],
            "column_scale": given["weight_scale"],
        }
        if bias_dtype:
            parts["bias"] = given["bias"]
        unfused = run(
            "dequantize",
            parts,
            shape=(m, n),
            input_dtype="int32",
            output_dtype=output_dtype,
            scope=("pair",),
            bias_dtype=bias_dtype,
        )["output"]
        assert TESTS.run(problem, **given)["output"].tobytes() == unfused.tobytes()


def test_zero_points_are_those_of_the_real_numbers() -> None:
    """(a - za)(w - zw), summed: the sums of codes come from code_sum."""
    m, n, k = 9, 21, 130
    problem = LinearProblem(
        (m, k),
        (n, k),
        "float64",
        "uint8",
        "int8",
        input_mode="asymmetric",
        weight_mode="asymmetric",
    )
    given = problem.inputs("any", 3)
    for side, other in (("input", "weight"), ("weight", "input")):
        fields = {"shape": given[side].shape, "input_dtype": given[side].dtype.name}
        given[f"{side}_sum"] = run("code_sum", {"input": given[side]}, **fields)["output"]
        assert f"{other}_zero_point" in given
    given["input_scale"][:] = 1
    given["weight_scale"][:] = 1
    a = given["input"].astype(int) - given["input_zero_point"][:, None]
    w = given["weight"].astype(int) - given["weight_zero_point"][:, None]
    assert (TESTS.run(problem, **given)["output"] == a @ w.T).all()


def test_bitsandbytes_constant_is_its_own() -> None:
    """0x38820610: one backend of bitsandbytes has 6.200124e-05, 1.8e-5 more, as a misprint."""
    assert F32(6.200012e-05) == BITSANDBYTES_FACTOR
    assert F32(6.200124e-05) != BITSANDBYTES_FACTOR
    problem = LinearProblem((1, 1), (1, 1), convention="bitsandbytes")
    one = np.ones((1, 1), np.int8)
    scales = {"input_scale": np.ones(1, F32), "weight_scale": np.ones(1, F32)}
    got = TESTS.run(problem, input=one, weight=one, **scales)["output"]
    assert got.view(np.uint32) == 0x38820610


def exactly_fused(x: Array, y: Any, z: Array) -> Array:
    """x y + z in rational numbers, rounded once."""
    made = []
    for a, b in zip(x.tolist(), z.tolist(), strict=True):
        total = Fraction(a) * Fraction(float(y)) + Fraction(b)
        near = F32(float(total))
        steps = [near, np.nextafter(near, F32(np.inf)), np.nextafter(near, F32(-np.inf))]
        gaps = [(abs(Fraction(float(s)) - total), int(s.view(np.uint32)) & 1) for s in steps]
        made.append(steps[gaps.index(min(gaps))])
    return np.array(made, F32)


def test_the_references_fused_sum_has_one_rounding() -> None:
    """Against rational numbers, ties included, so that two wrong roundings do not agree."""
    x = make("normal", (3000,), "float32", 1)
    z = make("normal", (3000,), "float32", 2) * F32(2.0**-14)
    assert (fused(x, BITSANDBYTES_FACTOR, z) == exactly_fused(x, BITSANDBYTES_FACTOR, z)).all()
    x = np.array([1 + 2.0**-12, 1 + 2.0**-23, 3.0, -3.0], F32)
    z = np.array([2.0**-40, 2.0**-60, -(2.0**-70), 2.0**-70], F32)
    y = F32(1 + 2.0**-12)
    assert (fused(x, y, z) == exactly_fused(x, y, z)).all()


def test_each_convention_has_bits_of_its_own() -> None:
    """So that none can stand for another."""
    problem = LinearProblem((40, 70), (50, 70), bias_dtype="float32")
    given = problem.inputs("any", 1)
    names = ("planq", "bitsandbytes", "baracuda")
    made = {name: TESTS.run(replace(problem, convention=name), **given)["output"] for name in names}
    for first, second in itertools.combinations(names, 2):
        assert (made[first] != made[second]).any()


@pytest.mark.parametrize("bias_dtype", [None, "float64"])
def test_bitsandbytes_in_float64_is_its_dequantization(bias_dtype: str | None) -> None:
    """Factor and bias in one rounding to float64; and the unfused bits."""
    for kind, (m, n, k) in itertools.product(("any", "ends"), ((1, 70, 64), (33, 65, 1030))):
        problem = LinearProblem(
            (m, k), (n, k), "float64", bias_dtype=bias_dtype, convention="bitsandbytes"
        )
        given = problem.inputs(kind, m)
        TESTS.check(problem, **given)
        sums = run(
            "matmul_int8",
            {s: given[s] for s in ("input", "weight")},
            input_shape=(m, k),
            weight_shape=(n, k),
        )["output"]
        parts = {"input": sums, "scale": given["input_scale"]}
        parts |= {"column_scale": given["weight_scale"]}
        parts |= {"bias": given["bias"]} if bias_dtype else {}
        unfused = run(
            "dequantize",
            parts,
            shape=(m, n),
            input_dtype="int32",
            output_dtype="float64",
            scope=("pair",),
            bias_dtype=bias_dtype,
            convention="bitsandbytes",
        )["output"]
        assert TESTS.run(problem, **given)["output"].tobytes() == unfused.tobytes()


def test_float_outputs_lose_nothing_of_a_sum() -> None:
    """Sums above 2^24: exact in float64, and once rounded in float32, not term by term."""
    k = 131071
    a = np.full((2, k), 127, np.int8)
    a[1, :3] = (126, 1, 2)
    w = np.full((1, k), 127, np.int8)
    sums = a.astype(np.int64) @ w.astype(np.int64).T
    assert sums.max() > 2**30
    for dtype in ("float64", "float32"):
        problem = LinearProblem((2, k), (1, k), dtype)
        scales = {f"{side}_scale": np.ones(n, dtype) for side, n in (("input", 2), ("weight", 1))}
        got = TESTS.run(problem, input=a, weight=w, **scales)["output"]
        assert (got == sums.astype(dtype)).all()


@pytest.mark.parametrize("convention", ["planq", "bitsandbytes", "baracuda"])
def test_without_terms_the_epilogue_of_zero_is_written(convention: str) -> None:
    """Elsewhere the launch is left out, and the outputs are what memory held."""
    problem = LinearProblem(
        (5, 0),
        (70, 0),
        bias_dtype="float32",
        residual_dtype="float32",
        convention=convention,
    )
    given = problem.inputs("any", 1)
    got = TESTS.run(problem, **given)["output"]
    assert (got == given["bias"] + given["residual"]).all()


def test_smoothquant_is_one_scale_for_all_rows() -> None:
    """tensor() on the input is token() with the same scale for every row."""
    problem = LinearProblem((9, 64), (33, 64), "bfloat16", input_scope=("tensor",))
    given = problem.inputs("any", 1)
    repeated = {**given, "input_scale": np.repeat(given["input_scale"], 9)}
    token = replace(problem, input_scope=("token",))
    assert TESTS.run(problem, **given)["output"].tobytes() == (
        TESTS.run(token, **repeated)["output"].tobytes()
    )


def test_leading_axes_are_more_rows() -> None:
    """(2, 3, 5, k) has the bits of (30, k), scales of the rows and residual included."""
    flat = LinearProblem(
        (30, 67), (21, 67), "float16", input_mode="asymmetric", residual_dtype="float32"
    )
    given = flat.inputs("any", 4)
    shaped = {
        name: values.reshape(2, 3, 5, *values.shape[1:]) if values.shape[:1] == (30,) else values
        for name, values in given.items()
    }
    deep = replace(flat, input_shape=(2, 3, 5, 67))
    got = TESTS.run(deep, **shaped)["output"]
    assert got.shape == (2, 3, 5, 21)
    assert got.reshape(30, 21).tobytes() == TESTS.run(flat, **given)["output"].tobytes()


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"input_shape": (5,)}, "input_shape"),
        ({"weight_shape": (2, 3, 5)}, "weight_shape"),
        ({"weight_shape": (3, 6)}, "weight_shape"),
        ({"input_dtype": "int32"}, "input_dtype"),
        ({"output_dtype": "int8"}, "output_dtype"),
        ({"input_scope": planq.Scope.group(1)}, "input_scope"),
        ({"input_scope": planq.Scope.channel(0)}, "input_scope"),
        ({"weight_scope": planq.Scope.token()}, "weight_scope"),
        ({"weight_scope": planq.Scope.channel(1)}, "weight_scope"),
        ({"scale_dtype": "int8"}, "scale_dtype"),
        ({"bias_dtype": "int32"}, "bias_dtype"),
        ({"residual_dtype": "int32"}, "residual_dtype"),
        ({"convention": "ggml"}, "convention"),
        ({"convention": "compressed_tensors"}, "convention"),
        ({"convention": "bitsandbytes", "input_mode": "asymmetric"}, "input_mode"),
        ({"convention": "baracuda", "weight_mode": "asymmetric"}, "weight_mode"),
        ({"input_shape": (1, 131072), "weight_shape": (1, 131072)}, "input_shape"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str) -> None:
    """With the name of the field."""
    usual: dict[str, Any] = {"input_shape": (4, 5), "weight_shape": (3, 5)}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.LinearW8A8Descriptor(**{**usual, "output_dtype": "float32", **fields})
    assert caught.value.field == name


@pytest.mark.parametrize(
    ("input_dtype", "weight_dtype", "modes", "largest"),
    [
        ("int8", "int8", ("symmetric", "symmetric"), 128 * 128),
        ("int8", "int8", ("asymmetric", "symmetric"), 255 * 128),
        ("int8", "int8", ("asymmetric", "asymmetric"), 255 * 255),
        ("uint8", "int8", ("symmetric", "symmetric"), 255 * 128),
        ("int8", "int4", ("symmetric", "asymmetric"), 128 * 15),
        ("int4", "uint4", ("symmetric", "symmetric"), 8 * 15),
    ],
)
def test_as_many_terms_as_int32_holds(
    input_dtype: str, weight_dtype: str, modes: tuple[str, str], largest: int
) -> None:
    """Differences from a zero point reach further than codes."""
    most = (2**31 - 1) // largest
    fields: dict[str, Any] = {
        "input_dtype": input_dtype,
        "weight_dtype": weight_dtype,
        "input_mode": modes[0],
        "weight_mode": modes[1],
        "output_dtype": "float32",
    }
    planq.LinearW8A8Descriptor(input_shape=(1, most), weight_shape=(1, most), **fields)
    with pytest.raises(planq.DescriptorError, match=f"more than {most} terms"):
        planq.LinearW8A8Descriptor(input_shape=(1, most + 1), weight_shape=(1, most + 1), **fields)


def test_one_plan_for_every_number_of_rows() -> None:
    """Of 64 rows at most, with the bits of a plan for each."""
    rows = planq.Dim("m", max=64)
    desc = planq.LinearW8A8Descriptor(
        input_shape=(rows, 65), weight_shape=(40, 65), output_dtype="bfloat16"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    for m in (0, 1, 7, 64):
        problem = LinearProblem((m, 65), (40, 65), "bfloat16")
        given = problem.inputs("any", m)
        output = np.empty((m, 40), problem.expected(given)["output"].dtype)
        plan.run(planq.HOST, None, planq.LinearW8A8Args(output=output, **given))
        assert output.tobytes() == problem.expected(given)["output"].tobytes()


def test_codes_of_every_kind_meet_every_option() -> None:
    """Zero points of both sides, bias and residual, one by one and together."""
    options = itertools.product(
        ("symmetric", "asymmetric"),
        ("symmetric", "asymmetric"),
        (None, "float16"),
        (None, "float32"),
    )
    for seed, (input_mode, weight_mode, bias, residual) in enumerate(options):
        for output_dtype, kind in (("float32", "any"), ("bfloat16", "ends"), ("float64", "sparse")):
            problem = LinearProblem(
                (19, 70),
                (67, 70),
                output_dtype,
                ("int8", "uint8")[seed % 2],
                ("int8", "int4", "uint8")[seed % 3],
                input_mode=input_mode,
                weight_mode=weight_mode,
                bias_dtype=bias,
                residual_dtype=residual,
            )
            TESTS.check(problem, **problem.inputs(kind, seed))


def test_nans_are_canonical() -> None:
    """A NaN or 0 times an infinity in a scale: one NaN for each type."""
    patterns = {"float16": 0x7E00, "bfloat16": 0x7FC0, "float32": 0x7FC00000}
    for dtype, pattern in patterns.items():
        problem = LinearProblem((2, 3), (2, 3), dtype)
        given = problem.inputs("any", 1)
        given["input_scale"][:] = (-np.nan, np.inf)
        given["input"][1] = 0
        got = TESTS.run(problem, **given)["output"]
        assert (got.view(f"u{got.dtype.itemsize}") == pattern).all()


def test_zero_points_beyond_int32_wrap() -> None:
    """Any int32 is taken, modulo 2^32."""
    problem = LinearProblem((6, 33), (70, 33), input_mode="asymmetric", weight_mode="asymmetric")
    given = problem.inputs("ends", 2)
    assert np.abs(given["input_zero_point"].astype(np.int64)).max() > 2**30
    sums = codes("int8", (6,), "any", 3).astype(np.int32) * np.int32(2**24 + 1)
    given["input_sum"] = sums
    TESTS.check(problem, **given)
