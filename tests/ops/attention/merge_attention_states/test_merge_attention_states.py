"""`merge_attention_states` on the host: torch, parts of keys, sides without keys, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import planq
from ops.attention.attention.sequences import Batch, Chunk, Options
from planq.audit.memory import Host
from planq.audit.ops.attention.merge_attention_states.adapter import TESTS
from planq.audit.ops.attention.merge_attention_states.cases import Case
from planq.audit.ops.attention.merge_attention_states.reference import Problem
from planq.audit.reference.formats import Array, Arrays
from planq.audit.runner import Bench
from support.tensors import as_torch

DTYPES = ("float16", "bfloat16", "float32")


def merge(given: Arrays) -> Arrays:
    """The outputs of a run on these operands."""
    problem = Problem(given["output_a"].shape, given["output_a"].dtype.name)
    bench = Bench(Host(), TESTS.descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_near_those_of_float64(dtype: str) -> None:
    """Of torch's softmax over two logarithms."""
    given = Case(Problem((40, 3, 96), dtype), "normal", 4).inputs()
    finite = {n: np.where(np.isfinite(v), v, v.dtype.type(0)) for n, v in given.items()}
    lse = torch.stack([as_torch(finite[f"lse_{x}"]).double() for x in "ab"])
    output = torch.stack([as_torch(finite[f"output_{x}"]).double() for x in "ab"])
    found = merge(finite)
    wanted = (torch.softmax(lse, 0)[..., None] * output).sum(0)
    epsilon = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-20}[dtype]
    error = (as_torch(found["output"]).double() - wanted).abs()
    # A power of 2 has the error of its exponent, which logarithms in the thousands make large.
    near = lse.abs().amax(0) < 16
    assert near.sum() > 50
    assert (error <= epsilon * output.abs().sum(0) + 1e-7)[near].all()
    wanted = torch.logsumexp(lse, 0)
    error = (as_torch(found["lse"]).double() - wanted).abs()
    assert (error <= 1e-6 * (1 + wanted.abs()))[near].all()


def test_attention_of_parts_of_the_keys_is_that_of_all() -> None:
    """Up to roundings: of the first keys and of the rest, merged."""
    options = Options(causal=False)
    batch = Batch(options, (700,))
    own, chunk = batch.sequences[0], Chunk(0, 600, 700)
    wanted = batch.attend([chunk])
    parts = []
    for first, end in ((0, 333), (333, 700)):
        part = Batch(options, (700,))
        for side in ("key", "value"):
            getattr(part.sequences[0], side)[: end - first] = getattr(own, side)[first:end]
        parts.append(part.attend([Chunk(0, 600, 700, keys=end - first)]))
    given = {
        f"{n}_{x}": part[n] for x, part in zip("ab", parts, strict=True) for n in ("output", "lse")
    }
    found = merge(given)
    assert np.allclose(found["output"], wanted["output"], atol=2e-3)
    assert np.allclose(found["lse"], wanted["lse"], rtol=1e-5)


def rows(*lse: float) -> Array:
    """A logarithm for each token of one head."""
    return np.array(lse, np.float32)[:, None]


@pytest.mark.parametrize("dtype", DTYPES)
def test_sides_without_keys_take_no_part(dtype: str) -> None:
    """Whatever their outputs are; without any keys there are zeros."""
    none, inf = -np.inf, np.inf
    own = np.arange(1, 17, dtype=np.float32).astype(dtype if dtype != "bfloat16" else np.float32)
    case = Case(Problem((6, 1, 16), dtype), "normal", 1).inputs()
    given = dict(case)
    kept = given["output_a"].dtype.type
    given["output_a"] = np.array([np.nan, *[1] * 5]).astype(kept)[:, None, None] * own.astype(kept)
    given["output_b"] = np.array([1, np.nan, np.inf, 1, 1, 1]).astype(kept)[
        :, None, None
    ] * own.astype(kept)
    given["lse_a"], given["lse_b"] = (
        rows(none, 2, none, inf, np.nan, 1),
        rows(3, none, none, 0, 0, 1),
    )
    found = merge({n: np.ascontiguousarray(v) for n, v in given.items()})
    output, lse = found["output"][:, 0].astype(np.float32), found["lse"][:, 0]
    plain = own.astype(kept).astype(np.float32)
    assert (output[0] == plain).all()
    assert (output[1] == plain).all()
    assert (output[5] == plain).all()
    assert not output[2].any()
    assert not np.signbit(output[2]).any()
    assert np.isnan(output[3:5]).all()
    assert np.isnan(lse[3:5]).all()
    assert np.allclose(lse[[0, 1, 5]], [3, 2, 1 + np.log(2)])
    assert lse[2] == none


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"shape": (8, 64)}, "shape", "expected 3 to 8 axes"),
        ({"shape": (1, 8, 4, 64)}, "shape", "got 4 axes"),
        ({"dtype": "float64"}, "dtype", "float64"),
        ({"dtype": "int8"}, "dtype", "int8"),
    ],
)
def test_what_it_refuses(changes: dict[str, Any], field: str, message: str) -> None:
    """With the field's name and what it has."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.MergeAttentionStatesDescriptor(**{"shape": (8, 4, 64), "dtype": "float16"} | changes)
    assert caught.value.field == field
    assert message in str(caught.value)
