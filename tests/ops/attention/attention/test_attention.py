"""`attention` on the host: torch, chunks and decode, pages, what tokens see, what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from ops.attention.attention import sequences
from ops.attention.attention.sequences import (
    CODES,
    Batch,
    Chunk,
    Options,
    Paging,
    Sequence,
    combinations,
    digest,
    rows,
)
from planq import _core
from planq.audit import places
from planq.audit.ops.attention.attention.adapter import attend
from planq.audit.ops.attention.attention.reference import Problem
from planq.audit.reference.formats import STORAGE, Array, Arrays, canonical
from support.tensors import as_torch

PAGINGS = (Paging(), Paging(16, "hnd", 1))
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


# --- Near to what it should be -------------------------------------------------------------------


def by_torch(options: Options, own: Sequence, scales: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of a whole sequence in float64, and sums of magnitudes to judge errors by."""
    query, key, value = (
        as_torch(x).double().transpose(0, 1) for x in (own.query, own.key, own.value)
    )
    if options.cache:
        for side, x in (("key", key), ("value", value)):
            each = getattr(own, f"{side}_scale") if options.scope == "token" else None
            of_all = scales[f"{side}_scale"][None]
            x *= torch.from_numpy(of_all if each is None else each).double().T[..., None]
    group = options.heads // options.key_heads
    key, value = (x.repeat_interleave(group, 0) for x in (key, value))
    score = query @ key.transpose(1, 2)
    if options.soft_cap is not None:
        score = options.soft_cap * torch.tanh(score / options.soft_cap)
    at = torch.arange(len(own.key))
    seen = torch.ones(len(at), len(at), dtype=torch.bool)
    if options.causal:
        seen &= at <= at[:, None]
    if options.window:
        seen &= at > at[:, None] - options.window
    score = torch.where(seen, options.scale * score, -torch.inf)
    if options.sink:
        sink = torch.from_numpy(scales["sink"]).double()[:, None, None].expand(-1, len(at), 1)
        score = torch.cat([score, sink], -1)
        value = torch.cat([value, torch.zeros(len(value), 1, value.shape[2])], 1)
    share = torch.softmax(score, -1)
    return torch.stack([share @ value, share @ value.abs()]), torch.logsumexp(score, -1)


@pytest.mark.parametrize("options", combinations()[::3], ids=str)
def test_results_are_near_those_of_float64(options: Options) -> None:
    """Of torch: what the rounding of powers to 16 bits costs, and no more."""
    batch = Batch(options, (1, 37, 300))
    chunks = [Chunk(i, 0, length) for i, length in enumerate(batch.lengths)]
    found, row = batch.attend(chunks, Paging(16)), 0
    for own in batch.sequences:
        (wanted, most), lse = by_torch(options, own, batch.scales)
        here = slice(row, row := row + len(own.key))
        error = (torch.from_numpy(found["output"][here]).double() - wanted.transpose(0, 1)).abs()
        assert (error <= 1.1 * EPSILON[options.dtype] * most.transpose(0, 1) + 1e-6).all()
        logarithms = torch.from_numpy(found["lse"][here]).double()
        assert ((logarithms - lse.T).abs() <= 1e-5 * (1 + lse.T.abs())).all()


def test_results_are_near_those_of_torchs_own_attention() -> None:
    """`scaled_dot_product_attention` of float64, with heads in groups."""
    options = Options(columns=128, heads=8, key_heads=2, scale=128**-0.5)
    batch = Batch(options, (700,))
    own = batch.sequences[0]
    query, key, value = (
        as_torch(x).double().transpose(0, 1) for x in (own.query, own.key, own.value)
    )
    wanted = torch.nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], is_causal=True, enable_gqa=True
    )
    found = torch.from_numpy(batch.attend([Chunk(0, 0, 700)])["output"]).transpose(0, 1)
    assert (found - wanted[0]).abs().max() < 4e-3


# --- The same bits, however tokens are computed --------------------------------------------------


@pytest.mark.parametrize("paging", PAGINGS, ids=("contiguous", "pages"))
@pytest.mark.parametrize("options", combinations(), ids=str)
def test_prefill_chunks_and_decode_agree(options: Options, paging: Paging) -> None:
    """To the bit: prompts at once, in chunks of several sizes, and token by token in a batch."""
    batch = Batch(options, (1, 37, 140))
    whole = [Chunk(i, 0, length) for i, length in enumerate(batch.lengths)]
    wanted = rows(batch.attend(whole, paging), whole)
    for size in (7, 64):
        for first in range(0, 140, size):
            chunks = [Chunk(i, first, min(first + size, n)) for i, n in enumerate(batch.lengths)]
            chunks = [chunk for chunk in chunks if chunk.first < chunk.end]
            found = rows(batch.attend(chunks, paging), chunks)
            assert found.items() <= wanted.items(), (size, first)
    for at in (0, 1, 15, 16, 36, 100, 127, 128, 139):
        chunks = [Chunk(i, at, at + 1) for i, n in enumerate(batch.lengths) if at < n]
        found = rows(batch.attend(chunks[::-1], replace(paging, seed=at)), chunks[::-1])
        assert found.items() <= wanted.items(), at


@pytest.mark.parametrize("cache", [None, "int8"])
def test_spans_agree_as_well(cache: str | None) -> None:
    """Of more than a thousand keys, with windows that begin in the middle of one."""
    for window in (None, 900, 1024):
        options = Options(cache=cache, scope=cache and "token", window=window, scale=0.02)
        batch = Batch(options, (2500,), seed=3)
        whole = [Chunk(0, 0, 2500)]
        wanted = rows(batch.attend(whole), whole)
        for first, end in ((1000, 1030), (1023, 1024), (2047, 2050), (2499, 2500)):
            chunks = [Chunk(0, first, end)]
            found = rows(batch.attend(chunks, Paging(48, "hnd")), chunks)
            assert found.items() <= wanted.items(), (window, first)


@pytest.mark.parametrize("cache", [None, *CODES])
def test_where_keys_lie_changes_no_bit(cache: str | None) -> None:
    """Pages of any size in any order, both layouts, and none; however many threads there are."""
    batch = Batch(Options(cache=cache, scope=cache and "token", causal=False), (0, 3, 200, 130))
    chunks = [Chunk(0, 0, 0), Chunk(1, 1, 3), Chunk(2, 150, 200, 190), Chunk(3, 60, 130)]
    wanted = rows(batch.attend(chunks), chunks)
    for size in (None, 1, 3, 16, 64, 128, 1000):
        for layout in ("nhd", "hnd"):
            found = batch.attend(chunks, Paging(size, layout, size or 0))
            assert rows(found, chunks) == wanted, (size, layout)
    problem, given = batch.operands(chunks, Paging(16))
    for threads in (1, 2, 5):
        made = run(problem, given, planq.host_stream(threads=threads))
        assert rows(made, chunks) == wanted, threads


def run(problem: Problem, given: Arrays, stream: Any) -> Arrays:
    """The outputs of a plan on a stream."""
    shape, dtype = problem.output_shape, STORAGE[problem.output_dtype or problem.input_dtype]
    made = {
        "output": np.full(shape, 7).astype(dtype),
        "lse": np.full(shape[:2], 7, np.float32),
        "invalid": np.full(1, 7, np.int64),
    }
    desc: Any = planq.AttentionDescriptor(**vars(problem))
    args = planq.AttentionArgs(**given | made | {"scale": float(given["scale"])})
    planq.Plan.select(stream, desc).run(stream, None, args)
    return made


def test_every_instruction_set_has_the_bits_of_the_others() -> None:
    """Prefill with every kind of cache, in processes that may use one."""
    wanted = digest()
    for name in _core.instruction_sets()[:-1]:
        environment = {**os.environ, places.INSTRUCTION_SET: name}
        command = [sys.executable, "-P", sequences.__file__]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert told.stdout.split() == [wanted], name


# --- What a token sees ---------------------------------------------------------------------------


def single(query: Array, key: Array, value: Array, **fields: Any) -> tuple[Array, Array]:
    """The outputs and logarithms of one sequence; tensors are (positions, heads, columns)."""
    more = {name: fields.pop(name) for name in ("sink", "scale", "keys") if name in fields}
    problem = Problem(
        query.shape,
        key.shape[1],
        1,
        max(len(query), 1),
        max(len(key), 1),
        query.dtype.name,
        value_dim=value.shape[2],
        with_lse=True,
        with_sink="sink" in more,
        **{"output_dtype": "float32"} | fields,
    )
    given: Arrays = {
        "query": query,
        "key_cache": key[None],
        "value_cache": value[None],
        "query_start": np.array([0, len(query)], np.int32),
        "key_length": np.array([more.get("keys", len(key))], np.int32),
        "scale": np.array(more.get("scale", 1.0), np.float64),
    }
    if "sink" in more:
        given["sink"] = more["sink"]
    found = attend(problem, given)
    return found["output"], found["lse"]


def normal(*shape: int, seed: int = 0, dtype: str = "bfloat16") -> Array:
    """Of a 16-bit type."""
    return np.random.default_rng(seed).standard_normal(shape).astype(STORAGE[dtype])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_single_key_gives_its_value(dtype: str) -> None:
    """To the bit, whatever the score; -0 becomes +0."""
    query, key, value = (normal(1, 2, 16, seed=i, dtype=dtype) for i in range(3))
    value[0, 0, 3] = -0.0
    found, lse = single(query, key, value, scale=0.5, output_dtype=None)
    assert found.tobytes() == (value + value.dtype.type(0)).tobytes()
    exact = 0.5 * (query.astype(np.float64) * key.astype(np.float64)).sum(-1)
    assert np.allclose(lse, exact, rtol=1e-5, atol=1e-6)


def test_who_sees_no_key_has_zeros() -> None:
    """Without keys, before all keys, and as a token of no sequence; a sink is all there is."""
    query, key, value = normal(4, 2, 16), normal(3, 2, 16, seed=1), normal(3, 2, 16, seed=2)
    found, lse = single(query, key, value, keys=0)
    assert not found.any()
    assert (lse == -np.inf).all()
    found, lse = single(query, key, value, causal=True)  # the first token is before the first key
    assert not found[0].any()
    assert (lse[0] == -np.inf).all()
    assert found[1:].all()
    sink = np.array([2.5, -np.inf], np.float32)
    found, lse = single(query, key, value, causal=True, sink=sink)
    assert not found[0].any()
    assert np.allclose(lse[0], sink)
    assert np.signbit(found[found == 0]).sum() == 0


def test_scores_of_minus_infinity_weigh_nothing() -> None:
    """Unless there are no others: then there is no answer."""
    query, key, value = normal(1, 1, 16), normal(300, 1, 16, seed=1), normal(300, 1, 16, seed=2)
    query[0, 0, 0], key[::2, 0, 0] = 1, -np.inf
    wanted, _ = single(query, np.ascontiguousarray(key[1::2]), np.ascontiguousarray(value[1::2]))
    found, _ = single(query, key, value)
    assert np.isfinite(found).all()
    assert np.allclose(found, wanted, atol=1e-2)
    key[..., 0] = -np.inf
    found, lse = single(query, key, value)
    assert np.isnan(found).all()
    assert (lse == -np.inf).all()


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 17, 128, 299])
def test_a_score_that_is_none_makes_its_rows_nan_and_no_others(odd: float, at: int) -> None:
    """Rows before that key, and other heads, keep their bits; values of NaN make columns NaN."""
    query, key, value = normal(300, 2, 16), normal(300, 2, 16, seed=1), normal(300, 2, 16, seed=2)
    query[..., 0] = np.abs(query[..., 0].astype(np.float32)) + 1
    wanted, _ = single(query, key, value, causal=True, scale=0.1)
    broken = key.copy()
    broken[at, 0, 0] = odd
    found, lse = single(query, broken, value, causal=True, scale=0.1)
    assert np.isnan(found[at:, 0]).all()
    assert np.isnan(lse[at:, 0]).all()
    assert found[:at, 0].tobytes() == wanted[:at, 0].tobytes()
    assert found[:, 1].tobytes() == wanted[:, 1].tobytes()
    broken = value.copy()
    broken[at, 1, 5] = odd
    found, _ = single(query, key, broken, causal=True, scale=0.1)
    assert not np.isfinite(found[at:, 1, 5]).any()
    found[at:, 1, 5] = wanted[at:, 1, 5]
    assert found.tobytes() == wanted.tobytes()
    windowed, _ = single(query, key, broken, causal=True, scale=0.1, window=30)
    assert np.isfinite(windowed[at + 30 :]).all()


def test_nan_in_pages_of_others_and_in_slots_that_were_used_before() -> None:
    """The cache is NaN where no sequence has a key; a page that was another's is as good as new."""
    batch = Batch(Options(heads=2, key_heads=1), (90, 50))
    chunks = [Chunk(0, 80, 90), Chunk(1, 49, 50)]
    problem, given = batch.operands(chunks, Paging(16))
    wanted = attend(problem, given)
    assert np.isfinite(wanted["output"]).all()
    own = given["block_table"][0, :6]
    given["key_length"][1] = 0  # the second sequence ends; its pages are full of NaN then
    taken = given["block_table"][1, :4].copy()
    for name in ("key_cache", "value_cache"):
        given[name][taken] = np.nan
    given["block_table"][1] = own[0]
    found = attend(problem, given)
    assert found["output"][:10].tobytes() == wanted["output"][:10].tobytes()
    assert not found["output"][10].any()


def test_values_may_be_a_part_of_the_keys() -> None:
    """DeepSeek's MLA: 576 columns of which 512 are values, one head for all queries."""
    query, cache = normal(5, 16, 576), normal(40, 1, 576, seed=1)[None]
    problem = Problem((5, 16, 576), 1, 1, 5, 40, "bfloat16", value_dim=512, causal=True)
    given: Arrays = {
        "query": query,
        "key_cache": cache,
        "query_start": np.array([0, 5], np.int32),
        "key_length": np.array([40], np.int32),
        "scale": np.array(0.05, np.float64),
    }
    made = [np.empty((5, 16, 512), STORAGE["bfloat16"]) for _ in range(2)]
    desc: Any = planq.AttentionDescriptor(**vars(problem))
    for output, value in zip(
        made, (cache[..., :512], np.ascontiguousarray(cache[..., :512])), strict=True
    ):
        args = planq.AttentionArgs(
            **given | {"scale": 0.05},
            value_cache=value,
            output=output,
            invalid=np.empty(1, np.int64),
        )
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert made[0].tobytes() == made[1].tobytes()
    assert made[0].astype(np.float32).any()


def test_the_order_of_keys_of_one_block_is_theirs_alone() -> None:
    """A token's bits depend on no key behind it: other keys, other lengths, no difference."""
    options = Options(causal=True)
    one, other = Batch(options, (200,)), Batch(options, (200,))
    other.sequences[0].key[150:] = normal(50, 2, 32, seed=9)
    other.sequences[0].value[150:] = np.nan
    found = [
        rows(b.attend([Chunk(0, 0, n)]), [Chunk(0, 0, n)]) for b, n in ((one, 200), (other, 190))
    ]
    for position in range(150):
        assert found[0][0, position] == found[1][0, position]


# --- What is wrong on the device -----------------------------------------------------------------


def paged(max_query: int = 6, **changes: tuple[Any, int]) -> tuple[Array, int]:
    """Outputs of three sequences of 2, 3 and 1 tokens, 40 keys each, and the count."""
    batch = Batch(Options(heads=1, key_heads=1, columns=16), (40, 40, 40))
    chunks = [Chunk(0, 38, 40), Chunk(1, 37, 40), Chunk(2, 39, 40)]
    problem, given = batch.operands(chunks, Paging(16))
    for name, (index, value) in changes.items():
        given[name][index] = value
    found = attend(replace(problem, max_query=max_query), given)
    return found["output"][:, 0], int(found["invalid"][0])


def test_what_starts_lengths_and_pages_may_not_be() -> None:
    """The tokens that it touches are NaN and counted; all others keep their bits."""
    wanted, count = paged()
    assert count == 0
    assert np.isfinite(wanted).all()
    every = list(range(6))
    faults: list[tuple[dict[str, Any], list[int]]] = [
        ({"key_length": (1, 41)}, [2, 3, 4]),
        ({"key_length": (1, -1)}, [2, 3, 4]),
        ({"key_length": (0, -(2**31))}, [0, 1]),
        ({"max_query": 2}, [2, 3, 4]),
        ({"block_table": ((2, 1), -1)}, [5]),
        ({"block_table": ((0, 0), 10)}, [0, 1]),
        ({"block_table": ((1, 2), 2**31 - 1)}, [2, 3, 4]),
        ({"query_start": (1, 6)}, every),
        ({"query_start": (0, -1)}, every),
        ({"query_start": (3, 7)}, every),
    ]
    for changes, gone in faults:
        found, count = paged(**changes)
        rest = np.setdiff1d(every, gone)
        assert np.isnan(found[gone]).all(), changes
        assert count == len(gone), changes
        assert found[rest].tobytes() == wanted[rest].tobytes(), changes


def test_tokens_of_no_sequence_are_none_of_anybodys() -> None:
    """Before the first and behind the last."""
    wanted, _ = paged()
    found, count = paged(query_start=(0, 1))
    assert not found[0].any()
    assert count == 0
    assert found[1:].tobytes() == wanted[1:].tobytes()
    found, count = paged(query_start=(3, 5))
    assert not found[5].any()
    assert count == 0
    assert found[:5].tobytes() == wanted[:5].tobytes()


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e300, 1e-60])
def test_a_scale_is_a_positive_number_of_float32(scale: float) -> None:
    """Else all rows are NaN."""
    query, key, value = (normal(2, 1, 16, seed=i) for i in range(3))
    found, lse = single(query, key, value, scale=scale)
    nan = np.full(1, np.nan, np.float32)
    assert found.tobytes() == canonical(np.broadcast_to(nan, found.shape), "float32").tobytes()
    assert np.isnan(lse).all()


# --- What a descriptor may say -------------------------------------------------------------------

FIELDS = {
    "query_shape": (8, 4, 64),
    "key_heads": 2,
    "batch": 2,
    "max_query": 8,
    "max_key": 100,
    "input_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"query_shape": (8, 64)}, "query_shape", "expected 3 to 8 axes"),
        ({"query_shape": (1, 8, 4, 64)}, "query_shape", "got 4 axes"),
        ({"query_shape": (8, 4, 40)}, "query_shape", "multiple of 16 columns up to 576, got 40"),
        ({"query_shape": (8, 4, 592)}, "query_shape", "up to 576, got 592"),
        ({"query_shape": (8, 5, 64)}, "query_shape", "multiple of 2 key heads, got 5 heads"),
        ({"query_shape": (8, planq.Dim("h", max=4), 64)}, "query_shape", "got a Dim"),
        ({"key_heads": 0}, "key_heads", "expected 1 or more, got 0"),
        ({"value_dim": 8}, "value_dim", "multiple of 16 columns up to 512, got 8"),
        ({"value_dim": 528}, "value_dim", "up to 512, got 528"),
        ({"batch": 0}, "batch", "got 0"),
        ({"max_query": -1}, "max_query", "got -1"),
        ({"max_key": 2**31}, "max_key", "got 2147483648"),
        ({"window": 2**31}, "window", "got 2147483648"),
        ({"window": 0}, "window", "0"),
        ({"pages": 5}, "page_size", "the cache has pages, got None"),
        ({"input_dtype": "float32"}, "input_dtype", "float32"),
        ({"cache_dtype": "float16"}, "cache_dtype", "float16"),
        ({"output_dtype": "int8"}, "output_dtype", "int8"),
        ({"scale_scope": "head"}, "scale_scope", "only caches of codes have scales"),
        ({"soft_cap": 0.0}, "soft_cap", "positive"),
        ({"soft_cap": -3.0}, "soft_cap", "got -3"),
        ({"soft_cap": 1e-40}, "soft_cap", "with an inverse"),
        ({"soft_cap": 1e39}, "soft_cap", "float32"),
    ],
)
def test_what_it_refuses(changes: dict[str, Any], field: str, message: str) -> None:
    """With the field's name and what it has."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.AttentionDescriptor(**FIELDS | changes)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_defaults() -> None:
    """What is left out."""
    desc: Any = planq.AttentionDescriptor(**FIELDS)
    assert (desc.value_dim, desc.cache_dtype, desc.output_dtype) == (64, *2 * [desc.input_dtype])
    codes: Any = planq.AttentionDescriptor(**FIELDS, cache_dtype="int8")
    assert codes.scale_scope is planq.CacheScale.TENSOR
    operands = codes.operands()
    assert operands["key_cache"].shape == (2, 100, 2, 64)
    assert operands["query_start"].shape == (3,)
    assert operands["key_scale"].shape == (1,)
    paged: Any = planq.AttentionDescriptor(**FIELDS, page_size=16)
    assert paged.operands()["key_cache"].shape == (14, 16, 2, 64)
    token: Any = replace(codes, pages=9, page_size=16, scale_scope="token", layout="hnd")
    operands = token.operands()
    assert operands["key_cache"].shape == (9, 2, 16, 64)
    assert operands["value_scale"].shape == (9, 2, 16)
    assert operands["block_table"].shape == (2, 7)


def test_wrong_operands_are_named() -> None:
    """With what was expected and what came."""
    problem = Problem((2, 2, 16), 1, 1, 2, 8, "float16", with_lse=True)
    query, cache = normal(2, 2, 16, dtype="float16"), normal(1, 8, 1, 16, dtype="float16")
    given: dict[str, Any] = {
        "query": query,
        "key_cache": cache,
        "value_cache": cache,
        "output": np.empty_like(query),
        "query_start": np.array([0, 2], np.int32),
        "key_length": np.array([8], np.int32),
        "lse": np.empty((2, 2), np.float32),
        "scale": 1.0,
        "invalid": np.empty(1, np.int64),
    }
    desc: Any = planq.AttentionDescriptor(**vars(problem))
    plan = planq.Plan.select(planq.HOST, desc)
    plan.run(planq.HOST, None, planq.AttentionArgs(**given))
    wanted = given["output"].tobytes()
    given["output"][:] = 0
    plan.run(planq.HOST, None, planq.AttentionArgs(**given | {"invalid": None}))
    assert given["output"].tobytes() == wanted
    for name, wrong in (
        ("key_cache", normal(1, 8, 2, 16, dtype="float16")),
        ("query_start", np.array([0, 2], np.int64)),
        ("key_length", np.array([8, 8], np.int32)),
        ("lse", np.empty((2, 3), np.float32)),
        ("output", np.empty((2, 2, 32), np.float16)),
    ):
        with pytest.raises(planq.ArgumentError) as caught:
            plan.run(planq.HOST, None, planq.AttentionArgs(**given | {name: wrong}))
        assert caught.value.operand == name
