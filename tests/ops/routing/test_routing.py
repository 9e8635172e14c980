"""The routing family on the host: torch, properties, what it refuses, which kernels it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.ops.affine.reference import fma
from planq.audit.ops.routing.moe_permute.adapter import permute
from planq.audit.ops.routing.moe_permute.reference import Problem
from planq.audit.ops.routing.moe_unpermute.adapter import unpermute
from planq.audit.ops.routing.moe_unpermute.reference import Problem as SumProblem
from planq.audit.ops.routing.routes import KINDS, any_bits, experts_of
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array
from support.tensors import as_torch


def permuted(
    x: Array, expert_index: Array, experts: int, scale: Array | None = None
) -> dict[str, Array]:
    """The outputs for rows of these bits."""
    problem = Problem(
        (x.shape[0], x.shape[1]),
        x.dtype.name,
        expert_index.shape[1],
        experts,
        None if scale is None else "float32",
    )
    operands = {"input": x, "expert_index": expert_index}
    return permute(problem, operands if scale is None else operands | {"scale": scale})


def summed(rows: Array, destination: Array, weight: Array, output_dtype: str) -> Array:
    """The weighted sums of rows."""
    tokens, top_k, width = rows.shape
    problem = SumProblem((tokens, top_k, width), rows.dtype.name, output_dtype)
    return unpermute(problem, {"input": rows, "destination": destination, "weight": weight})


@pytest.mark.parametrize("kind", ["spread", "one", "descending", "in_turn"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8", "float8_e4m3fn"])
def test_rows_are_those_of_a_stable_sort_in_torch(dtype: str, kind: str) -> None:
    """Bit by bit, NaN of every payload among them."""
    tokens, top_k, experts = 77, 3, 9
    x = any_bits((tokens, 24), dtype, 5)
    index = experts_of(tokens, top_k, experts, kind, 6)
    found = permuted(x, index, experts)
    keys, order = torch.from_numpy(index).flatten().sort(stable=True)
    rows = as_torch(x).view(torch.uint8)[order // top_k]
    assert torch.equal(as_torch(found["output"]).view(torch.uint8).view(rows.shape), rows)
    bounds = torch.searchsorted(keys, torch.arange(experts + 1, dtype=torch.int32))
    assert found["expert_offset"].tolist() == bounds.tolist()
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order))
    assert found["destination"].ravel().tolist() == places.tolist()


@pytest.mark.parametrize("top_k", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_there_and_back_is_the_mean_of_what_went(dtype: str, top_k: int) -> None:
    """With weights of 1 / top_k: what as many equal rows add up to, one rounding at a time."""
    tokens, experts = 50, 16
    x = inputs.make("normal", (tokens, 40), dtype, top_k)
    index = experts_of(tokens, top_k, experts, "spread", top_k)
    sent = permuted(x, index, experts)
    weight = np.full((tokens, top_k), np.float32(1 / top_k))
    found = summed(sent["output"], sent["destination"], weight, "float32")
    wide = np.zeros(x.shape, np.float32)
    for _ in range(top_k):
        wide = fma(x.astype(np.float32), np.float32(1 / top_k), wide)
    assert found.tobytes() == wide.tobytes()
    if top_k & (top_k - 1) == 0:
        assert np.array_equal(found, x.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokens_bits_do_not_depend_on_the_routing_of_others(kind: str) -> None:
    """The way there and back, for the same tokens among others of any kind and number."""
    top_k, experts, width = 4, 12, 33
    x = inputs.make("mixed", (6, width), "bfloat16", 1)
    index = experts_of(6, top_k, experts, "marked", 2)
    weight = inputs.make("normal", (6, top_k), "float32", 3)
    alone = permuted(x, index, experts)
    wanted = summed(alone["output"], alone["destination"], weight, "bfloat16")
    for before, behind in ((1, 0), (0, 40), (29, 300)):
        others = [experts_of(count, top_k, experts, kind, count) for count in (before, behind)]
        rows = [inputs.make("mixed", (count, width), "bfloat16", 9) for count in (before, behind)]
        weights = [np.full((count, top_k), np.nan, np.float32) for count in (before, behind)]
        sent = permuted(
            np.concatenate([rows[0], x, rows[1]]),
            np.concatenate([others[0], index, others[1]]),
            experts,
        )
        found = summed(
            sent["output"],
            sent["destination"],
            np.concatenate([weights[0], weight, weights[1]]),
            "bfloat16",
        )
        assert found[before : before + 6].tobytes() == wanted.tobytes()


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(0, 40),
    width=st.integers(0, 9),
    top_k=st.integers(1, 6),
    experts=st.integers(1, 9),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1000),
)
def test_every_row_is_a_pairs_or_zero(
    tokens: int, width: int, top_k: int, experts: int, kind: str, seed: int
) -> None:
    """Destinations name each row once, ascending within an expert; rows follow their offsets."""
    x = any_bits((tokens, width), "int8", seed)
    scale = any_bits((tokens,), "float32", seed)
    index = experts_of(tokens, top_k, experts, kind, seed)
    found = permuted(x, index, experts, scale)
    offset, rows = found["expert_offset"], found["output"].reshape(tokens * top_k, width)
    scales = found["permuted_scale"].view(np.uint32).ravel()
    destination, expert = found["destination"].ravel(), index.ravel()
    inside = (expert >= 0) & (expert < experts)
    assert np.array_equal(destination >= 0, inside)
    assert np.array_equal(np.sort(destination[inside]), np.arange(offset[-1]))
    for e in range(experts):
        places = destination[expert == e]
        assert np.array_equal(places, np.arange(offset[e], offset[e + 1]))
    of_token = np.flatnonzero(inside) // top_k
    assert np.array_equal(rows[destination[inside]], x[of_token])
    assert np.array_equal(scales[destination[inside]], scale.view(np.uint32)[of_token])
    assert not rows[offset[-1] :].any()
    assert not scales[offset[-1] :].any()


def test_a_row_that_takes_no_part_may_have_any_weight() -> None:
    """NaN times nothing is nothing; a token without rows is +0, and so is one of -0."""
    rows = np.array([[[1.0]], [[-0.0]], [[np.inf]]], np.float32)
    destination = np.array([[3], [1], [-1]], np.int32)
    weight = np.array([[np.nan], [1.0], [np.nan]], np.float32)
    found = summed(rows, destination, weight, "float32")
    assert found.tobytes() == np.zeros((3, 1), np.float32).tobytes()


PERMUTE: dict[str, Any] = {
    "input_shape": (4, 6),
    "input_dtype": "int8",
    "top_k": 2,
    "experts": 3,
}
UNPERMUTE: dict[str, Any] = {
    "input_shape": (4, 2, 6),
    "input_dtype": "float16",
    "output_dtype": "float32",
}


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"input_shape": (4,)}, "input_shape", "expected 2 to 8 axes, got 1"),
        ({"input_shape": (4, 6, 2)}, "input_shape", "expected (tokens, width), got 3 axes"),
        ({"input_dtype": "float64"}, "input_dtype", "float16, bfloat16, float32, int8, float8"),
        ({"top_k": 0}, "top_k", "expected 1 to 2147483647, got 0"),
        ({"top_k": 2**30}, "top_k", "at most 2^31 - 1 pairs of a token and a rank, got 4 x"),
        ({"experts": 0}, "experts", "expected 1 to 65536, got 0"),
        ({"experts": 65537}, "experts", "expected 1 to 65536, got 65537"),
        ({"scale_dtype": "float16"}, "scale_dtype", "expected one of float32, got float16"),
        ({"input_shape": (4, planq.Dim("w", max=8))}, "input_shape", "w"),
    ],
)
def test_bad_fields_of_a_permutation_are_refused(
    fields: dict[str, Any], field: str, text: str
) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.MoePermuteDescriptor(**{**PERMUTE, **fields})
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        ({"input_shape": (4, 6)}, "input_shape", "expected 3 to 8 axes, got 2"),
        ({"input_shape": (1, 4, 2, 6)}, "input_shape", "(tokens, top_k, width), got 4 axes"),
        ({"input_shape": (2**20, 2**12, 1)}, "input_shape", "at most 2^31 - 1 pairs"),
        ({"input_dtype": "int8"}, "input_dtype", "expected one of float16, bfloat16, float32"),
        ({"output_dtype": "float64"}, "output_dtype", "expected one of float16, bfloat16"),
    ],
)
def test_bad_fields_of_a_sum_are_refused(fields: dict[str, Any], field: str, text: str) -> None:
    """Likewise."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.MoeUnpermuteDescriptor(**{**UNPERMUTE, **fields})
    assert caught.value.field == field
    assert text in str(caught.value)


def test_scales_are_operands_where_the_descriptor_has_them() -> None:
    """In and out, or neither."""
    plain = planq.MoePermuteDescriptor(**PERMUTE)
    scaled = replace(plain, scale_dtype="float32")
    assert scaled.operands().keys() - plain.operands().keys() == {"scale", "permuted_scale"}
    plan = planq.Plan.select(planq.HOST, scaled)
    made = plan.empty_outputs(np)
    index = np.zeros((4, 2), np.int32)
    args = planq.MoePermuteArgs(input=np.zeros((4, 6), np.int8), expert_index=index, **made)
    status = plan.can_implement(args)
    assert not status
    assert status.operand == "scale"


def test_where_rows_go_is_of_the_batch_and_what_comes_back_is_not() -> None:
    """A preference for batch invariance finds the sums alone."""
    wish = planq.PlanPreference(batch_invariant=True)
    with pytest.raises(planq.NoKernelError, match="where a row goes follows from the experts"):
        planq.Plan.select(planq.HOST, planq.MoePermuteDescriptor(**PERMUTE), wish)
    plan = planq.Plan.select(planq.HOST, planq.MoeUnpermuteDescriptor(**UNPERMUTE), wish)
    assert plan.precision_guarantee().batch_invariant


@pytest.mark.parametrize(("tokens", "body"), [(1, "compared"), (256, "compared"), (257, "counted")])
def test_few_pairs_are_one_launch_without_a_workspace(tokens: int, body: str) -> None:
    """Of builds with CUDA."""
    desc = planq.MoePermuteDescriptor(
        input_shape=(tokens, 7168), input_dtype="bfloat16", top_k=8, experts=256
    )
    chosen = planq.explain(desc, device="sm_90").chosen
    if not planq.build_info().cuda:
        assert chosen is None
        return
    assert chosen is not None
    assert chosen.body == body
    assert (chosen.workspace == 0) is (body == "compared")


def test_one_plan_for_any_number_of_tokens() -> None:
    """There and back, with a Dim for the tokens."""
    tokens = planq.Dim("tokens", max=64)
    fields = {**PERMUTE, "input_shape": (tokens, 6), "input_dtype": "float16"}
    there = planq.Plan.select(planq.HOST, planq.MoePermuteDescriptor(**fields))
    back = planq.Plan.select(
        planq.HOST,
        planq.MoeUnpermuteDescriptor(
            input_shape=(tokens, 2, 6), input_dtype="float16", output_dtype="float16"
        ),
    )
    for count in (0, 1, 17, 64):
        x = inputs.make("normal", (count, 6), "float16", count)
        index = experts_of(count, 2, 3, "spread", count)
        sent = there.empty_outputs(np, tokens=count)
        there.run(planq.HOST, None, planq.MoePermuteArgs(input=x, expert_index=index, **sent))
        made = back.empty_outputs(np, tokens=count)
        args = planq.MoeUnpermuteArgs(
            input=sent["output"],
            destination=sent["destination"],
            weight=np.full((count, 2), 0.5, np.float32),
            **made,
        )
        back.run(planq.HOST, None, args)
        assert np.array_equal(made["output"], x)
