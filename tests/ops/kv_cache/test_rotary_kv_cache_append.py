"""`rotary_kv_cache_append` on the host: its two plans in turn, edges, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.operators import expected, inputs_of
from planq.audit.ops.kv_cache.kv_cache_append.adapter import append
from planq.audit.ops.kv_cache.rotary_kv_cache_append.adapter import TESTS, turn_and_append
from planq.audit.ops.kv_cache.rotary_kv_cache_append.cases import Case
from planq.audit.ops.kv_cache.rotary_kv_cache_append.reference import Problem
from planq.audit.ops.position.rotary_embedding.adapter import turn
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, Arrays

FLOATING = ("float16", "bfloat16", "float32")
CODES = ("int8", "float8_e4m3fn", "float8_e5m2")
STORED = ((None, None), *product(CODES, ("tensor", "head", "token")))


@pytest.mark.parametrize("pairs", ["neox", "interleaved"])
@pytest.mark.parametrize("norm", [None, "float32", "bfloat16"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_every_combination_is_its_two_plans(dtype: str, norm: str | None, pairs: str) -> None:
    """Of fields and hostile values: the plans of the two operators, and the references of both."""
    sizes = (((6, 3, 32), 2, 32, 16), ((5, 2, 10), 1, None, 4))
    for seed, ((stored, scope), layout, (shape, heads, value, rotary)) in enumerate(
        product(STORED, ("nhd", "hnd"), sizes)
    ):
        own = (heads, 20, 3, 4, dtype, value, rotary, pairs, ("int64", "int32")[seed % 2])
        problem = Problem(shape, *own, norm, layout, stored, scope)
        data = ("normal", "mixed", "nonfinite", "huge", "subnormal")[seed % 5]
        kinds = (("outside", "few"), ("spread", "any_bits"), ("wrapped", "outside"))[seed % 3]
        case = Case(problem, *kinds, data, "angles", ("fitting", "mixed")[seed % 2], 1e-5, seed)
        given = case.inputs()
        found = turn_and_append(problem, given)
        turns = ("query", "key", "cos_sin", "position", "query_weight", "key_weight", "eps")
        turned = turn(problem.turn, {name: given[name] for name in turns if name in given})
        appends = ("value", "key_cache", "value_cache", "slot", "key_scale", "value_scale")
        appended = append(
            problem.append,
            {"key": turned["key"]} | {name: given[name] for name in appends if name in given},
        )
        apart = turned | appended
        apart["invalid"] = np.concatenate([turned["invalid"], appended["invalid"]])
        wanted = expected(case)
        for name, values in found.items():
            assert values.tobytes() == apart[name].tobytes(), (case.id, name)
            assert values.tobytes() == wanted[name].tobytes(), (case.id, name)


def test_a_key_without_a_position_is_nan_in_the_cache() -> None:
    """And in `key`; one without a slot is turned, and goes nowhere."""
    problem = Problem((4, 1, 4), 1, 5, 2, 2, "float32")
    given: Arrays = {
        "query": np.ones((4, 1, 4), np.float32),
        "key": np.ones((4, 1, 4), np.float32),
        "key_cache": np.full((2, 2, 1, 4), 7, np.float32),
        "cos_sin": np.repeat(np.array([[0, 0, 1, 1]], np.float32), 5, 0),
        "position": np.array([1, 5, -1, 2]),
        "slot": np.array([3, 0, 4, -1]),
    }
    found = turn_and_append(problem, given)
    assert found["invalid"].tolist() == [2, 1]
    turned = [-1.0, -1, 1, 1]
    assert found["key"][[0, 3], 0].tolist() == [turned, turned]
    assert (found["key"][[1, 2]].view(np.uint32) == 0x7FC00000).all()
    places = found["key_cache"].reshape(4, 4)
    assert places[3].tolist() == turned
    assert (places[0].view(np.uint32) == 0x7FC00000).all()
    assert (places[1:3] == 7).all()


def test_parts_of_one_product_are_turned_and_appended() -> None:
    """Queries, keys and values side by side in rows, and both caches in one buffer."""
    problem = Problem((5, 4, 16), 2, 9, 3, 4, "bfloat16", 16)
    given = Case(problem, "in_turn", "own", seed=4).inputs()
    wanted = turn_and_append(problem, given)
    product_ = np.empty((5, 8, 16), given["query"].dtype)
    heads = {"query": slice(0, 4), "key": slice(4, 6), "value": slice(6, 8)}
    for name, own in heads.items():
        product_[:, own] = given[name]
    room = np.stack([given["key_cache"], given["value_cache"]], 1)
    views = {name: product_[:, own] for name, own in heads.items()}
    views |= {"key_cache": room[:, 0], "value_cache": room[:, 1]}
    invalid = np.full(2, -7)
    plan = planq.Plan.select(planq.HOST, TESTS.descriptor(problem))
    args = planq.RotaryKvCacheAppendArgs(**(given | views), invalid=invalid)
    plan.run(planq.HOST, None, args)
    for name in ("query", "key", "key_cache", "value_cache"):
        assert np.ascontiguousarray(views[name]).tobytes() == wanted[name].tobytes(), name
    assert np.ascontiguousarray(views["value"]).tobytes() == given["value"].tobytes()
    assert invalid.tolist() == wanted["invalid"].tolist()


def test_one_plan_takes_every_number_of_tokens() -> None:
    """Tokens of a step may be a Dim; heads may not."""
    whole = Problem((300, 3, 16), 2, 40, 50, 8, "float16", 16, None, "interleaved", "int32")
    whole = replace(whole, norm_weight_dtype="float16", cache_dtype="int8", scale_scope="head")
    fields: Any = TESTS.descriptor(whole)
    desc = replace(fields, query_shape=(planq.Dim("tokens", max=300), 3, 16))
    plan = planq.Plan.select(planq.HOST, desc)
    for count in (0, 1, 7, 300):
        problem = replace(whole, query_shape=(count, 3, 16))
        case = Case(problem, "outside", "outside", seed=count)
        given, wanted = dict(inputs_of(case)), expected(case)
        given = {name: values.copy() for name, values in given.items()}
        invalid = np.full(2, -7)
        args = planq.RotaryKvCacheAppendArgs(**given, invalid=invalid)
        plan.run(planq.HOST, None, args)
        for name in ("query", "key", "key_cache", "value_cache"):
            assert given[name].tobytes() == wanted[name].tobytes(), (count, name)
        assert invalid.tolist() == wanted["invalid"].tolist()
    with pytest.raises(planq.DescriptorError, match="only tokens may be one"):
        replace(fields, query_shape=(8, planq.Dim("heads", max=3), 16))


def descriptor(**changes: Any) -> planq.Descriptor:
    """A descriptor with other fields."""
    fields: dict[str, Any] = {"query_shape": (6, 2, 16), "key_heads": 2, "dtype": "float32"}
    fields |= {"max_position": 9, "pages": 3, "page_size": 4}
    return planq.RotaryKvCacheAppendDescriptor(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"query_shape": (6, 16)}, "query_shape", "expected 3 to 8 axes, got 2"),
        ({"query_shape": (1, 6, 2, 16)}, "query_shape", "got 4 axes"),
        ({"query_shape": (6, 2, 1026)}, "query_shape", "got 1026"),
        ({"key_heads": 0}, "key_heads", "expected 1 or more, got 0"),
        ({"key_heads": -1}, "key_heads", "expected 1 or more, got -1"),
        ({"key_heads": 2**60}, "key_heads", ""),
        ({"rotary_dim": 7}, "rotary_dim", "an even number from 2 to the 16 columns"),
        ({"max_position": -1}, "max_position", "expected 0 or more, got -1"),
        ({"dtype": "float64"}, "dtype", "float64"),
        ({"position_dtype": "uint8"}, "position_dtype", "uint8"),
        ({"norm_weight_dtype": "float64"}, "norm_weight_dtype", "float64"),
        ({"value_dim": -1}, "value_dim", "expected 1 or more, or None, got -1"),
        ({"pages": -1}, "pages", "expected 0 or more, got -1"),
        ({"page_size": 0}, "page_size", "expected 1 or more, got 0"),
        ({"cache_dtype": "bfloat16"}, "cache_dtype", "bfloat16"),
        ({"scale_scope": "head"}, "scale_scope", "only caches of codes have scales"),
    ],
)
def test_descriptors_that_are_refused(changes: dict[str, Any], field: str, text: str) -> None:
    """Each names its field and what came."""
    with pytest.raises(planq.DescriptorError) as caught:
        descriptor(**changes)
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("query", np.zeros((6, 2, 17), np.float32)),
        ("key", np.zeros((6, 1, 16), np.float32)),
        ("value", np.zeros((6, 2, 16), np.float32)),
        ("key_cache", np.zeros((3, 2, 4, 16), np.float32)),
        ("cos_sin", np.zeros((9, 8), np.float32)),
        ("position", np.zeros(5, np.int64)),
        ("slot", np.zeros(6, np.int32)),
        ("eps", 1e-5),
        ("key_scale", np.zeros(1, np.float32)),
        ("invalid", np.zeros(1, np.int64)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Any) -> None:
    """Before anything runs."""
    plan = planq.Plan.select(planq.HOST, descriptor())
    written: dict[str, Array] = {
        "query": np.full((6, 2, 16), 7, np.float32),
        "key": np.full((6, 2, 16), 7, np.float32),
        "key_cache": np.full((3, 4, 2, 16), 7, np.float32),
        "invalid": np.full(2, 7),
    }
    given: dict[str, Any] = written | {
        "cos_sin": np.zeros((9, 16), np.float32),
        "position": np.zeros(6, np.int64),
        "slot": np.zeros(6, np.int64),
    }
    with pytest.raises(planq.ArgumentError, match=f"^{name}: "):
        plan.run(planq.HOST, None, planq.RotaryKvCacheAppendArgs(**(given | {name: other})))
    for values in written.values():
        assert (values == 7).all()


def test_every_pair_of_types_has_a_kernel_of_both_backends() -> None:
    """Without workspace, exact, and a token at a time."""
    for dtype, norm in product(FLOATING, (None, "bfloat16")):
        for cache, device in product((dtype, *CODES), ("host", "sm_80", "sm_90")):
            preference = planq.PlanPreference(batch_invariant=True, max_workspace_bytes=0)
            desc = descriptor(dtype=dtype, cache_dtype=cache, norm_weight_dtype=norm)
            assert planq.explain(desc, preference, device=device).chosen is not None


def test_hostile_elements_reach_the_cache_as_they_are_rounded() -> None:
    """Every pattern of 16 bits as a key, turned by the angle 0 and stored."""
    patterns = inputs.make("patterns", (64, 2, 512), "float16", 3)
    table = np.concatenate([np.ones((1, 256)), np.zeros((1, 256))], 1).astype(np.float32)
    problem = Problem((64, 1, 512), 2, 1, 8, 8, "float16")
    given: Arrays = {
        "query": np.zeros((64, 1, 512), np.float16),
        "key": patterns.copy(),
        "key_cache": np.zeros((8, 8, 2, 512), np.float16),
        "cos_sin": table,
        "position": np.zeros(64, np.int64),
        "slot": np.arange(64)[::-1].copy(),
    }
    found = turn_and_append(problem, given)
    stored = found["key_cache"].reshape(64, 2, 512)[::-1]
    assert np.ascontiguousarray(stored).tobytes() == found["key"].tobytes()
