"""Every operator from C: the kernel, the promise and the bits that Python gets."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import numpy as np
import pytest

import planq
from c.bench import CBench, CLaunchBench
from planq.audit import kernels
from planq.audit.memory import Host, Layout
from planq.audit.operators import Case, expected, inputs_of
from planq.audit.runner import Bench
from support import c_library as c
from support.own import ADAPTERS

HOST = Host()
CASES = 6  # of an operator; tests/registry runs all of them through the same kernels
TOLD = 3  # cases of which every text is compared: to explain one takes milliseconds
LISTS: Any = importlib.import_module("operators.list300")


def check(bench: Bench, case: Case, what: str) -> None:
    """Runs a case, and compares every byte with the reference."""
    inputs = inputs_of(case)
    kernels.check_bench(bench, case, inputs, expected(case), what)


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_an_operator_has_pythons_bits(name: str) -> None:
    """Those of the reference, with the SKU, the promise and the texts of Python's plan."""
    tests = ADAPTERS[name]
    cases = [*kernels.spread(tests.cases(), CASES), *kernels.spread(tests.empty_cases(), 3)]
    for number, case in enumerate(cases):
        bench = CBench(HOST, tests.descriptor(case.problem), pref=kernels.ANYTHING)
        if kernels.is_taken(bench):
            check(bench, case, f"{name} from C on {case.id}")
        if number % (len(cases) // TOLD or 1) == 0:
            check_texts(bench.plan)
    for case in kernels.spread(tests.cases(), 4):
        desc = tests.descriptor(case.problem)
        names = desc.operands()
        skewed = dict.fromkeys(names, Layout(offset=1, pitch=3))
        bound = CLaunchBench(HOST, desc, pref=kernels.ANYTHING, layouts=skewed)
        if kernels.is_taken(bound):
            check(bound, case, f"{name} bound from C on {case.id}")


def check_texts(plan: planq.Plan) -> None:
    """Everything that a plan says of itself, letter by letter."""
    made = c.Plan.of(plan)
    assert made.text("sku") == plan.sku
    assert made.text("to_json") == plan.to_json()
    assert json.loads(made.text("guarantee")) == plan.precision_guarantee().to_dict()
    assert made.text("explain") == json.dumps(plan.explain().to_dict())
    assert json.loads(made.text("operands")) == [
        {
            "name": spec.name,
            "role": spec.role,
            "dtype": spec.dtype,
            "shape": [e.to_dict() if isinstance(e, planq.Dim) else e for e in spec.shape],
            "storage": spec.storage,
            "optional": spec.optional,
            "kind": spec.kind,
            "shapes": [list(shape) for shape in spec.shapes],
        }
        for spec in plan.descriptor.operands().values()
    ]
    check_operands(plan, made)
    again = c.Plan.from_json(plan.to_json())
    assert again.text("to_json") == plan.to_json()


ROLES, KINDS = ("input", "output", "inout"), ("tensor", "list", "scalar")


def check_operands(plan: planq.Plan, made: c.Plan) -> None:
    """What planq_plan_operand says, for the largest extents and for smaller ones."""
    for extents in ({}, {dim.name: dim.max // 2 for dim in plan.descriptor.dims()}):
        found = made.operands(**extents)
        specs = plan.descriptor.operands().values()
        assert [info.name.decode() for info in found] == [spec.name for spec in specs]
        for index, (info, spec) in enumerate(zip(found, specs, strict=True)):
            assert (ROLES[info.role], KINDS[info.kind]) == (spec.role, spec.kind)
            assert (info.dtype.decode(), info.optional) == (spec.dtype, spec.optional)
            storage = c.tensor((None, (), None, spec.storage, "host")).dtype
            assert (info.code, info.bits) == (storage.code, storage.bits)
            listed = spec.kind == planq.OperandKind.LIST
            assert info.members == (len(spec.shapes) if listed else 1)
            whole = tuple(extents.get(e.name, e.max) if isinstance(e, planq.Dim) else e
                          for e in spec.shape)  # fmt: skip
            for member, shape in enumerate(spec.shapes if listed else (whole,)):
                one = made.operand(index, member, **extents)
                assert tuple(one.shape[: one.ndim]) == shape
                assert one.bytes == math.prod(shape) * ((storage.bits + 7) // 8)
                assert not any(one.shape[one.ndim :])


def test_an_operand_that_a_plan_has_not_is_refused() -> None:
    """One behind the last, a member of what has none, extents that are not the plan's."""
    made = c.Plan.of(planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(3,), (4,)])))
    assert len(made.operands()) == 4
    for index, member, sentence in (
        (4, 0, "index: expected less than the 4 operands, got 4"),
        (2**64 - 1, 0, f"index: expected less than the 4 operands, got {2**64 - 1}"),
        (0, 2, "member: expected less than 2, got 2"),
        (2, 1, "member: expected less than 1, got 1"),
    ):
        with pytest.raises(c.Refused) as refused:
            made.operand(index, member)
        assert (refused.value.code, refused.value.message) == ("argument", sentence)
    with pytest.raises(c.Refused, match="extents: expected one for each of 0 Dims, got 1"):
        made.operand(0, 0, m=3)
    none = c.Plan.of(planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[])))
    empty = none.operand(0)
    assert (empty.members, empty.ndim, empty.bytes) == (0, 0, 0)
    with pytest.raises(c.Refused, match="member: expected less than 0, got 1"):
        none.operand(0, 1)


def test_the_operators_are_those_of_python() -> None:
    """With the fields, the operands and the kernels of each, as the registry declares them."""
    listed = {entry["name"]: entry for entry in json.loads(c.text("planq_operators"))}
    for operator in planq.operators():
        found = listed[operator.name]
        assert tuple(field["name"] for field in found["fields"]) == operator.fields
        assert tuple(entry["name"] for entry in found["operands"]) == operator.operands
        rows = {(kernel["sku"], kernel["body"]): kernel for kernel in found["kernels"]}
        assert rows.keys() == {(kernel.sku, kernel.body) for kernel in operator.kernels}
        for kernel in operator.kernels:
            row = rows[kernel.sku, kernel.body]
            assert row["guarantee"] == kernel.guarantee.to_dict()
            assert row["revision"] == kernel.revision


def test_one_plan_serves_every_number_of_rows() -> None:
    """A Dim's extent is the operands'; workspace is asked for by name."""
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=(planq.Dim("m", 64), 40), input_dtype="float32", output_dtype="int8"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    check_texts(plan)
    made = c.Plan.of(plan)
    for rows in (0, 1, 7, 64):
        x = ((np.arange(rows * 40) * 37 % 101 - 50.5) / 8).astype(np.float32).reshape(rows, 40)
        q, s = np.full((rows, 40), -99, np.int8), np.full(rows, -1, np.float32)
        made.run({"input": x, "output": q, "scale": s})
        scale = np.abs(x).max(axis=1) / np.float32(127)
        np.testing.assert_array_equal(s, scale)
        np.testing.assert_array_equal(q, np.rint(x / scale[:, None]))
        assert made.workspace_size(m=rows) == plan.workspace_size(m=rows)


@pytest.mark.parametrize("count", [0, 3, 300])
def test_lists_and_numbers_by_value_are_taken(count: int) -> None:
    """`parameter -= rate * gradient`, and the sums of the result."""
    plan = planq.Plan.select(planq.HOST, LISTS.List300Descriptor(shapes=[(3,)] * count))
    parameter = [np.full(3, i, np.float32) for i in range(count)]
    gradient = [np.full(3, 2 * i, np.float32) for i in range(count)]
    sums = np.full(count, np.nan)
    given = {"parameter": parameter, "gradient": gradient, "rate": 0.25, "sums": sums}
    args = LISTS.List300Args(**{**given, "parameter": [p.copy() for p in parameter]})
    made = c.Plan.of(plan)
    made.run(given)
    np.testing.assert_array_equal(np.array([p[0] for p in parameter]), 0.5 * np.arange(count))
    through_c = sums.copy()
    plan.run(planq.HOST, None, args)
    assert through_c.tobytes() == sums.tobytes()


def test_strides_that_are_null_mean_compact() -> None:
    """As DLPack has it."""
    desc = planq.DynamicRangeQuantizeDescriptor(
        shape=(6, 32), input_dtype="float32", output_dtype="int8"
    )
    x = ((np.arange(192) * 37 % 101 - 50.5) / 8).astype(np.float32).reshape(6, 32)
    q, s = np.full((6, 32), -99, np.int8), np.full(6, -1, np.float32)
    given = {
        name: (array.ctypes.data, array.shape, None, array.dtype.name, "host")
        for name, array in (("input", x), ("output", q), ("scale", s))
    }
    c.Plan.select(desc.to_json()).run(given)
    np.testing.assert_array_equal(q, np.rint(x / s[:, None]))
