"""The kernels of a SKU: which of them runs, why the others do not, and what does not depend on it.

On the tests' own product, one of whose bodies takes few rows, and leaves operands that begin
between vectors to the other.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array
from support import c_library as c

PRODUCT: Any = importlib.import_module("operators.matmul3")
SKU = "matmul3/host/in_order"
EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)
N, K = 3, 20


def descriptor(rows: int | planq.Dim) -> planq.Descriptor:
    """A product of so many rows."""
    made: planq.Descriptor = PRODUCT.Matmul3Descriptor(
        a_shape=(rows, K), b_shape=(N, K), output_shape=(rows, N)
    )
    return made


def plan_of(rows: int | planq.Dim, pref: planq.PlanPreference = EXACT) -> planq.Plan:
    """A plan of it."""
    return planq.Plan.select(planq.HOST, descriptor(rows), pref)


def operands(rows: int, shift: int = 0) -> Any:
    """Numbers; `a` begins so many bytes after a vector."""
    memory = np.zeros(rows * K * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 16 + shift
    a = memory[start : start + rows * K * 4].view(np.float32).reshape(rows, K)
    a[:] = np.random.default_rng(rows).standard_normal((rows, K))
    b = np.random.default_rng(9).standard_normal((N, K)).astype(np.float32)
    return PRODUCT.Matmul3Args(a=a, b=b, output=np.zeros((rows, N), np.float32))


def chosen(bodies: tuple[planq.Body, ...]) -> str:
    """The one that runs."""
    (name,) = (body.name for body in bodies if body.chosen)
    return name


@pytest.mark.parametrize(("rows", "runs"), [(0, "few"), (1, "few"), (4, "few"), (5, "rows")])
def test_a_plan_lists_the_bodies_of_its_sku(rows: int, runs: str) -> None:
    """In the order of preference, those of fixed extents as those of a Dim at these extents."""
    fixed, of_any = plan_of(rows), plan_of(planq.Dim("m", 9))
    assert fixed.sku == of_any.sku == SKU
    assert [body.name for body in fixed.bodies()] == ["few", "rows"]
    assert fixed.bodies() == of_any.bodies(m=rows)
    assert chosen(fixed.bodies()) == runs
    reason = "" if runs == "few" else f"has up to 4 rows, not {rows}"
    assert [body.reason for body in fixed.bodies()] == [reason, ""]


def test_without_extents_it_is_the_largest() -> None:
    """As selection sees them."""
    plan = plan_of(planq.Dim("m", 9))
    assert plan.bodies() == plan.bodies(m=9)
    found = plan.explain().chosen
    assert found is not None
    assert (found.sku, found.body) == (SKU, "rows")


@pytest.mark.parametrize("m", [-1, 10])
def test_extents_outside_of_a_dim_are_refused(m: int) -> None:
    """As workspace_size refuses them."""
    plan = plan_of(planq.Dim("m", 9))
    with pytest.raises(planq.DescriptorError, match=f"expected 0 to 9, got {m}"):
        plan.bodies(m=m)
    with pytest.raises(TypeError):
        plan.bodies(k=1)


@pytest.mark.parametrize(("rows", "shift", "runs"), [(4, 0, "few"), (4, 4, "rows"), (9, 0, "rows")])
def test_a_launch_names_the_body_that_runs(rows: int, shift: int, runs: str) -> None:
    """By the extents of the call, and by where its operands lie; the bits are the same."""
    plan = plan_of(planq.Dim("m", 9))
    args = operands(rows, shift)
    launch = plan.bind(None, args)
    assert launch.body == runs
    launch(planq.HOST)
    assert args.output.tobytes() == in_order(args.a, args.b).tobytes()


def in_order(a: Array, b: Array) -> Array:
    """Float32 sums in the order of terms."""
    sums = np.zeros((len(a), len(b)), np.float32)
    for k in range(K):
        sums += a[:, k, None] * b[None, :, k]
    return sums


def test_a_pinned_body_is_the_only_one() -> None:
    """Also where a Dim's extent would be another's; a pinned SKU keeps both."""
    pinned = planq.PlanPreference(sku=SKU, body="rows")
    plan = plan_of(planq.Dim("m", 9), pinned)
    assert [body.reason for body in plan.bodies(m=2)] == ["the preference pins the body rows", ""]
    assert plan.bind(None, operands(2)).body == "rows"
    open_plan = plan_of(planq.Dim("m", 9), planq.PlanPreference(sku=SKU))
    assert open_plan.bind(None, operands(2)).body == "few"
    with pytest.raises(planq.NoKernelError, match="has up to 4 rows, not 9"):
        plan_of(9, planq.PlanPreference(body="few"))


def test_a_stored_plan_does_not_depend_on_the_body() -> None:
    """What it records is the same whichever runs, and holds wherever either does."""
    few, rows = (plan_of(4, planq.PlanPreference(sku=SKU, body=body)) for body in (None, "rows"))
    stored = json.loads(few.to_json())
    assert stored["preference"].pop("body") is None
    assert "few" not in json.dumps(stored)
    assert "rows" not in json.dumps(stored)
    pinned = json.loads(rows.to_json())
    assert pinned["preference"].pop("body") == "rows"
    assert stored == pinned
    assert chosen(planq.Plan.from_json(planq.HOST, rows.to_json()).bodies()) == "rows"
    assert planq.Plan.from_json(planq.HOST, few.to_json()).sku == SKU


def test_explain_shows_the_bodies_of_a_sku_as_a_group() -> None:
    """The SKU stands once, above its bodies."""
    table = str(planq.explain(descriptor(4), EXACT)).splitlines()
    first = next(number for number, line in enumerate(table) if line.startswith(f"{SKU}  few"))
    assert table[first].endswith("chosen")
    assert table[first + 1].split()[0] == "rows"
    assert table[first + 1].startswith(" " * len(SKU))


@pytest.mark.parametrize("rows", [3, 9])
def test_c_says_the_same(rows: int) -> None:
    """Of a plan and of a bound launch."""
    plan = plan_of(planq.Dim("m", 9))
    made = c.Plan.of(plan)
    for extents in ({}, {"m": rows}):
        listed = json.loads(made.bodies(**extents))
        kinds = [body.pop("reason_kind") for body in listed]
        assert set(kinds) <= {"accepted", "shape"}
        assert [
            planq.Body(**{**body, "constraints": tuple(body["constraints"])}) for body in listed
        ] == list(plan.bodies(**extents))
    args = operands(rows)
    launch = made.bind({"a": args.a, "b": args.b, "output": args.output})
    assert c.text("planq_launch_body", launch.handle) == plan.bind(None, args).body
