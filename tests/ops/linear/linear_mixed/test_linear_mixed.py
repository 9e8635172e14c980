"""`linear_mixed` on the host: fused and unfused bits, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.float_layers import run
from planq.audit.ops.linear.linear_mixed.adapter import TESTS
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.reference.formats import FLOATS

ORDERS = ("tensor_sm90", "lanes")
TENSOR = {"accumulation": "tensor_sm90"}


@pytest.mark.parametrize("accumulation", ORDERS)
@pytest.mark.parametrize("code_dtype", ["int8", "int4"])
def test_groups_are_a_dequantization_and_a_product(code_dtype: str, accumulation: str) -> None:
    """To the bit: dequantize, then matmul."""
    for (m, n, k), dtype in itertools.product(
        ((1, 5, 96), (9, 70, 320), (4, 33, 67)), ("bfloat16", "float16")
    ):
        problem = MixedProblem(
            (m, k),
            (n, k),
            dtype,
            code_dtype=code_dtype,
            weight_scope=("group", 32, 1),
            weight_mode="asymmetric",
            accumulation=accumulation,
        )
        given = problem.inputs("any", m)
        weight = run(
            "dequantize",
            {
                "input": given["weight"],
                "scale": given["weight_scale"],
                "zero_point": given["weight_zero_point"],
            },
            shape=(n, k),
            input_dtype=code_dtype,
            output_dtype=dtype,
            scope=problem.weight_scope,
            mode="asymmetric",
        )
        product = run(
            "matmul",
            {"input": given["input"], "weight": weight},
            input_shape=(m, k),
            weight_shape=(n, k),
            input_dtype=dtype,
            output_dtype="float32",
            accumulation=accumulation,
        )
        assert TESTS.run(problem, **given)["output"].tobytes() == product.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_channels_scale_the_product_of_their_codes(dtype: str) -> None:
    """Every int8 is exact in 16 bits, so matmul of the codes, times the scale."""
    problem = MixedProblem((5, 300), (40, 300), dtype)
    given = problem.inputs("any", 2)
    given["weight"][0, :256] = np.arange(-128, 128)
    sums = run(
        "matmul",
        {"input": given["input"], "weight": given["weight"].astype(FLOATS[dtype].dtype)},
        input_shape=(5, 300),
        weight_shape=(40, 300),
        input_dtype=dtype,
        output_dtype="float32",
    )
    scaled = sums * given["weight_scale"]
    assert TESTS.run(problem, **given)["output"].tobytes() == scaled.tobytes()


@pytest.mark.parametrize("accumulation", ORDERS)
def test_every_size_of_edge(accumulation: str) -> None:
    """Rows, columns, terms and groups of every remainder."""
    scopes = itertools.cycle((("channel", 0), ("group", 16, 1), ("group", 31, 1), ("group", 1, 1)))
    codes = itertools.cycle(("int8", "int4", "int4"))
    for m, n in itertools.product((1, 3, 5, 97), (1, 2, 15, 17, 33)):
        k = (1, 3, 16, 17, 31, 127, 129, 150)[(m + n) % 8]
        problem = MixedProblem(
            (m, k),
            (n, k),
            code_dtype=next(codes),
            weight_scope=next(scopes),
            accumulation=accumulation,
        )
        TESTS.check(problem, **problem.inputs("any", m + n))


@pytest.mark.parametrize("scope", [("channel", 0), ("group", 64, 1)])
def test_threads_and_rows_change_no_bit(scope: Any) -> None:
    """One row alone, all rows, one thread, many: the same bits."""
    problem = MixedProblem((40, 300), (200, 300), weight_scope=scope)
    given = problem.inputs("any", 1)
    whole = TESTS.run(problem, **given)["output"]
    assert (TESTS.run(problem, Host(7), **given)["output"] == whole).all()
    for row in (0, 17, 39):
        alone = problem.cut(given, slice(row, row + 1))
        assert (TESTS.run(problem.with_rows(1), **alone)["output"] == whole[row : row + 1]).all()


def test_a_reordered_int8_weight_changes_no_bit() -> None:
    """By planq's own operator."""
    problem = MixedProblem((3, 128), (192, 128))
    given = problem.inputs("any", 1)
    whole = TESTS.run(problem, **given)["output"]
    fields = {"shape": (128, 192), "input_dtype": "int8", "transpose": True}
    weight = run("reorder_mixed_dtype_weight", {"input": given["weight"]}, **fields)
    tiled = replace(problem, weight_layout="reordered")
    assert (TESTS.run(tiled, **{**given, "weight": weight})["output"] == whole).all()


def test_one_plan_for_every_number_of_rows() -> None:
    """Of 64 rows at most, with the bits of a plan for each."""
    rows = planq.Dim("m", max=64)
    problem = MixedProblem((64, 96), (40, 96), code_dtype="int4")
    desc = replace(TESTS.descriptor(problem), input_shape=(rows, 96))
    plan = planq.Plan.select(planq.HOST, desc)
    for m in (0, 1, 7, 64):
        given = problem.with_rows(m).inputs("any", m)
        want = problem.with_rows(m).expected(given)["output"]
        output = np.empty_like(want)
        plan.run(planq.HOST, None, planq.LinearMixedArgs(output=output, **given))
        assert output.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (5,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"weight_shape": (2, 3, 5)}, "weight_shape", r"expected \(n, k\)"),
        ({"weight_shape": (3, 6)}, "weight_shape", "expected k = 16"),
        ({"input_dtype": "float64"}, "input_dtype", "float16, bfloat16, float32"),
        ({"code_dtype": "uint4"}, "code_dtype", "int8, uint8, int4, float8_e4m3fn, float8_e5m2"),
        ({"scale_dtype": "float8_e8m0fnu"}, "scale_dtype", "is for groups"),
        ({"zero_point_dtype": "int8"}, "zero_point_dtype", "goes with Mode.ASYMMETRIC"),
        (
            {"code_dtype": "float8_e5m2", "weight_layout": "reordered"},
            "weight_layout",
            "is for integers, got float8_e5m2",
        ),
        ({"weight_dtype": "float64"}, "weight_dtype", "float16, bfloat16, float32"),
        ({"output_dtype": "int8"}, "output_dtype", "float16, bfloat16, float32"),
        ({"weight_scope": planq.Scope.tensor()}, "weight_scope", "got tensor"),
        ({"weight_scope": planq.Scope.channel(1)}, "weight_scope", r"got channel\(1\)"),
        ({"weight_scope": planq.Scope.group(8, 0)}, "weight_scope", "along the last axis"),
        ({"weight_mode": "asymmetric"}, "weight_mode", "channels have no zero point"),
        ({"accumulation": "sequential"}, "accumulation", "lanes, tensor_sm90 or groups_sm90"),
        ({"input_dtype": "float32", **TENSOR}, "accumulation", "expected lanes"),
        ({"weight_dtype": "float16", **TENSOR}, "accumulation", "got bfloat16 and float16"),
        ({"weight_layout": "packed"}, "weight_layout", "codes of 4 bits, got int8"),
        ({"weight_layout": "reordered"}, "weight_shape", "multiples of 64"),
        ({"bias_dtype": "int32"}, "bias_dtype", "float16"),
        ({"residual_dtype": "int32"}, "residual_dtype", "float16"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    usual: dict[str, Any] = {"input_shape": (4, 16), "weight_shape": (3, 16)}
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.LinearMixedDescriptor(**{**usual, "input_dtype": "bfloat16", **fields})
    assert caught.value.field == name
