"""`linear_fp8` on the host: what its scales are good for, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.linear_fp8.adapter import TESTS
from planq.audit.ops.linear.linear_fp8.reference import BLOCKS, Fp8Problem

GROUP, BLOCK = planq.Scope.group(128), planq.Scope.block(128, 128)


def test_every_size_of_edge() -> None:
    """Rows, columns and terms of every remainder, with scales of rows and of blocks."""
    scopes = itertools.cycle(((("token",), ("channel", 0)), BLOCKS))
    for m, n in itertools.product((1, 2, 3, 5, 9, 97), (1, 15, 16, 17, 33, 127, 129, 257)):
        k = (1, 31, 32, 33, 127, 128, 129, 300)[(m + n) % 8]
        problem = Fp8Problem((m, k), (n, k), "float32", "float8_e4m3fn", "float8_e5m2")
        input_scope, weight_scope = next(scopes)
        problem = replace(problem, input_scope=input_scope, weight_scope=weight_scope)
        TESTS.check(problem, **problem.inputs("any", m + n))


def test_scales_of_one_are_matmuls_bits_in_either_form() -> None:
    """Blocks and rows differ in their scales alone."""
    rows = Fp8Problem((9, 300), (140, 300))
    blocks = replace(rows, input_scope=BLOCKS[0], weight_scope=BLOCKS[1])
    given = rows.inputs("any", 3)
    made = []
    for problem in (rows, blocks):
        scales = {
            f"{side}_scale": np.ones(problem.scales(side), np.float32)
            for side in ("input", "weight")
        }
        made.append(TESTS.run(problem, **{**given, **scales})["output"])
    assert made[0].tobytes() == made[1].tobytes()


@pytest.mark.parametrize("scopes", [(("token",), ("channel", 0)), BLOCKS], ids=("rows", "blocks"))
def test_threads_and_rows_change_no_bit(scopes: Any) -> None:
    """One row alone, all rows, one thread, many: the same bits."""
    problem = Fp8Problem((40, 500), (300, 500), input_scope=scopes[0], weight_scope=scopes[1])
    given = problem.inputs("any", 1)
    whole = TESTS.run(problem, **given)["output"]
    assert (TESTS.run(problem, Host(7), **given)["output"] == whole).all()
    for row in (0, 17, 39):
        alone = problem.cut(given, slice(row, row + 1))
        assert (TESTS.run(problem.with_rows(1), **alone)["output"] == whole[row : row + 1]).all()


def test_scales_are_near_those_of_the_dequantized_product() -> None:
    """Each block has its own: in float64, codes times scales."""
    problem = Fp8Problem((6, 300), (260, 300), input_scope=BLOCKS[0], weight_scope=BLOCKS[1])
    given = problem.inputs("any", 2)
    a, w = (given[name].astype(np.float64) for name in ("input", "weight"))
    a *= given["input_scale"].repeat(128, axis=1)[:, :300]
    w *= given["weight_scale"].repeat(128, axis=0).repeat(128, axis=1)[:260, :300]
    error = np.abs(TESTS.run(problem, **given)["output"] - a @ w.T)
    assert (error <= np.abs(a) @ np.abs(w).T * 2.0**-9).all()


def test_one_plan_for_every_number_of_rows() -> None:
    """Of 64 rows at most, with the bits of a plan for each."""
    rows = planq.Dim("m", max=64)
    for scopes in ((("token",), ("channel", 0)), BLOCKS):
        fields = {"input_scope": scopes[0], "weight_scope": scopes[1]}
        problem = Fp8Problem((64, 200), (40, 200), "bfloat16", **fields)
        desc = replace(TESTS.descriptor(problem), input_shape=(rows, 200))
        plan = planq.Plan.select(planq.HOST, desc)
        for m in (0, 1, 7, 64):
            given = problem.with_rows(m).inputs("any", m)
            want = problem.with_rows(m).expected(given)["output"]
            output = np.empty_like(want)
            plan.run(planq.HOST, None, planq.LinearFp8Args(output=output, **given))
            assert output.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (5,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"weight_shape": (2, 3, 5)}, "weight_shape", r"expected \(n, k\)"),
        ({"weight_shape": (3, 6)}, "weight_shape", "expected k = 5"),
        ({"input_dtype": "bfloat16"}, "input_dtype", "float8_e4m3fn, float8_e5m2"),
        ({"weight_dtype": "int8"}, "weight_dtype", "float8_e4m3fn, float8_e5m2"),
        ({"output_dtype": "float64"}, "output_dtype", "float16, bfloat16, float32"),
        ({"bias_dtype": "int32"}, "bias_dtype", "float16"),
        ({"residual_dtype": "int32"}, "residual_dtype", "float16"),
        ({"accumulation": "lanes"}, "accumulation", "expected tensor_sm90, got lanes"),
        ({"input_scope": planq.Scope.channel(0)}, "input_scope", "token"),
        ({"weight_scope": planq.Scope.channel(1)}, "weight_scope", "channel"),
        ({"input_scope": GROUP}, "weight_scope", r"expected block\(128, 128\) beside group\(128\)"),
        ({"weight_scope": BLOCK}, "input_scope", r"expected group\(128\) along the last axis"),
        ({"input_scope": planq.Scope.group(64), "weight_scope": BLOCK}, "input_scope", "128"),
        ({"input_scope": planq.Scope.group(128, 0), "weight_scope": BLOCK}, "input_scope", "last"),
        (
            {"input_scope": GROUP, "weight_scope": planq.Scope.block(64, 128)},
            "weight_scope",
            "128",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    usual: dict[str, Any] = {"input_shape": (4, 5), "weight_shape": (3, 5)}
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.LinearFp8Descriptor(**{**usual, "output_dtype": "float32", **fields})
    assert caught.value.field == name
