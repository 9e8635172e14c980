"""The gather family on the host: torch, other operators of planq, edges, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.ops.gather.argmax.adapter import largest
from planq.audit.ops.gather.argmax.reference import Problem as RowProblem
from planq.audit.ops.gather.embedding.adapter import embed
from planq.audit.ops.gather.embedding.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array, Arrays, pack_nibbles
from support.tensors import as_torch

FLOATING = ("float16", "bfloat16", "float32")
PROBLEM = Problem((6, 40), 9, "bfloat16", "bfloat16")
INDEX = np.array([8, 0, 3, 3, 7, 1], np.int64)


def fetched(table: Array, index: Array, output_dtype: str, factor: float = 1.0) -> Arrays:
    """The outputs for a floating table."""
    shape = (*index.shape, table.shape[1])
    problem = Problem(shape, table.shape[0], table.dtype.name, output_dtype, index.dtype.name)
    return embed(problem, {"table": table, "index": index, "factor": np.array(factor, np.float64)})


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_rows_are_torchs(dtype: str, index_dtype: str) -> None:
    """All that are finite; a product with a factor is torch's in float32, rounded once."""
    table = inputs.make("finite", (50, 33), dtype, 3)
    index = (np.arange(77) * 31 % 50).astype(index_dtype).reshape(7, 11)
    rows = torch.nn.functional.embedding(as_torch(index), as_torch(table))
    found = fetched(table, index, dtype)
    assert torch.equal(as_torch(found["output"]).view(torch.uint8), rows.view(torch.uint8))
    assert found["invalid"].tolist() == [0]
    factor = 40.0**0.5
    scaled = (rows.float() * torch.tensor(factor, dtype=torch.float32)).to(rows.dtype)
    found = fetched(table, index, dtype, factor)
    assert torch.equal(as_torch(found["output"]).view(torch.uint8), scaled.view(torch.uint8))


@pytest.mark.parametrize("scale_dtype", FLOATING)
@pytest.mark.parametrize("scope", [("token",), ("group", 16), ("group", 7)])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("output_dtype", FLOATING)
def test_rows_of_codes_are_those_of_dequantize(
    output_dtype: str, dtype: str, scope: tuple[Any, ...], scale_dtype: str
) -> None:
    """The whole table dequantized, then its rows: the same bits, subnormal ones among them."""
    own = planq.Scope.group(scope[1]) if scope[0] == "group" else planq.Scope.token()
    words = inputs.hashed(5, 20 * 45).view(np.int64).reshape(20, 45)
    codes = (words % 15 - 7 if dtype == "int4" else words % 255 - 127).astype(np.int8)
    table = pack_nibbles(codes, "low_first") if dtype == "int4" else codes
    problem = Problem((30, 45), 20, dtype, output_dtype, "int64", scope, scale_dtype)
    scale = inputs.make("mixed", problem.scale_shape, scale_dtype, 8)
    wide = {}
    for wanted in (output_dtype, "float32"):
        desc = planq.DequantizeDescriptor(
            shape=(20, 45),
            input_dtype=dtype,
            output_dtype=wanted,
            scope=own,
            scale_dtype=scale_dtype,
        )
        wide[wanted] = np.empty((20, 45), STORAGE[wanted])
        args = planq.DequantizeArgs(input=table, output=wide[wanted], scale=scale)
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    index = np.arange(30) * 7 % 20
    given_all = {"table": table, "index": index, "scale": scale, "factor": np.array(1.0)}
    found = embed(problem, given_all)["output"]
    assert found.tobytes() == wide[output_dtype][index].tobytes()
    # fl(fl(s * q) * f), not fl(s * fl(q * f)) nor fl(fl(s * f) * q).
    factor = 1 / 3
    with np.errstate(all="ignore"):
        product = wide["float32"][index] * np.float32(factor)
    again = fetched(product.astype(np.float32), np.arange(30), output_dtype)["output"]
    found = embed(problem, given_all | {"factor": np.array(factor)})["output"]
    assert found.tobytes() == again.tobytes()


@pytest.mark.parametrize("factor", [None, 1, 0.3, -2.5e-41, float("inf"), 1e300])
def test_a_factor_by_value_in_memory_and_none_at_all(factor: float | None) -> None:
    """One number, wherever it is; none is 1."""
    table = inputs.make("mixed", (9, 40), "bfloat16", 2)
    plan = planq.Plan.select(
        planq.HOST,
        planq.EmbeddingDescriptor(
            shape=(6, 40), table_rows=9, table_dtype="bfloat16", output_dtype="bfloat16"
        ),
    )
    wanted = fetched(table, INDEX, "bfloat16", 1.0 if factor is None else factor)["output"]
    forms = [factor] if factor is None else [factor, np.array(factor, np.float64)]
    for form in forms:
        output, invalid = np.empty((6, 40), table.dtype), np.full(1, -7)
        args = planq.EmbeddingArgs(
            table=table, index=INDEX, output=output, factor=form, invalid=invalid
        )
        plan.run(planq.HOST, None, args)
        assert output.tobytes() == wanted.tobytes()
        assert invalid.tolist() == [0]


def test_what_is_out_of_range_is_zero_and_counted() -> None:
    """Whatever the factor; indices of 64 bits are not cut to 32."""
    table = np.ones((5, 8), np.float32)
    index = np.array([0, -1, 5, 4, 2**32, 2**63 - 1, -(2**63), 1 - 2**32], np.int64)
    for factor in (-1.0, float("nan"), float("inf")):
        found = fetched(table, index, "float32", factor)
        assert found["invalid"].tolist() == [6]
        inside = np.isin(index, [0, 4])
        assert found["output"][~inside].tobytes() == np.zeros((6, 8), np.float32).tobytes()
        assert np.array_equal(found["output"][inside], np.full((2, 8), factor), equal_nan=True)


def test_a_nan_becomes_the_canonical_one() -> None:
    """Also where nothing is computed; zeros keep their signs."""
    bits = np.array([[0xFFC1, 0x7F81, 0x8000, 0x0000, 0xFF80]], np.uint16)
    table = bits.view(STORAGE["bfloat16"])
    found = fetched(table, np.zeros(1, np.int64), "bfloat16")["output"].view(np.uint16)
    assert found.tolist() == [[0x7FC0, 0x7FC0, 0x8000, 0x0000, 0xFF80]]


def test_one_plan_takes_every_number_of_indices() -> None:
    """Indices of a step may be a Dim."""
    tokens = planq.Dim("tokens", max=300)
    desc = planq.EmbeddingDescriptor(
        shape=(tokens, 24), table_rows=9, table_dtype="float16", output_dtype="float32"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    table = inputs.make("finite", (9, 24), "float16", 4)
    for count in (0, 1, 300):
        index = np.arange(count) % 11
        made = plan.empty_outputs(np, tokens=count)
        plan.run(planq.HOST, None, planq.EmbeddingArgs(table=table, index=index, **made))
        assert made["output"].tobytes() == fetched(table, index, "float32")["output"].tobytes()
        assert made["invalid"].tolist() == [np.count_nonzero(index > 8)]
    rows = planq.ArgmaxDescriptor(shape=(tokens, 24), input_dtype="float32")
    plan = planq.Plan.select(planq.HOST, rows)
    for count in (0, 1, 300):
        x = inputs.make("ties", (count, 24), "float32", count)
        found = plan.empty_outputs(np, tokens=count)
        plan.run(planq.HOST, None, planq.ArgmaxArgs(input=x, **found))
        assert found["output"].tolist() == largest(RowProblem(x.shape, "float32"), x).tolist()


def descriptor(**changes: Any) -> planq.Descriptor:
    """A descriptor of `embedding` with other fields."""
    fields: dict[str, Any] = {"shape": (6, 40), "table_rows": 9}
    fields |= {"table_dtype": "bfloat16", "output_dtype": "bfloat16"}
    return planq.EmbeddingDescriptor(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"shape": (40,)}, "shape", "expected 2 to 8 axes, got 1"),
        ({"table_rows": -1}, "table_rows", "expected 0 or more, got -1"),
        ({"table_dtype": "float64"}, "table_dtype", "float64"),
        ({"table_dtype": "uint8"}, "table_dtype", "uint8"),
        ({"output_dtype": "float64"}, "output_dtype", "float64"),
        ({"index_dtype": "uint8"}, "index_dtype", "uint8"),
        ({"scope": planq.Scope.group(8)}, "scope", "tables of codes"),
        ({"scale_dtype": "float32"}, "scale_dtype", "tables of codes"),
        ({"table_dtype": "int8", "scope": planq.Scope.tensor()}, "scope", "got tensor"),
        ({"table_dtype": "int8", "scope": planq.Scope.group(8, 0)}, "scope", "last axis"),
        ({"table_dtype": "int4", "scale_dtype": "float64"}, "scale_dtype", "float64"),
    ],
)
def test_descriptors_of_embedding_that_are_refused(
    changes: dict[str, Any], field: str, text: str
) -> None:
    """Each names its field and what came."""
    with pytest.raises(planq.DescriptorError) as caught:
        descriptor(**changes)
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("table", np.zeros((9, 41), np.float32)),
        ("index", np.zeros(5, np.int64)),
        ("index", np.zeros(6, np.int32)),
        ("invalid", np.zeros(1, np.int32)),
        ("scale", np.zeros(9, np.float32)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Array) -> None:
    """Before anything runs."""
    plan = planq.Plan.select(planq.HOST, descriptor(table_dtype="float32", output_dtype="float32"))
    output, invalid = np.full((6, 40), 7, np.float32), np.full(1, 7)
    operands: dict[str, Any] = {"table": np.zeros((9, 40), np.float32), "index": INDEX}
    operands |= {"output": output, "invalid": invalid}
    with pytest.raises(planq.ArgumentError, match=f"^{name}: "):
        plan.run(planq.HOST, None, planq.EmbeddingArgs(**(operands | {name: other})))
    assert (output == 7).all()
    assert (invalid == 7).all()


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("kind", ["normal", "mixed", "zeros", "ties", "all_nonfinite", "huge"])
def test_indices_are_torchs(kind: str, dtype: str) -> None:
    """A NaN is the largest there too, and the first of equal ones counts."""
    x = inputs.make(kind, (40, 1000), dtype, 5)
    found = largest(RowProblem(x.shape, dtype), x)
    assert found.tolist() == as_torch(x).argmax(-1).tolist()


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), max_size=2),
    width=st.integers(1, 2000),
    dtype=st.sampled_from(FLOATING),
    kind=st.sampled_from(("ties", "zeros", "mixed", "subnormal")),
    seed=st.integers(0, 1000),
)
def test_no_element_is_above_and_none_before_is_equal(
    shape: list[int], width: int, dtype: str, kind: str, seed: int
) -> None:
    """What the index promises, row by row."""
    x = inputs.make(kind, (*shape, width), dtype, seed)
    found = largest(RowProblem(x.shape, dtype, "int32"), x)
    assert found.shape == tuple(shape)
    rows = x.reshape(-1, width).astype(np.float64)
    for row, place in zip(rows, found.reshape(-1), strict=True):
        before = row[:place]
        assert not np.isnan(before).any()
        if not np.isnan(row[place]):
            assert not np.isnan(row).any()
            assert (before < row[place]).all()
            assert (row <= row[place]).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_a_row_that_threads_share(threads: int) -> None:
    """Equal elements in the shares of several of them."""
    x = np.zeros((2, 300_001), np.float32)
    x[0, [40_000, 40_001, 299_999]] = 3
    x[1, [250_000, 300_000]] = np.nan
    plan = planq.Plan.select(
        planq.HOST, planq.ArgmaxDescriptor(shape=x.shape, input_dtype="float32")
    )
    output = np.empty(2, np.int64)
    stream = planq.host_stream(threads=threads)
    plan.run(stream, None, planq.ArgmaxArgs(input=x, output=output))
    assert output.tolist() == [40_000, 250_000]


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"shape": (3, 0)}, "shape", "expected rows of 1 to 2147483647 elements, got 0"),
        ({"shape": (0, 2**31)}, "shape", "got 2147483648"),
        ({"input_dtype": "float64"}, "input_dtype", "float64"),
        ({"output_dtype": "float32"}, "output_dtype", "float32"),
    ],
)
def test_descriptors_of_argmax_that_are_refused(
    changes: dict[str, Any], field: str, text: str
) -> None:
    """An empty row has no largest element."""
    fields: dict[str, Any] = {"shape": (3, 5), "input_dtype": "float32"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.ArgmaxDescriptor(**(fields | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


def test_every_pair_of_types_has_a_kernel_of_both_backends() -> None:
    """Without workspace, exact, and a row at a time."""
    problems = [
        replace(PROBLEM, table_dtype=table, output_dtype=output)
        for table in (*FLOATING, "int8", "int4")
        for output in FLOATING
    ]
    found = {
        (each.table_dtype, each.output_dtype, device): planq.explain(
            descriptor(table_dtype=each.table_dtype, output_dtype=each.output_dtype),
            planq.PlanPreference(batch_invariant=True, max_workspace_bytes=0),
            device=device,
        ).chosen
        for each in problems
        for device in ("host", "sm_80", "sm_90")
    }
    assert all(each is not None for each in found.values())
    assert len({each.sku for each in found.values() if each}) == 2 * len(problems)
