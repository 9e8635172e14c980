"""`grouped_linear` on the host: the bits of one layer for each expert, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.ops.linear.float_layers import run
from planq.audit.ops.linear.grouped_linear.adapter import TESTS
from planq.audit.ops.linear.grouped_linear.reference import GroupedProblem
from planq.audit.ops.linear.linear_fp8.reference import BLOCKS
from planq.audit.reference.formats import Array, Arrays

EXPERTS, N, K = 4, 24, 256
GROUP, BLOCK = planq.Scope.group(128), planq.Scope.block(128, 128)
INT8 = {"input_dtype": "int8", "code_dtype": "int8", "output_dtype": "float32"}
FLOAT8 = {**INT8, "input_dtype": "float8_e4m3fn", "code_dtype": "float8_e5m2"}


def problem(rows: int, **fields: Any) -> GroupedProblem:
    """One of four experts."""
    return GroupedProblem((rows, K), (EXPERTS, N, K), **fields)


def output_of(made: GroupedProblem, given: Arrays) -> Array:
    """What the host computes."""
    return TESTS.run(made, **given)["output"]


@pytest.mark.parametrize(
    ("operator", "code_dtype", "fields"),
    [
        ("linear_4bit", "uint4", {"weight_mode": "asymmetric", "zero_point_dtype": "uint8"}),
        ("linear_4bit", "float4_e2m1fn", {"scale_dtype": "float8_e8m0fnu"}),
        ("linear_mixed", "int8", {"scale_dtype": "float16"}),
        ("linear_mixed", "float8_e4m3fn", {}),
    ],
)
def test_each_expert_is_a_layer(operator: str, code_dtype: str, fields: dict[str, Any]) -> None:
    """By planq's own operators, on the rows of the expert alone."""
    made = problem(11, code_dtype=code_dtype, weight_scope=("group", 32, 2), **fields)
    given = made.inputs("any", 3) | {"expert_offset": np.array([0, 3, 3, 10, 11], np.int32)}
    whole = output_of(made, given)
    for e, (first, end) in enumerate(((0, 3), (3, 3), (3, 10), (10, 11))):
        own = {name: each[e] for name, each in given.items() if name.startswith("weight")}
        alone = run(
            operator,
            {"input": given["input"][first:end], **own},
            input_shape=(end - first, K),
            weight_shape=(N, K),
            input_dtype="bfloat16",
            output_dtype="float32",
            code_dtype=code_dtype,
            weight_scope=("group", 32, 1),
            nibble_order="low_first",
            **fields,
        )
        assert whole[first:end].tobytes() == alone.tobytes()


@pytest.mark.parametrize("nested", [None, 16])
@pytest.mark.parametrize("codebook", ["nf4", "fp4", "given"])
def test_each_expert_is_a_layer_of_blocks(codebook: str, nested: int | None) -> None:
    """By linear_4bit, on the part of the blocks that an expert has; nested blocks fit into it."""
    blocks: dict[str, Any] = {
        "codebook": codebook,
        "block_size": 64,
        "nested_block_size": nested,
        "nibble_order": "high_first",
    }
    made = problem(11, **blocks)
    offset = np.array([0, 3, 3, 10, 11], np.int32)
    given = made.inputs("any", 3) | {"expert_offset": offset}
    whole = output_of(made, given)
    shared = ("codebook", "nested_offset", "nested_codebook")
    for e, (first, end) in enumerate(itertools.pairwise(offset.tolist())):
        own = {
            name: given[name] if name in shared else np.split(given[name], EXPERTS)[e]
            for name in {"weight", "absmax", "nested_absmax", *shared} & set(given)
        }
        alone = run(
            "linear_4bit",
            {"input": given["input"][first:end], **own},
            input_shape=(end - first, K),
            weight_shape=(N, K),
            input_dtype="bfloat16",
            output_dtype="float32",
            **blocks,
        )
        assert whole[first:end].tobytes() == alone.tobytes()


@pytest.mark.parametrize(
    ("operator", "input_dtype", "code_dtype", "scopes"),
    [
        ("linear_w8a8", "int8", "int8", (("token",), ("token",))),
        ("linear_fp8", "float8_e4m3fn", "float8_e4m3fn", (("token",), ("token",))),
        ("linear_fp8", "float8_e5m2", "float8_e4m3fn", BLOCKS),
    ],
)
def test_each_expert_is_a_layer_of_codes(
    operator: str, input_dtype: str, code_dtype: str, scopes: Any
) -> None:
    """By planq's own operators, with scales of both sides and a bias."""
    input_scope, weight_scope = scopes
    made = problem(
        11,
        input_dtype=input_dtype,
        code_dtype=code_dtype,
        input_scope=input_scope,
        weight_scope=weight_scope,
        bias_dtype="float16",
    )
    offset = np.array([0, 3, 3, 10, 11], np.int32)
    given = made.inputs("any", 3) | {"expert_offset": offset}
    whole = output_of(made, given)
    for e, (first, end) in enumerate(itertools.pairwise(offset.tolist())):
        alone = run(
            operator,
            {name: given[name][first:end] for name in ("input", "input_scale")}
            | {name: given[name][e] for name in ("weight", "weight_scale", "bias")},
            input_shape=(end - first, K),
            weight_shape=(N, K),
            input_dtype=input_dtype,
            weight_dtype=code_dtype,
            output_dtype="float32",
            bias_dtype="float16",
            input_scope=input_scope,
            weight_scope=("channel", 0) if weight_scope == ("token",) else weight_scope,
        )
        assert whole[first:end].tobytes() == alone.tobytes()


def test_the_routing_of_others_changes_no_bit() -> None:
    """A row of the third expert, with other rows before and behind it."""
    made = problem(9, weight_scope=("group", 64, 2))
    given = made.inputs("any", 1)
    row = given["input"][4].copy()
    wanted = None
    for offset, at in (((0, 2, 4, 5, 9), 4), ((0, 0, 0, 9, 9), 7), ((0, 1, 8, 9, 9), 8)):
        x = np.random.default_rng(at).standard_normal((9, K)).astype(row.dtype)
        x[at] = row
        changed = {**given, "input": x, "expert_offset": np.array(offset, np.int32)}
        found = output_of(made, changed)[at].tobytes()
        wanted = wanted or found
        assert found == wanted


@pytest.mark.parametrize(
    ("offset", "owners"),
    [
        ((2, 3, 3, 5, 6), (-1, -1, 0, 2, 2, 3, -1, -1, -1)),
        ((0, 9, 4, 9, 9), (0,) * 9),
        ((-7, 4, 2, 6, 99), (0, 0, 0, 0, 2, 2, 3, 3, 3)),
        ((5, 1, 2, 3, 4), (-1,) * 9),
        ((99, -5, 0, 3, -1), (-1,) * 9),
    ],
)
def test_rows_of_nobody_are_0(offset: tuple[int, ...], owners: tuple[int, ...]) -> None:
    """Whatever the offsets are, each row has one expert at most, and is written."""
    made = problem(9)
    given = made.inputs("any", 2) | {"expert_offset": np.array(offset, np.int32)}
    found = output_of(made, given)
    for row, expert in enumerate(owners):
        if expert < 0:
            assert found[row].tobytes() == bytes(4 * N)
            continue
        alone = {**given, "input": given["input"][row : row + 1]}
        alone["expert_offset"] = np.array([0] * (expert + 1) + [1] * (EXPERTS - expert), np.int32)
        assert output_of(problem(1), alone).tobytes() == found[row].tobytes()


def test_one_plan_for_every_number_of_rows() -> None:
    rows = planq.Dim("m", max=64)
    desc = replace(TESTS.descriptor(problem(64)), input_shape=(rows, K))
    plan = planq.Plan.select(planq.HOST, desc)
    for m in (0, 1, 7, 64):
        given = problem(m).inputs("any", m)
        want = problem(m).expected(given)["output"]
        output = np.empty_like(want)
        plan.run(planq.HOST, None, planq.GroupedLinearArgs(output=output, **given))
        assert output.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (2, 4, 64)}, "input_shape", r"expected \(m, k\)"),
        ({"weight_shape": (3, 64)}, "weight_shape", r"expected \(experts, n, k\)"),
        ({"weight_shape": (0, 3, 64)}, "weight_shape", "expected 1 to 1024 experts, got 0"),
        ({"weight_shape": (2, 3, 65)}, "weight_shape", "expected k = 64, got 65"),
        ({"input_dtype": "float32"}, "input_dtype", "bfloat16, float16, int8, float8_e4m3fn"),
        ({"code_dtype": "int32"}, "code_dtype", "uint4, int4, float4_e2m1fn"),
        ({"output_dtype": "int8"}, "output_dtype", "float32"),
        ({"weight_scope": planq.Scope.tensor()}, "weight_scope", "got tensor"),
        ({"weight_scope": planq.Scope.group(16, 1)}, "weight_scope", "groups of another"),
        ({"weight_scope": planq.Scope.group(48)}, "weight_scope", "multiple of 128 terms, got 48"),
        ({"scale_dtype": "float8_e8m0fnu"}, "scale_dtype", "is for groups"),
        ({"scale_dtype": "float64"}, "scale_dtype", "float32, bfloat16, float16"),
        ({"zero_point_dtype": "uint4"}, "zero_point_dtype", "int32, int8, uint8"),
        (
            {"code_dtype": "float4_e2m1fn", "weight_mode": "asymmetric"},
            "weight_mode",
            "float4_e2m1fn codes have no zero point",
        ),
        ({"bias_dtype": "int32"}, "bias_dtype", "float16"),
        ({"block_size": 0}, "block_size", "positive integer or None, got 0"),
        ({"block_size": 16}, "block_size", "32, 64 or a multiple of 128 that divides k = 64"),
        ({"block_size": 128}, "block_size", "divides k = 64, got 128"),
        ({"block_size": 32, "code_dtype": "int4"}, "code_dtype", "uint4, got int4"),
        ({"block_size": 32, "codebook": "dynamic"}, "codebook", "goes with code_dtype uint8"),
        (
            {"block_size": 32, "weight_scope": planq.Scope.group(32)},
            "weight_scope",
            r"expected token\(\), its default, beside block_size, got group",
        ),
        ({"block_size": 32, "weight_mode": "asymmetric"}, "weight_mode", "no zero point"),
        ({"block_size": 32, "scale_dtype": "float16"}, "scale_dtype", "absmax, which is float32"),
        ({"block_size": 32, "nested_block_size": -1}, "nested_block_size", "at least 1"),
        ({"codebook": "fp4"}, "codebook", "goes with block_size"),
        ({"input_scope": GROUP}, "input_scope", "goes with an input of int8"),
        ({"weight_scope": BLOCK}, "weight_scope", "got block"),
        ({"input_dtype": "int8", "code_dtype": "int8"}, "output_dtype", "required beside input"),
        ({**INT8, "code_dtype": "uint4"}, "code_dtype", "int8, got uint4 beside input_dtype int8"),
        ({**INT8, "block_size": 64}, "block_size", "goes with an input of bfloat16 or float16"),
        ({**INT8, "codebook": "fp4"}, "codebook", "goes with block_size"),
        ({**INT8, "weight_mode": "asymmetric"}, "weight_mode", "no zero points beside input"),
        ({**INT8, "scale_dtype": "float16"}, "scale_dtype", "float32 beside input_dtype int8"),
        ({**INT8, "zero_point_dtype": "int8"}, "zero_point_dtype", "goes with Mode.ASYMMETRIC"),
        ({**INT8, "input_scope": GROUP}, "input_scope", r"expected token\(\) beside .*, got group"),
        (
            {**INT8, "weight_scope": BLOCK},
            "weight_scope",
            r"expected token\(\) beside .* got block",
        ),
        (
            {**INT8, "input_shape": (1, 2**17), "weight_shape": (1, 1, 2**17)},
            "input_shape",
            "may leave int32, got k = 131072",
        ),
        ({**FLOAT8, "code_dtype": "int8"}, "code_dtype", "float8_e5m2, got int8 beside"),
        ({**FLOAT8, "weight_scope": planq.Scope.group(64)}, "weight_scope", "got group"),
        ({**FLOAT8, "input_scope": GROUP}, "weight_scope", r"expected block\(128, 128\) beside"),
        ({**FLOAT8, "weight_scope": BLOCK}, "input_scope", r"expected group\(128\) along"),
        ({"nested_block_size": 256}, "nested_block_size", "goes with block_size"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    usual: dict[str, Any] = {"input_shape": (4, 64), "weight_shape": (2, 3, 64)}
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.GroupedLinearDescriptor(**{**usual, "input_dtype": "bfloat16", **fields})
    assert caught.value.field == name
