"""`kv_cache_append` on the host: torch, quantize, equal slots, strides, what it refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.kv_cache.kv_cache_append.adapter import append
from planq.audit.ops.kv_cache.kv_cache_append.cases import Case
from planq.audit.ops.kv_cache.kv_cache_append.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays
from support.tensors import as_torch

FLOATING = ("float16", "bfloat16", "float32")
CODES = ("int8", "float8_e4m3fn", "float8_e5m2")
LAYOUTS = ("nhd", "hnd")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATING)
def test_caches_are_torchs(dtype: str, layout: str) -> None:
    """Other slots for all tokens, assigned by index: bits are copied, NaNs with payloads too."""
    problem = Problem((40, 3, 24), 7, 8, dtype, 17, layout)
    given = Case(problem, "own", "nonfinite", seed=5).inputs()
    found = append(problem, given)
    page, place = (torch.from_numpy(each) for each in np.divmod(given["slot"], 8))
    for side in ("key", "value"):
        words = {2: torch.int16, 4: torch.int32}[given[side].itemsize]
        pages = as_torch(given[f"{side}_cache"]).clone().view(words)
        heads = as_torch(given[side]).view(words)
        by_place = pages if layout == "nhd" else pages.transpose(1, 2)
        by_place[page, place] = heads
        assert torch.equal(as_torch(found[f"{side}_cache"]).view(words), pages)
    assert found["invalid"].tolist() == [0]


def hostile(cache: str) -> Array:
    """Float32 numbers around all of 16 bits: those, the ties between them, and their neighbours."""
    below = np.arange(2**16, dtype=np.uint16).view(STORAGE[cache]).astype(np.float32)
    steps = np.arange(2**15, dtype=np.uint16)
    with np.errstate(all="ignore"):
        low, high = (
            each.view(STORAGE[cache]).astype(np.float64) for each in (steps, (steps + 1) % 2**15)
        )
        ties = ((low + high) / 2).astype(np.float32)
        near = [np.nextafter(ties, np.float32(to)) for to in (-np.inf, np.inf)]
        every = np.concatenate(
            [below, *(sign * each for each in (ties, *near) for sign in (1, -1))]
        )
    words = np.array([0x7FFFFFFF, 0xFFC00001, 0x7F800001, 1, 0x80000001, 0x7F7FFFFF, 0xFF7FFFFF])
    special = np.array([65519.996, 65520, -65520, 2.0**-25, -(2.0**-25)], np.float32)
    found = np.concatenate([every, words.astype(np.uint32).view(np.float32), special])
    return np.asarray(np.append(found, np.zeros(-len(found) % 64, np.float32)), np.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cache", ["float16", "bfloat16"])
def test_float32_is_rounded_as_numpy_rounds(cache: str, layout: str) -> None:
    """To nearest even: subnormals, zeros of both signs, overflow; any NaN is the canonical one."""
    values = hostile(cache).reshape(-1, 2, 32)
    count = len(values)
    slot = np.arange(count)[::-1].copy()
    slot[5], slot[7] = -1, count  # padding, and one beyond the cache
    problem = Problem((count, 2, 32), count, 1, "float32", 32, layout, cache)
    shape = (count, 1, 2, 32) if layout == "nhd" else (count, 2, 1, 32)
    pages = np.full(shape, 7, STORAGE[cache])
    given = {"key": values, "value": values[::-1].copy(), "slot": slot}
    found = append(problem, given | {"key_cache": pages, "value_cache": pages.copy()})
    with np.errstate(all="ignore"):
        rounded = values.astype(STORAGE[cache])
    bits = rounded.view(np.uint16).copy()
    bits[np.isnan(values)] = {"float16": 0x7E00, "bfloat16": 0x7FC0}[cache]
    assert {0x7E00, 0x7C00} <= {*bits.ravel()} if cache == "float16" else 0x7FC0 in bits
    for side, own in (("key", bits), ("value", bits[::-1])):
        wanted = pages.reshape(count, 2, 32).view(np.uint16).copy()
        kept = (slot >= 0) & (slot < count)
        wanted[slot[kept]] = own[kept]
        assert found[f"{side}_cache"].tobytes() == wanted.tobytes(), side
    assert found["invalid"].tolist() == [1]


@pytest.mark.parametrize("scope", ["tensor", "head"])
@pytest.mark.parametrize("cache", CODES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_codes_are_those_of_quantize(dtype: str, cache: str, scope: str) -> None:
    """Its defaults, for ties, NaNs, infinities, huge and subnormal elements and scales."""
    problem = Problem((30, 4, 40), 5, 16, dtype, None, "nhd", cache, scope)
    own = planq.Scope.tensor() if scope == "tensor" else planq.Scope.channel(1)
    for seed, data in enumerate(("normal", "ties", "mixed", "nonfinite", "subnormal", "huge")):
        for scales in ("fitting", "mixed"):
            given = Case(problem, "own", data, scales, seed).inputs()
            codes = np.empty(problem.key_shape, STORAGE[cache])
            desc = planq.QuantizeDescriptor(
                shape=problem.key_shape,
                input_dtype=dtype,
                output_dtype=cache,
                scope=own,
                scale_dtype="float32",
            )
            args = planq.QuantizeArgs(input=given["key"], output=codes, scale=given["key_scale"])
            planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
            pages = append(problem, given)["key_cache"].reshape(-1, *problem.key_shape[1:])
            assert pages[given["slot"]].tobytes() == codes.tobytes(), (data, scales)


@pytest.mark.parametrize("cache", CODES)
@pytest.mark.parametrize("dtype", FLOATING)
def test_measured_codes_are_those_of_dynamic_range_quantize(dtype: str, cache: str) -> None:
    """With its scales, for heads of zeros, of subnormals, and with NaNs and infinities."""
    for seed, (data, layout, columns) in enumerate(
        product(
            ("normal", "ties", "mixed", "nonfinite", "subnormal", "huge", "zeros"),
            LAYOUTS,
            (40, 300),
        )
    ):
        problem = Problem((20, 3, columns), 5, 4, dtype, None, layout, cache, "token")
        given = Case(problem, "own", data, "mixed", seed).inputs()
        codes = np.empty(problem.key_shape, STORAGE[cache])
        scale = np.empty(problem.key_shape[:2], np.float32)
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=problem.key_shape,
            input_dtype=dtype,
            output_dtype=cache,
            scope=planq.Scope.token(),
            scale_dtype="float32",
        )
        args = planq.DynamicRangeQuantizeArgs(input=given["key"], output=codes, scale=scale)
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
        found = append(problem, given)
        for name, wanted in (("key_cache", codes), ("key_scale", scale)):
            pages = found[name] if layout == "nhd" else found[name].swapaxes(1, 2)
            places = pages.reshape(20, *pages.shape[2:])
            assert np.ascontiguousarray(places[given["slot"]]).tobytes() == wanted.tobytes(), data


def test_a_measured_scale_is_the_last_tokens_and_no_other_place_is_written() -> None:
    """Of equal slots; heads without columns have the scale 1."""
    key = np.array([[[2.0, -8]], [[1, 4]], [[3, 16]], [[0, 0]]], np.float32)
    given: Arrays = {
        "key": key,
        "key_cache": np.full((1, 4, 1, 2), 5, np.int8),
        "slot": np.array([2, 2, 9, 0]),
        "key_scale": np.full((1, 4, 1), 7, np.float32),
    }
    problem = Problem((4, 1, 2), 1, 4, "float32", None, "nhd", "int8", "token")
    found = append(problem, given)
    four = float(np.float32(4) / np.float32(127))
    assert found["key_scale"].ravel().tolist() == [1, 7, four, 7]
    assert found["key_cache"].reshape(4, 2).tolist() == [[0, 0], [5, 5], [32, 127], [5, 5]]
    empty = Problem((4, 1, 0), 1, 4, "float32", None, "nhd", "int8", "token")
    given |= {"key": key[..., :0], "key_cache": given["key_cache"][..., :0]}
    assert append(empty, given)["key_scale"].ravel().tolist() == [1, 7, 1, 7]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_of_equal_slots_the_last_counts(layout: str, threads: int) -> None:
    """However many threads there are; those that are skipped are no last ones."""
    tokens, slots = 5000, 12
    slot = (np.arange(tokens) * 7919 % 13).astype(np.int64)
    slot[slot == 12] = -1
    slot[-100:] = 12  # beyond
    key = np.broadcast_to(np.arange(tokens, dtype=np.float32)[:, None, None], (tokens, 2, 300))
    desc = planq.KvCacheAppendDescriptor(
        key_shape=key.shape, pages=3, page_size=4, layout=layout, input_dtype="float32"
    )
    shape = (3, 4, 2, 300) if layout == "nhd" else (3, 2, 4, 300)
    pages, invalid = np.zeros(shape, np.float32), np.zeros(1, np.int64)
    args = planq.KvCacheAppendArgs(
        key=np.ascontiguousarray(key), key_cache=pages, slot=slot, invalid=invalid
    )
    stream = planq.host_stream(threads=threads)
    planq.Plan.select(planq.HOST, desc).run(stream, None, args)
    by_place = pages if layout == "nhd" else pages.transpose(0, 2, 1, 3)
    for place in range(slots):
        last = np.flatnonzero(slot == place)[-1]
        assert (by_place[place // 4, place % 4] == last).all()
    assert invalid.tolist() == [100]


def test_slots_are_compared_as_they_are() -> None:
    """Those of 64 bits are not cut to 32; only what is beyond the cache is counted."""
    slot = np.array([0, -1, 6, 5, 2**32, 2**63 - 1, -(2**63), 1 - 2**32], np.int64)
    problem = Problem((8, 1, 4), 2, 3, "float32")
    given: Arrays = {
        "key": np.arange(1, 33, dtype=np.float32).reshape(8, 1, 4),
        "key_cache": np.zeros((2, 3, 1, 4), np.float32),
        "slot": slot,
    }
    found = append(problem, given)
    assert found["invalid"].tolist() == [3]
    places = found["key_cache"].reshape(6, 4)
    assert places[0].tolist() == [1, 2, 3, 4]
    assert places[5].tolist() == [13, 14, 15, 16]
    assert not places[1:5].any()


def test_keys_and_values_in_one_buffer() -> None:
    """Pages of both side by side, and inputs that are parts of one product."""
    room = np.zeros((4, 2, 8, 3, 16), np.float32)  # pages, side, places, heads, columns
    product = inputs.make("normal", (5, 4, 3, 16), "float32", 2)
    slot = np.array([31, 0, 7, 8, 16], np.int64)
    desc = planq.KvCacheAppendDescriptor(
        key_shape=(5, 3, 16), value_dim=16, pages=4, page_size=8, input_dtype="float32"
    )
    args = planq.KvCacheAppendArgs(
        key=product[:, 1],
        value=product[:, 3],
        key_cache=room[:, 0],
        value_cache=room[:, 1],
        slot=slot,
        invalid=np.zeros(1, np.int64),
    )
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    wanted = np.zeros_like(room)
    for token, (page, place) in enumerate(zip(*np.divmod(slot, 8), strict=True)):
        wanted[page, 0, place] = product[token, 1]
        wanted[page, 1, place] = product[token, 3]
    assert room.tobytes() == wanted.tobytes()


def test_one_plan_takes_every_number_of_tokens() -> None:
    """Tokens of a step may be a Dim."""
    tokens = planq.Dim("tokens", max=300)
    desc = planq.KvCacheAppendDescriptor(
        key_shape=(tokens, 2, 16), pages=50, page_size=8, input_dtype="float16", cache_dtype="int8"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    for count in (0, 1, 300):
        problem = Problem((count, 2, 16), 50, 8, "float16", None, "nhd", "int8", "tensor")
        given = Case(problem, "outside", seed=count).inputs()
        wanted = append(problem, given)
        invalid = np.full(1, -7)
        plan.run(planq.HOST, None, planq.KvCacheAppendArgs(**given, invalid=invalid))
        assert given["key_cache"].tobytes() == wanted["key_cache"].tobytes()
        assert invalid.tolist() == wanted["invalid"].tolist()


def descriptor(**changes: Any) -> planq.Descriptor:
    """A descriptor with other fields."""
    fields: dict[str, Any] = {"key_shape": (6, 2, 16), "pages": 3, "page_size": 4}
    return planq.KvCacheAppendDescriptor(**(fields | {"input_dtype": "float32"} | changes))


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"key_shape": (6, 16)}, "key_shape", "expected 3 to 8 axes, got 2"),
        ({"key_shape": (1, 6, 2, 16)}, "key_shape", "got 4 axes"),
        ({"value_dim": -1}, "value_dim", "expected 1 or more, or None, got -1"),
        ({"pages": -1}, "pages", "expected 0 or more, got -1"),
        ({"page_size": 0}, "page_size", "expected 1 or more, got 0"),
        ({"pages": 2**40, "page_size": 2**20}, "pages", ""),
        ({"input_dtype": "float64"}, "input_dtype", "float64"),
        ({"input_dtype": "float16", "cache_dtype": "bfloat16"}, "cache_dtype", "bfloat16"),
        ({"input_dtype": "bfloat16", "cache_dtype": "float32"}, "cache_dtype", "float32"),
        ({"cache_dtype": "float16", "scale_scope": "head"}, "scale_scope", "got float16"),
        ({"cache_dtype": "uint8"}, "cache_dtype", "uint8"),
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
        ("key", np.zeros((6, 2, 17), np.float32)),
        ("value", np.zeros((6, 2, 16), np.float32)),
        ("key_cache", np.zeros((3, 2, 4, 16), np.float32)),
        ("slot", np.zeros(6, np.int32)),
        ("slot", np.zeros(5, np.int64)),
        ("key_scale", np.zeros(1, np.float32)),
        ("invalid", np.zeros(1, np.int32)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Array) -> None:
    """Before anything runs."""
    plan = planq.Plan.select(planq.HOST, descriptor())
    pages, invalid = np.full((3, 4, 2, 16), 7, np.float32), np.full(1, 7)
    given: dict[str, Any] = {"key": np.zeros((6, 2, 16), np.float32), "key_cache": pages}
    given |= {"slot": np.zeros(6, np.int64), "invalid": invalid}
    with pytest.raises(planq.ArgumentError, match=f"^{name}: "):
        plan.run(planq.HOST, None, planq.KvCacheAppendArgs(**(given | {name: other})))
    assert (pages == 7).all()
    assert (invalid == 7).all()


def test_every_pair_of_types_has_a_kernel_of_both_backends() -> None:
    """Without workspace, exact, and a token at a time."""
    for dtype in FLOATING:
        for cache in (*(FLOATING if dtype == "float32" else (dtype,)), *CODES):
            for device in ("host", "sm_80", "sm_90"):
                preference = planq.PlanPreference(batch_invariant=True, max_workspace_bytes=0)
                desc = descriptor(input_dtype=dtype, cache_dtype=cache)
                assert planq.explain(desc, preference, device=device).chosen is not None
