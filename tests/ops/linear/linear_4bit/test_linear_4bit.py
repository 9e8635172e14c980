"""`linear_4bit` on the host: fused and unfused bits, layouts of blocks, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.float_layers import run
from planq.audit.ops.linear.linear_4bit.adapter import TESTS
from planq.audit.ops.linear.linear_4bit.reference import STATISTICS, FourBitProblem
from planq.audit.reference.formats import Array, Arrays

ORDERS = ("tensor_sm90", "lanes")
TENSOR = {"accumulation": "tensor_sm90"}
CODEBOOKS = ("nf4", "fp4", "af4", "int4", "given")
GROUPS: dict[str, Any] = {"weight_scope": ("group", 32, 1), "weight_mode": "asymmetric"}


def given_back(problem: FourBitProblem, given: Arrays) -> Array:
    """The weights by planq's own dequantization."""
    shape = {"shape": problem.weight_shape, "output_dtype": problem.values}
    if problem.block_size:
        return run(
            "blockwise_dequantize",
            {"input": given["weight"]}
            | {name: given[name] for name in STATISTICS if name in given},
            **shape,
            input_dtype="uint4",
            codebook=problem.codebook,
            block_size=problem.block_size,
            nested_block_size=problem.nested_block_size,
        )
    return run(
        "dequantize",
        {
            "input": given["weight"],
            "scale": given["weight_scale"],
            "zero_point": given["weight_zero_point"],
        },
        **shape,
        input_dtype=problem.code_dtype,
        scope=problem.weight_scope,
        mode="asymmetric",
        nibble_order=problem.nibble_order,
    )


@pytest.mark.parametrize("accumulation", ORDERS)
@pytest.mark.parametrize("convention", ["mx", "nvfp4"])
def test_formats_of_groups_are_those_of_dequantize(convention: str, accumulation: str) -> None:
    """To the bit: the operands that dequantize takes, and matmul."""
    mx = convention == "mx"
    scope = ("group", 32 if mx else 16, 1)
    scale_dtype = "float8_e8m0fnu" if mx else "float8_e4m3fn"
    problem = FourBitProblem(
        (5, 320),
        (40, 320),
        code_dtype="float4_e2m1fn",
        weight_scope=scope,
        scale_dtype=scale_dtype,
        nibble_order="low_first",
        accumulation=accumulation,
    )
    given = problem.inputs("any", 4)
    operands = {"input": given["weight"], "scale": given["weight_scale"]}
    if not mx:
        operands["tensor_scale"] = given["tensor_scale"]
    weight = run(
        "dequantize",
        operands,
        shape=(40, 320),
        input_dtype="float4_e2m1fn",
        output_dtype="bfloat16",
        scope=scope,
        convention=convention,
    )
    product = run(
        "matmul",
        {"input": given["input"], "weight": weight},
        input_shape=(5, 320),
        weight_shape=(40, 320),
        input_dtype="bfloat16",
        output_dtype="float32",
        accumulation=accumulation,
    )
    assert TESTS.run(problem, **given)["output"].tobytes() == product.tobytes()


@pytest.mark.parametrize("accumulation", ORDERS)
@pytest.mark.parametrize("form", [*CODEBOOKS, "int4 groups", "uint4 groups"])
def test_fused_is_a_dequantization_and_a_product(form: str, accumulation: str) -> None:
    """To the bit: blockwise_dequantize or dequantize, then matmul."""
    shapes = [((1, 96), (5, 96)), ((9, 320), (70, 320))]
    fields: dict[str, Any] = {"codebook": form, "block_size": 64}
    if form.endswith("groups"):
        fields = {**GROUPS, "code_dtype": form.split()[0]}
    else:
        shapes.append(((4, 67), (33, 67)))
    for (x, w), dtype, nested in itertools.product(
        shapes, ("bfloat16", "float16"), (None, 16) if form in CODEBOOKS else (None,)
    ):
        problem = FourBitProblem(
            x, w, dtype, accumulation=accumulation, nested_block_size=nested, **fields
        )
        given = problem.inputs("any", x[0])
        product = run(
            "matmul",
            {"input": given["input"], "weight": given_back(problem, given)},
            input_shape=x,
            weight_shape=w,
            input_dtype=dtype,
            output_dtype="float32",
            accumulation=accumulation,
        )
        assert TESTS.run(problem, **given)["output"].tobytes() == product.tobytes()


@pytest.mark.parametrize("accumulation", ORDERS)
def test_every_size_of_edge(accumulation: str) -> None:
    """Rows, columns, terms and blocks of every remainder; odd terms share bytes with the next."""
    sizes = itertools.cycle((1, 2, 3, 16, 31, 64, 4096))
    for m, n in itertools.product((1, 3, 5, 97), (1, 2, 15, 17, 33)):
        k = (1, 3, 16, 17, 31, 127, 129, 150)[(m + n) % 8]
        problem = FourBitProblem((m, k), (n, k), block_size=next(sizes), accumulation=accumulation)
        TESTS.check(problem, **problem.inputs("any", m + n))


def test_codes_and_parameters_of_groups_may_lie_apart() -> None:
    """Rows of the weights, of scales and of zero points with room behind them."""
    problem = FourBitProblem((3, 96), (7, 96), **GROUPS)
    given = problem.inputs("any", 1)
    whole = TESTS.run(problem, **given)["output"]
    apart = {
        name: np.concatenate([given[name], given[name]], axis=1)[:, : given[name].shape[1]]
        for name in ("weight", "weight_scale", "weight_zero_point")
    }
    output = np.empty_like(whole)
    plan = planq.Plan.select(planq.HOST, TESTS.descriptor(problem))
    operands = {**given, **apart}
    plan.run(planq.HOST, None, planq.Linear4BitArgs(output=output, **operands))
    assert output.tobytes() == whole.tobytes()


@pytest.mark.parametrize("accumulation", ORDERS)
def test_threads_and_rows_change_no_bit(accumulation: str) -> None:
    """One row alone, all rows, one thread, many: the same bits."""
    problem = FourBitProblem((40, 300), (200, 300), block_size=64, accumulation=accumulation)
    given = problem.inputs("any", 1)
    whole = TESTS.run(problem, **given)["output"]
    assert (TESTS.run(problem, Host(7), **given)["output"] == whole).all()
    for row in (0, 17, 39):
        alone = problem.cut(given, slice(row, row + 1))
        assert (TESTS.run(problem.with_rows(1), **alone)["output"] == whole[row : row + 1]).all()


@pytest.mark.parametrize("accumulation", ORDERS)
def test_layouts_change_no_bit(accumulation: str) -> None:
    """By planq's own operators: packed codes of blocks and of groups, reordered ones of groups."""
    blocks = FourBitProblem((3, 130), (70, 130), block_size=32, accumulation=accumulation)
    given = blocks.inputs("any", 1)
    matrix = given["weight"].reshape(70, 65)
    fields = {"weight_shape": (70, 130), "nibble_order": "high_first"}
    packed = run("pack_weight_4bit", {"input": matrix}, **fields)
    tiled = replace(blocks, weight_layout="packed")
    whole = TESTS.run(blocks, **given)["output"]
    assert (TESTS.run(tiled, **{**given, "weight": packed})["output"] == whole).all()
    groups = FourBitProblem(
        (3, 192),
        (64, 192),
        code_dtype="int4",
        nibble_order="low_first",
        accumulation=accumulation,
        **GROUPS,
    )
    given = groups.inputs("any", 2)
    whole = TESTS.run(groups, **given)["output"]
    made = {
        "packed": ("pack_weight_4bit", {"weight_shape": (64, 192), "code_dtype": "int4"}),
        "reordered": (
            "reorder_mixed_dtype_weight",
            {"shape": (192, 64), "input_dtype": "int4", "transpose": True},
        ),
    }
    for layout, (operator, fields) in made.items():
        weight = run(operator, {"input": given["weight"]}, **fields)
        tiled = replace(groups, nibble_order="high_first", weight_layout=layout)
        assert (TESTS.run(tiled, **{**given, "weight": weight})["output"] == whole).all()


def test_one_plan_for_every_number_of_rows() -> None:
    """Of 64 rows at most, with the bits of a plan for each."""
    rows = planq.Dim("m", max=64)
    for form in ({"block_size": 64}, GROUPS):
        problem = FourBitProblem((64, 96), (40, 96), **form)
        desc = replace(TESTS.descriptor(problem), input_shape=(rows, 96))
        plan = planq.Plan.select(planq.HOST, desc)
        for m in (0, 1, 7, 64):
            given = problem.with_rows(m).inputs("any", m)
            want = problem.with_rows(m).expected(given)["output"]
            output = np.empty_like(want)
            plan.run(planq.HOST, None, planq.Linear4BitArgs(output=output, **given))
            assert output.tobytes() == want.tobytes()


def test_defaults_are_bitsandbytes() -> None:
    """NF4, the first code in the high nibble, weights and outputs in the type of the input."""
    desc = planq.Linear4BitDescriptor(
        input_shape=(4, 64), weight_shape=(3, 64), input_dtype="float16", block_size=64
    )
    assert desc.weight_dtype is desc.output_dtype is planq.DType.FLOAT16
    assert planq.Plan.select(planq.HOST, desc).sku == "linear_4bit/host/groups_sm90/f16_f16"


GROUP = planq.Scope.group(8)
FLOATS = {"block_size": None, "weight_scope": GROUP, "code_dtype": "float4_e2m1fn"}


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"input_shape": (5,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"weight_shape": (2, 3, 5)}, "weight_shape", r"expected \(n, k\)"),
        ({"weight_shape": (3, 6)}, "weight_shape", "expected k = 16"),
        ({"input_dtype": "float64"}, "input_dtype", "float16, bfloat16, float32"),
        ({"code_dtype": "uint8"}, "code_dtype", "uint4, int4"),
        ({"code_dtype": "int4"}, "code_dtype", "expected one of uint4, got int4"),
        ({"weight_dtype": "float64"}, "weight_dtype", "float16, bfloat16, float32"),
        ({"output_dtype": "int8"}, "output_dtype", "float16, bfloat16, float32"),
        ({"codebook": "dynamic"}, "codebook", "dynamic goes with code_dtype uint8"),
        ({"weight_scope": GROUP}, "weight_scope", r"expected tensor\(\), its default"),
        ({"weight_mode": "asymmetric"}, "weight_mode", "no zero point"),
        ({"block_size": None}, "block_size", "or groups as weight_scope"),
        ({"block_size": None, "weight_scope": planq.Scope.token()}, "weight_scope", "got token"),
        (
            {"block_size": None, "weight_scope": planq.Scope.group(1, 0)},
            "weight_scope",
            "groups along the last axis",
        ),
        ({"block_size": None, "weight_scope": GROUP, "codebook": "fp4"}, "codebook", "leave it"),
        (
            {"block_size": None, "weight_scope": GROUP, "nested_block_size": 2},
            "nested_block_size",
            "goes with block_size",
        ),
        ({"accumulation": "sequential"}, "accumulation", "lanes, tensor_sm90 or groups_sm90"),
        ({"input_dtype": "float32", **TENSOR}, "accumulation", "expected lanes"),
        ({"weight_dtype": "float16", **TENSOR}, "accumulation", "got bfloat16 and float16"),
        ({"weight_layout": "reordered"}, "weight_layout", "for signed codes, got uint4"),
        (
            {
                "block_size": None,
                "weight_scope": GROUP,
                "code_dtype": "int4",
                "weight_layout": "reordered",
            },
            "weight_shape",
            "multiples of 64",
        ),
        (
            {"weight_layout": "packed", "nibble_order": "low_first"},
            "nibble_order",
            "an order of its own",
        ),
        ({"bias_dtype": "int32"}, "bias_dtype", "float16"),
        ({"residual_dtype": "int32"}, "residual_dtype", "float16"),
        ({"scale_dtype": "bfloat16"}, "scale_dtype", "blocks have an absmax"),
        ({"code_dtype": "float4_e2m1fn"}, "code_dtype", "expected one of uint4, got"),
        ({**FLOATS, "scale_dtype": "float64"}, "scale_dtype", "float32, bfloat16, float16"),
        ({**FLOATS, "zero_point_dtype": "int8"}, "zero_point_dtype", "goes with Mode.ASYMMETRIC"),
        ({**FLOATS, "weight_mode": "asymmetric"}, "weight_mode", "codes have no zero point"),
        ({**FLOATS, "weight_layout": "packed"}, "weight_layout", "is for integers"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    usual: dict[str, Any] = {"input_shape": (4, 16), "weight_shape": (3, 16), "block_size": 64}
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.Linear4BitDescriptor(**{**usual, "input_dtype": "bfloat16", **fields})
    assert caught.value.field == name
