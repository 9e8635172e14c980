"""`rotary_embedding` on the host: transformers, rms_norm before it, edges, what it refuses."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.position.rotary_embedding.adapter import turn
from planq.audit.ops.position.rotary_embedding.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays
from support.tensors import as_torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that transformers imports
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

FLOATING = ("float16", "bfloat16", "float32")
PAIRS = ("neox", "interleaved")


def angles(rows: int, half: int) -> Array:
    """Cosines and sines of many angles."""
    turns = np.arange(rows)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.concatenate([np.cos(turns), np.sin(turns)], 1).astype(np.float32)


def operands(problem: Problem, seed: int = 3, data: str = "normal") -> Arrays:
    """Heads, a table and positions in it."""
    made = {
        "query": inputs.make(data, problem.query_shape, problem.dtype, seed),
        "cos_sin": angles(problem.max_position, problem.rotary // 2),
        "position": (np.arange(problem.tokens) * 7 % problem.max_position).astype(
            problem.position_dtype
        ),
    }
    if problem.key_heads:
        made["key"] = inputs.make(data, problem.key_shape, problem.dtype, seed + 1)
    return made


@pytest.mark.parametrize("dtype", FLOATING)
def test_heads_are_nearly_those_of_transformers(dtype: str) -> None:
    """Its float32 products round one more time: half an ulp of the larger product; then one of T.

    Interleaved pairs are those of halves after a permutation of the columns.
    """
    problem = Problem((6, 4, 64), 50, dtype, 2)
    given = operands(problem)
    table = torch.from_numpy(given["cos_sin"][given["position"]])
    cosines, sines = (part.repeat(1, 2)[None] for part in table.chunk(2, -1))
    heads = [as_torch(given[name]).float().transpose(0, 1)[None] for name in ("query", "key")]
    theirs = apply_rotary_pos_emb(*heads, cosines, sines)
    order = np.arange(64).reshape(2, 32).T.reshape(-1)  # from halves to neighbours
    for pairs in PAIRS:
        columns = order if pairs == "interleaved" else np.arange(64)
        permuted = given | {
            name: np.ascontiguousarray(given[name][..., columns]) for name in ("query", "key")
        }
        found = turn(replace(problem, pairs=pairs), permuted)
        for name, wanted, x in zip(("query", "key"), theirs, heads, strict=True):
            exact = wanted[0].transpose(0, 1)[..., torch.from_numpy(columns)].double()
            ours = as_torch(found[name]).double()
            largest = x.abs().amax().double()
            own = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
            bound = exact.abs() * own + largest * 2.0**-23 + 2.0**-24
            assert ((ours - exact).abs() <= bound).all(), (pairs, name)


@pytest.mark.parametrize("weights", FLOATING)
@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(5, 3, 128), (4, 2, 33)])
def test_a_norm_and_a_turn_are_the_two_operators(
    shape: tuple[int, int, int], dtype: str, weights: str
) -> None:
    """The same bits as rms_norm and a rotation after it, huge and subnormal heads among them."""
    columns, rotary = shape[2], shape[2] // 4 * 2
    for data in ("normal", "mixed", "subnormal", "huge", "nonfinite"):
        problem = Problem(shape, 20, dtype, 2, rotary, "neox", "int32", weights)
        given = operands(problem, data=data)
        for seed, name in enumerate(("query_weight", "key_weight")):
            given[name] = inputs.make("finite", (columns,), weights, seed)
        fused = turn(problem, given | {"eps": np.array(1e-5)})
        plain = replace(problem, norm_weight_dtype=None)
        apart = {name: given[name] for name in ("cos_sin", "position")}
        for name in ("query", "key"):
            x = given[name]
            desc = planq.RmsNormDescriptor(
                shape=x.shape, input_dtype=dtype, weight_dtype=weights, output_dtype=dtype
            )
            apart[name] = np.empty(x.shape, STORAGE[dtype])
            args = planq.RmsNormArgs(
                input=x, weight=given[f"{name}_weight"], output=apart[name], eps=1e-5
            )
            planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
        after = turn(plain, apart)
        for name in ("query", "key"):
            # A column that is not turned keeps the NaN of rms_norm, the canonical one.
            assert fused[name].tobytes() == after[name].tobytes(), (data, name)


def test_columns_beyond_the_rotation_keep_their_bits() -> None:
    """NaNs with payloads too; those that are turned become the canonical one."""
    query = np.full((1, 1, 8), 0xFFC1, np.uint16).view(STORAGE["bfloat16"])
    problem = Problem((1, 1, 8), 2, "bfloat16", None, 4)
    found = turn(problem, operands(problem) | {"query": query})["query"].view(np.uint16)
    assert found.tolist() == [[[0x7FC0] * 4 + [0xFFC1] * 4]]


@pytest.mark.parametrize("norm", [None, "float32"])
def test_positions_that_the_table_lacks_make_nan_and_are_counted(norm: str | None) -> None:
    """All columns of all heads of the token; positions of 64 bits are not cut to 32."""
    position = np.array([0, -1, 5, 4, 2**32, 2**63 - 1, -(2**63), 1 - 2**32], np.int64)
    problem = Problem((8, 2, 12), 5, "float32", 1, 8, "interleaved", "int64", norm)
    given = operands(problem) | {"position": position, "eps": np.array(0.0)}
    given |= {name: np.ones(12, np.float32) for name in ("query_weight", "key_weight")}
    if not norm:
        for name in ("query_weight", "key_weight", "eps"):
            del given[name]
    found = turn(problem, given)
    assert found["invalid"].tolist() == [6]
    inside = np.isin(position, [0, 4])
    for name in ("query", "key"):
        assert (found[name].view(np.uint32)[~inside] == 0x7FC00000).all()
        assert np.isfinite(found[name][inside]).all()


@pytest.mark.parametrize("dtype", FLOATING)
def test_angle_zero_changes_nothing_and_the_turn_back_nearly_nothing(dtype: str) -> None:
    """Position 0 has the cosine 1 and the sine 0: a product with 0 is added."""
    problem = Problem((3, 2, 16), 40, dtype)
    given = operands(problem)
    given["position"][:] = 0
    assert turn(problem, given)["query"].tobytes() == given["query"].tobytes()
    given["position"][:] = 17
    there = turn(problem, given)["query"]
    back = given | {"query": there, "cos_sin": given["cos_sin"] * np.repeat([1, -1], 8)}
    back["cos_sin"] = back["cos_sin"].astype(np.float32)
    again = turn(problem, back)["query"].astype(np.float64)
    size = np.abs(given["query"].astype(np.float64)).max()
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22}[dtype]
    assert np.abs(again - given["query"].astype(np.float64)).max() <= 3 * ulp * size


def test_one_plan_takes_every_number_of_tokens() -> None:
    """Tokens of a step may be a Dim."""
    tokens = planq.Dim("tokens", max=300)
    desc = planq.RotaryEmbeddingDescriptor(
        query_shape=(tokens, 2, 16), key_heads=1, dtype="float32", max_position=40
    )
    plan = planq.Plan.select(planq.HOST, desc)
    for count in (0, 1, 300):
        problem = Problem((count, 2, 16), 40, "float32", 1)
        given = operands(problem)
        wanted = turn(problem, given)
        invalid = np.full(1, -7)
        plan.run(planq.HOST, None, planq.RotaryEmbeddingArgs(**given, invalid=invalid))
        assert given["query"].tobytes() == wanted["query"].tobytes()
        assert given["key"].tobytes() == wanted["key"].tobytes()
        assert invalid.tolist() == [0]


def descriptor(**changes: Any) -> planq.Descriptor:
    """A descriptor with other fields."""
    fields: dict[str, Any] = {"query_shape": (6, 2, 16), "dtype": "float32", "max_position": 9}
    return planq.RotaryEmbeddingDescriptor(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"query_shape": (6, 16)}, "query_shape", "expected 3 to 8 axes, got 2"),
        ({"query_shape": (1, 6, 2, 16)}, "query_shape", "got 4 axes"),
        ({"query_shape": (6, 2, 1)}, "query_shape", "2 to 1024 columns, got 1"),
        ({"query_shape": (6, 2, 1026)}, "query_shape", "got 1026"),
        ({"key_heads": -1}, "key_heads", "got -1"),
        ({"rotary_dim": 7}, "rotary_dim", "an even number from 2 to the 16 columns"),
        ({"rotary_dim": 18}, "rotary_dim", "got 18"),
        ({"query_shape": (6, 2, 15)}, "rotary_dim", "got 15"),
        ({"max_position": -1}, "max_position", "expected 0 or more, got -1"),
        ({"dtype": "float64"}, "dtype", "float64"),
        ({"position_dtype": "uint8"}, "position_dtype", "uint8"),
        ({"norm_weight_dtype": "float64"}, "norm_weight_dtype", "float64"),
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
        ("cos_sin", np.zeros((9, 8), np.float32)),
        ("cos_sin", np.zeros((9, 16), np.float64)),
        ("position", np.zeros(6, np.int32)),
        ("query_weight", np.zeros(16, np.float32)),
        ("eps", 1e-5),
        ("invalid", np.zeros(2, np.int64)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Any) -> None:
    """Before anything runs."""
    plan = planq.Plan.select(planq.HOST, descriptor())
    query, invalid = np.full((6, 2, 16), 7, np.float32), np.full(1, 7)
    given: dict[str, Any] = {"query": query, "position": np.zeros(6, np.int64)}
    given |= {"cos_sin": np.zeros((9, 16), np.float32), "invalid": invalid}
    with pytest.raises(planq.ArgumentError, match=f"^{name}: "):
        plan.run(planq.HOST, None, planq.RotaryEmbeddingArgs(**(given | {name: other})))
    assert (query == 7).all()
    assert (invalid == 7).all()


def test_every_type_has_a_kernel_of_both_backends() -> None:
    """Without workspace, exact, and a token at a time."""
    for dtype in FLOATING:
        for norm in (None, "bfloat16"):
            for device in ("host", "sm_80", "sm_90"):
                preference = planq.PlanPreference(batch_invariant=True, max_workspace_bytes=0)
                desc = descriptor(dtype=dtype, norm_weight_dtype=norm)
                assert planq.explain(desc, preference, device=device).chosen is not None
