"""One plan of two operators: the bits of their own plans, its workspace, its words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.from_reference import HOST_DEVICE, make_descriptor
from planq.audit.operators import inputs_of
from planq.audit.ops.linear.linear_w8a8_dynamic.cases import cases
from planq.audit.reference.formats import Array
from planq.audit.runner import Bench


def outputs(operator: str, given: dict[str, Array], **fields: Any) -> dict[str, Array]:
    """Of a plan of its own."""
    bench = Bench(HOST_DEVICE, make_descriptor(operator, **fields))
    bench.load(given)
    bench.run()
    return bench.outputs()


@pytest.mark.parametrize("case", cases()[::9], ids=lambda case: case.id)
def test_the_bits_are_those_of_the_two_plans(case: Any) -> None:
    problem, given = case.problem, inputs_of(case)
    codes = problem.code_dtype or "int8"
    quantized = outputs(
        "dynamic_range_quantize",
        {"input": given["input"]},
        shape=problem.input_shape,
        input_dtype=problem.input_dtype,
        output_dtype=codes,
        scope=problem.input_scope,
        mode=problem.input_mode,
        scale_dtype=problem.layer.scales,
        quotient=problem.quotient,
        nonfinite=problem.nonfinite,
    )
    handed = {name: values for name, values in given.items() if name != "input"}
    handed["input"], handed["input_scale"] = quantized["output"], quantized["scale"]
    if "zero_point" in quantized:
        handed["input_zero_point"] = quantized["zero_point"]
    if problem.weight_mode == "asymmetric":
        sums = outputs(
            "code_sum",
            {"input": quantized["output"]},
            shape=problem.input_shape,
            input_dtype=codes,
        )
        handed["input_sum"] = sums["output"]
    fields = {name: getattr(problem.layer, name) for name in problem.layer.__dataclass_fields__}
    two = outputs("linear_w8a8", handed, **fields)
    bench = Bench(HOST_DEVICE, make_descriptor("linear_w8a8_dynamic", **vars(problem)))
    bench.load(given)
    bench.run()
    assert bench.outputs()["output"].tobytes() == two["output"].tobytes()


def descriptor(**fields: Any) -> planq.LinearW8A8DynamicDescriptor:
    """A layer of 8 x 64 activations and 16 columns."""
    shapes = {"input_shape": (8, 64), "weight_shape": (16, 64)}
    dtypes = {"input_dtype": "bfloat16", "output_dtype": "bfloat16"}
    return planq.LinearW8A8DynamicDescriptor(**(shapes | dtypes | fields))


def test_the_workspace_holds_codes_and_scales_alone() -> None:
    """Each piece on a boundary of its own; the parts need nothing here."""
    aligned = planq.WORKSPACE_ALIGNMENT
    pieces = [8 * 64, 8 * 4]
    plan = planq.Plan.select(planq.HOST, descriptor())
    assert plan.workspace_size() == sum(-(-size // aligned) * aligned for size in pieces)
    rows = planq.Dim("m", max=1000)
    flexible = planq.Plan.select(planq.HOST, descriptor(input_shape=(rows, 64)))
    assert flexible.workspace_size(m=8) == plan.workspace_size()
    assert flexible.workspace_size() == 64000 + 4096


FAULTS = {
    "another k": ("weight_shape", {"weight_shape": (16, 65)}, "expected k = 64"),
    "codes without a sign": ("input_mode", {"code_dtype": "uint8"}, "use Mode.ASYMMETRIC"),
    "floating codes": ("code_dtype", {"code_dtype": "float16"}, "int8, uint8, int4, uint4"),
    "codes as input": ("input_dtype", {"input_dtype": "int8"}, "float16"),
    "a scope of groups": ("input_scope", {"input_scope": planq.Scope.group(32)}, "token()"),
    "absolute maxima": ("convention", {"convention": "bitsandbytes"}, "planq or baracuda"),
    "too long": (
        "input_shape",
        {"input_shape": (1, 200_000), "weight_shape": (1, 200_000)},
        "int32",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_part_has_the_names_of_the_whole(fault: str) -> None:
    field, changed, words = FAULTS[fault]
    with pytest.raises(planq.DescriptorError) as raised:
        descriptor(**changed)
    assert raised.value.field == field
    assert words in str(raised.value)


def test_one_row_alone_and_among_others_has_the_same_bits() -> None:
    """Under `token()`, whatever the other rows hold."""
    rng = np.random.default_rng(7)
    weight = rng.integers(-127, 128, (48, 96), dtype=np.int8)
    scale = rng.random(48, np.float32)
    x = rng.standard_normal((33, 96), np.float32)
    x[5] *= 1e6

    def layer(rows: Array) -> Array:
        given = {"input": rows, "weight": weight, "weight_scale": scale}
        fields = {"input_dtype": "float32", "output_dtype": "float32"}
        shapes = {"input_shape": rows.shape, "weight_shape": weight.shape}
        return outputs("linear_w8a8_dynamic", given, **shapes, **fields)["output"]

    whole = layer(x)
    for row in range(33):
        assert layer(x[row : row + 1]).tobytes() == whole[row].tobytes()
