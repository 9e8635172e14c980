"""Where tensors of a network lie: what a launch reads is what was written for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from planq.networks import Places, machine_of
from planq.networks.places import workspace_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROWS, K = 6, 4096
QUANTIZE = planq.DynamicRangeQuantizeDescriptor(
    shape=(planq.Dim("m", max=ROWS), K), input_dtype="float32", output_dtype="int8"
)
DEQUANTIZE = planq.DequantizeDescriptor(
    shape=(planq.Dim("m", max=ROWS), K),
    input_dtype="int8",
    output_dtype="float32",
    scope=planq.Scope.token(),
)
ADD = planq.AddDescriptor(shape=(planq.Dim("m", max=ROWS), K), input_dtype="float32")
QUANTILES = planq.EstimateQuantilesDescriptor(shape=(ROWS * K,), input_dtype="float32")
KEPT = {"x": ((ROWS, K), "float32"), "quantiles": ((256,), "float32")}


def others(rows: int) -> dict[str, tuple[tuple[int, ...], str]]:
    values = dict.fromkeys(("a", "b", "c", "sum"), ((rows, K), "float32"))
    return values | {"codes": ((rows, K), "int8"), "scale": ((rows,), "float32")}


def launches(at: Mapping[str, Any], rows: int) -> Iterator[tuple[planq.Plan, Any]]:
    """Codes of a tensor and back, three times; a sum in place; quantiles with a workspace."""
    plans = {
        desc: planq.Plan.select(planq.HOST, desc) for desc in (QUANTIZE, DEQUANTIZE, ADD, QUANTILES)
    }
    codes = {"scale": at["scale"][:rows]}
    first = at["x"][:rows]
    yield plans[ADD], planq.AddArgs(input=first, other=first, output=at["sum"][:rows])
    for name in ("a", "b", "c"):
        made = at["codes"][:rows]
        yield plans[QUANTIZE], planq.DynamicRangeQuantizeArgs(input=first, output=made, **codes)
        whole = at[name][:rows]
        yield plans[DEQUANTIZE], planq.DequantizeArgs(input=made, output=whole, **codes)
        # In halves, of which none is all of the sum.
        for half in (slice(0, K // 2), slice(K // 2, K)):
            desc = planq.AddDescriptor(shape=(rows, K // 2), input_dtype="float32")
            parts = [tensor[:, half] for tensor in (at["sum"][:rows], whole)]
            args = planq.AddArgs(input=parts[0], other=parts[1], output=parts[0], alpha=0.5)
            yield planq.Plan.select(planq.HOST, desc), args
        first = at["sum"][:rows]
    if rows == ROWS:
        args = planq.EstimateQuantilesArgs(input=first.reshape(-1), output=at["quantiles"])
        yield plans[QUANTILES], args


def run(tensors: Mapping[str, Any], rows: int) -> None:
    for plan, args in launches(tensors, rows):
        room = tensors.get(workspace_name(plan)) if plan.workspace_size() else None
        plan.run(planq.HOST, room, args)


def placed() -> Places:
    places = Places(KEPT, others(ROWS))
    for rows in (ROWS, 2):
        places.trace(lambda at, rows=rows: launches(at, rows), others(rows))
    return places


@pytest.mark.parametrize("rows", [ROWS, 2, 1])
def test_launches_compute_what_they_do_apart(rows: int) -> None:
    """Whatever the bytes held before, and workspaces share them, too."""
    shapes = KEPT | others(ROWS)
    apart = {name: np.zeros(shape, dtype) for name, (shape, dtype) in shapes.items()}
    quantiles = planq.Plan.select(planq.HOST, QUANTILES)
    apart[workspace_name(quantiles)] = quantiles.empty_workspace(np)
    x = np.random.default_rng(0).standard_normal((ROWS, K), np.float32)
    held = placed().on(machine_of("host"))
    assert held.keys() == apart.keys()
    for name in apart:
        held[name].view(np.uint8)[...] = 0xFF
    for tensors in (apart, held):
        tensors["x"][...] = x
        run(tensors, rows)
    ends = ("sum", "x", "quantiles") if rows == ROWS else ("sum", "x")
    for name in ends:
        assert held[name][:rows].tobytes() == apart[name][:rows].tobytes(), name


def test_tensors_share_bytes_where_no_launch_has_both() -> None:
    """Of a, b and c no two live at a time, and the sum lives beside all of them."""
    arena = placed().arena
    assert arena.offset("a") == arena.offset("b") == arena.offset("c")
    spans = {
        name: (arena.offset(name), arena.offset(name) + ROWS * K * 4) for name in ("a", "sum", "x")
    }
    ordered = sorted(spans.values())
    assert all(end <= first for (_, end), (first, _) in itertools.pairwise(ordered))
    workspace = planq.Plan.select(planq.HOST, QUANTILES).workspace_size()
    room = 3 * ROWS * K * 4 + max(workspace, ROWS * K + 256)
    assert arena.nbytes <= room + 1024


def test_a_part_of_a_tensor_begins_no_life() -> None:
    """Rows that the part leaves out are needed by who reads them later."""

    def traced(count: int) -> int:
        places = Places({}, {"a": ((4, K), "float32"), "b": ((4, K), "float32")})
        desc = planq.AddDescriptor(shape=(planq.Dim("m", max=4), K), input_dtype="float32")
        plan = planq.Plan.select(planq.HOST, desc)

        def steps(at: Mapping[str, Any]) -> Iterator[tuple[planq.Plan, Any]]:
            a, b = at["a"], at["b"]
            yield plan, planq.AddArgs(input=a, other=a, output=a)
            yield plan, planq.AddArgs(input=b, other=b, output=b)
            constant = np.zeros((count, K), np.float32)
            yield plan, planq.AddArgs(input=constant, other=constant, output=a[:count])
            yield plan, planq.AddArgs(input=a, other=a, output=a)

        places.trace(steps, {"a": ((4, K), "float32"), "b": ((4, K), "float32")})
        return places.arena.nbytes

    assert (traced(4), traced(3)) == (4 * K * 4, 2 * 4 * K * 4)


def test_a_name_is_of_one_tensor() -> None:
    with pytest.raises(planq.ArgumentError, match="a: expected a tensor that is kept or shares"):
        Places({"a": ((1,), "int8")}, {"a": ((1,), "int8")})
