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
from planq.audit.reference.formats import CANONICAL_NAN, STORAGE, Array, Arrays

FLOATING = ("float16", "bfloat16", "float32")
CODES = ("int8", "float8_e4m3fn", "float8_e5m2")
ROUNDED = ("float16", "bfloat16")
OUTPUTS = (*((dtype, dtype) for dtype in FLOATING), *(("float32", kind) for kind in ROUNDED))
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


def rounded(values: Array, dtype: str) -> Array:
    """Float32 in another type by NumPy, with the canonical NaN."""
    with np.errstate(all="ignore"):
        made = values.astype(STORAGE[dtype])
    bits = made.view(f"u{made.itemsize}").copy()
    bits[np.isnan(values)] = CANONICAL_NAN[dtype]
    return np.asarray(bits.view(STORAGE[dtype]))


def turned_by_numpy(heads: Array, weight: Array, table: Array, eps: float) -> Array:
    """A norm of each head, then every pair turned, an operation of float32 after the other.

    Fused multiply-adds have both roundings of float64 behind them: products of float32 are exact
    there. Columns are a power of two up to 32, whose squares are added up by pairs of neighbours.
    """
    squares = heads * heads
    while squares.shape[-1] > 1:
        squares = squares[..., ::2] + squares[..., 1::2]
    mean = squares / np.float32(heads.shape[-1]) + np.float32(eps)
    factor = (1 / np.sqrt(mean.astype(np.float64))).astype(np.float32)
    normed = (heads * factor) * weight
    half = heads.shape[-1] // 2
    a, b = normed[..., :half], normed[..., half:]
    cosines, sines = table[:, None, :half], table[:, None, half:]

    def fused(x: Array, y: Array, z: Array) -> Array:
        return np.asarray((x.astype(np.float64) * y + z).astype(np.float32))

    return np.concatenate([fused(a, cosines, -(b * sines)), fused(b, cosines, a * sines)], -1)


def as_in_gemma(kind: str) -> tuple[Problem, Arrays, list[Array]]:
    """A norm, the turn, queries to an output; and what the turn makes of queries and keys.

    Some tokens are padding, one has a slot beyond the cache, and two have one slot.
    """
    rng = np.random.default_rng(3)
    given: Arrays = {}
    for name, heads in (("query", 4), ("key", 2), ("value", 2)):
        sizes = 2.0 ** rng.integers(-30, 18, (40, heads, 1))
        given[name] = (rng.standard_normal((40, heads, 32)) * sizes).astype(np.float32)
    given["value"][3, 0, :4] = np.inf, -np.inf, np.nan, -0.0
    weights = [rng.standard_normal(32).astype(np.float32) * 2.0**14 for _ in range(2)]
    angles = rng.uniform(-9, 9, (50, 16))
    table = np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    position, slot = rng.permutation(50)[:40], rng.permutation(48)[:40]
    slot[[2, 9]], slot[11], slot[20] = -1, 48, slot[30]
    given |= {"position": position, "slot": slot, "eps": np.asarray(1e-6), "cos_sin": table}
    given |= {"query_weight": weights[0], "key_weight": weights[1]}
    for side in ("key", "value"):
        given[f"{side}_cache"] = np.full((6, 8, 2, 32), 5, STORAGE[kind])
    turned = [
        turned_by_numpy(given[name], weight, table[position], 1e-6)
        for name, weight in zip(("query", "key"), weights, strict=True)
    ]
    problem = Problem((40, 4, 32), 2, 50, 6, 8, "float32", 32, None, "neox", "int64", "float32")
    return replace(problem, cache_dtype=kind, output_dtype=kind), given, turned


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_float32_by_the_formula_then_rounded(kind: str) -> None:
    """Queries to an output, and keys and values to the cache; in place nothing else is another."""
    problem, given, turned = as_in_gemma(kind)
    slot = given["slot"]
    assert np.isinf(rounded(turned[0], "float16")).any()
    found = turn_and_append(problem, given)
    assert {*found} == {"query_output", "key_cache", "value_cache", "invalid"}
    assert found["query_output"].tobytes() == rounded(turned[0], kind).tobytes()
    for side, heads in (("key", turned[1]), ("value", given["value"])):
        wanted = given[f"{side}_cache"].copy().reshape(48, 2, 32)
        for token in np.flatnonzero((slot >= 0) & (slot < 48)):
            wanted[slot[token]] = rounded(heads[token], kind)
        assert found[f"{side}_cache"].tobytes() == wanted.tobytes(), side
    assert found["invalid"].tolist() == [0, 1]
    in_place = turn_and_append(replace(problem, output_dtype=None), given)
    for name, heads in zip(("query", "key"), turned, strict=True):
        assert in_place[name].tobytes() == heads.tobytes()
    assert in_place["key_cache"].tobytes() == found["key_cache"].tobytes()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_token_alone_has_the_bits_that_it_has_among_others(kind: str) -> None:
    """In the output, and at its slot."""
    problem, given, _ = as_in_gemma(kind)
    found = turn_and_append(problem, given)
    for token in (0, 3, 30):
        cut = ("query", "key", "value", "position", "slot")
        own = {name: given[name][token : token + 1] for name in cut}
        alone = turn_and_append(replace(problem, query_shape=(1, 4, 32)), given | own)
        assert alone["query_output"].tobytes() == found["query_output"][token].tobytes()
        for name in ("key_cache", "value_cache"):
            places = [made[name].reshape(48, -1)[given["slot"][token]] for made in (alone, found)]
            assert places[0].tobytes() == places[1].tobytes()


@pytest.mark.parametrize("pairs", ["neox", "interleaved"])
@pytest.mark.parametrize("norm", [None, "float32"])
@pytest.mark.parametrize(("dtype", "output"), OUTPUTS)
def test_with_an_output_queries_and_keys_stay(
    dtype: str, output: str, norm: str | None, pairs: str
) -> None:
    """All else has the bits of the plan in place, for hostile values and any cache."""
    stored = (*STORED, *((kind, None) for kind in (ROUNDED if dtype == "float32" else ())))
    for seed, ((cache, scope), threads) in enumerate(product(stored, (1, 3))):
        rotary, value = ((None, 16), (12, None))[seed % 2]
        own = (2, 20, 9, 5, dtype, value, rotary, pairs, ("int64", "int32")[seed % 2])
        problem = Problem((39, 3, 16), *own, norm, ("nhd", "hnd")[seed // 2 % 2], cache, scope)
        data = ("normal", "mixed", "nonfinite", "huge", "subnormal", "patterns")[seed % 6]
        kinds = (("outside", "few"), ("spread", "any_bits"), ("wrapped", "outside"))[seed % 3]
        given = Case(problem, *kinds, data, "angles", "fitting", 1e-5, seed).inputs()
        before = {name: values.copy() for name, values in given.items()}
        in_place = turn_and_append(problem, given)
        desc = TESTS.descriptor(replace(problem, output_dtype=output))
        plan = planq.Plan.select(planq.HOST, desc)
        assert plan.descriptor.operands()["key"].role is planq.Role.INPUT
        for name in ("query", "key"):
            given[name].flags.writeable = False
        made = {"query_output": np.empty((39, 3, 16), STORAGE[output]), "invalid": np.full(2, -7)}
        args = planq.RotaryKvCacheAppendArgs(**given, **made)
        plan.run(planq.host_stream(threads=threads), None, args)
        same = output == dtype
        wanted = in_place["query"] if same else rounded(in_place["query"], output)
        assert made["query_output"].tobytes() == wanted.tobytes(), seed
        assert made["invalid"].tolist() == in_place["invalid"].tolist()
        for name in ("query", "key"):
            assert given[name].tobytes() == before[name].tobytes()
        for name in in_place.keys() - {"query", "key", "invalid"}:
            assert given[name].tobytes() == in_place[name].tobytes(), (seed, name)


def test_an_output_is_no_input() -> None:
    """Its memory may not be that of the queries, nor may it be left out or be another."""
    plan = planq.Plan.select(planq.HOST, descriptor(output_dtype="float32"))
    query, key = (np.ones((6, 2, 16), np.float32) for _ in range(2))
    given: dict[str, Any] = {"query": query, "key": key, "invalid": np.zeros(2, np.int64)}
    given |= {"key_cache": np.zeros((3, 4, 2, 16), np.float32)}
    given |= {"cos_sin": np.zeros((9, 16), np.float32)}
    given |= {name: np.zeros(6, np.int64) for name in ("position", "slot")}
    in_place = planq.Plan.select(planq.HOST, descriptor())
    wrong = [(plan, output) for output in (query, query[::-1], np.ones((6, 2, 16), np.float16))]
    for own, output in (*wrong, (plan, None), (in_place, np.ones_like(query))):
        args = planq.RotaryKvCacheAppendArgs(**given, query_output=output)
        with pytest.raises(planq.ArgumentError, match=r"^query_output: "):
            own.run(planq.HOST, None, args)


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
        ({"dtype": "float16", "cache_dtype": "bfloat16"}, "cache_dtype", "bfloat16"),
        ({"dtype": "bfloat16", "output_dtype": "float16"}, "output_dtype", "float16"),
        ({"dtype": "float16", "output_dtype": "float32"}, "output_dtype", "float32"),
        ({"output_dtype": "int8"}, "output_dtype", "int8"),
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
        numbers = FLOATING if dtype == "float32" else (dtype,)
        for cache, output, device in product(
            (*numbers, *CODES), (None, *numbers), ("host", "sm_80", "sm_90")
        ):
            preference = planq.PlanPreference(batch_invariant=True, max_workspace_bytes=0)
            types = {"dtype": dtype, "cache_dtype": cache, "output_dtype": output}
            desc = descriptor(**types, norm_weight_dtype=norm)
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
