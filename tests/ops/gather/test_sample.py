"""`sample` on the host: torch's distributions, filters, batches, edges, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.ops.gather.sample import reference
from planq.audit.ops.gather.sample.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array
from support.tensors import as_torch

FLOATING = ("float16", "bfloat16", "float32")
TYPES = {"top_k": np.int32, "temperature": np.float32, "top_p": np.float32, "min_p": np.float32}
# What a row can be drawn by; a bound of each, and nothing.
SETTINGS: tuple[dict[str, float], ...] = (
    {},
    {"temperature": 0.7},
    {"temperature": 1.6},
    {"top_k": 7},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 12, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 9, "top_p": 0.95, "min_p": 0.05},
)


def drawn(x: Array, stream: Any = planq.HOST, **operands: Any) -> Array:
    """The indices of rows; settings that are one number are those of all rows."""
    rows = x.shape[:-1]
    given_all: dict[str, Any] = {"seed": 0, "position": 0} | operands
    for name, value in given_all.items():
        dtype = TYPES.get(name, np.int64)
        if not isinstance(value, np.ndarray):
            given_all[name] = np.full(rows, value, dtype)
    plan = planq.Plan.select(planq.HOST, planq.SampleDescriptor(shape=x.shape, input_dtype=x.dtype))
    output = np.full(rows, -7, np.int64)
    plan.run(stream, None, planq.SampleArgs(input=x, output=output, **given_all))
    return output


def logits(count: int, width: int, dtype: str = "float32", seed: int = 1) -> Array:
    """Rows as models make them."""
    return (
        (inputs.bell(inputs.hashed(seed, count * width)) * 3)
        .astype(STORAGE[dtype])
        .reshape(count, width)
    )


def settings_of_rows(count: int) -> dict[str, Array]:
    """Others for each row, seeds and positions among them."""
    words = inputs.hashed(3, 2 * count).view(np.int64).reshape(2, count)
    return {
        "seed": words[0],
        "position": words[1],
        "temperature": np.resize(np.array([1, 0.7, 2, 0, 0.1], np.float32), count),
        "top_k": np.resize(np.array([0, 50, 1, 7], np.int32), count),
        "top_p": np.resize(np.array([1, 0.9, 0.5], np.float32), count),
        "min_p": np.resize(np.array([0, 0, 0.05, 0.01, 0, 0.2, 0], np.float32), count),
    }


def distribution(x: Array, own: Mapping[str, float]) -> torch.Tensor:
    """torch's softmax of one row, of which a sort leaves some: the weights of its multinomial."""
    p = (torch.from_numpy(x).double() / own.get("temperature", 1)).softmax(-1)
    ranked, order = p.sort(descending=True)
    if "top_k" in own:
        ranked[int(own["top_k"]) :] = 0
    if "top_p" in own:
        ranked[ranked.cumsum(0) - ranked >= own["top_p"] * ranked.sum()] = 0
    ranked[ranked < own.get("min_p", 0) * ranked[0]] = 0
    return torch.zeros_like(p).scatter(0, order, ranked / ranked.sum())


def deviation(found: Array, p: Array) -> float:
    """Chi-square of counts, in its own standard deviations; infinite for what cannot come."""
    counts = np.bincount(found, minlength=p.size)
    if counts[p == 0].any():
        return np.inf
    wanted = found.size * p[p > 0]
    square = float(((counts[p > 0] - wanted) ** 2 / wanted).sum())
    free = wanted.size - 1
    return (square - free) / (2 * max(free, 1)) ** 0.5


@pytest.mark.parametrize("own", SETTINGS, ids=str)
def test_draws_have_torchs_distribution(own: dict[str, float]) -> None:
    """By positions of one seed, and by seeds at one position, as torch's draws; others have not."""
    row, count = logits(1, 40)[0] / 2, 40_000
    p = distribution(row, own)
    rows = np.broadcast_to(row, (count, row.size)).copy()
    numbers = np.arange(count)
    for varied in ({"position": numbers, "seed": 17}, {"seed": numbers * 977, "position": 3}):
        assert abs(deviation(drawn(rows, **varied, **own), p.numpy())) < 5
    torch.manual_seed(5)
    theirs = p.multinomial(count, replacement=True).numpy()
    assert abs(deviation(theirs, p.numpy())) < 5
    other = {**own, "temperature": 1.05 * own.get("temperature", 1.0)}
    if len(np.flatnonzero(p)) > 2:
        assert deviation(drawn(rows, position=numbers, **other), p.numpy()) > 5


def test_one_draw_tells_nothing_of_the_next() -> None:
    """Pairs of neighbouring positions, and of neighbouring seeds, fall on all pairs equally."""
    count, width = 60_000, 16
    rows, numbers = np.zeros((count, width), np.float32), np.arange(count)
    for varied in ({"position": numbers}, {"seed": numbers}):
        found = drawn(rows, **varied)
        pairs = found[0::2] * width + found[1::2]
        assert abs(deviation(pairs, np.full(width**2, width**-2.0))) < 5


def test_the_random_word_is_philoxs() -> None:
    """Its known answer for zeros begins 6627e8d5 e169c58d; equal weights show its upper bits."""
    for bits in (1, 4, 12, 20):
        found = drawn(np.zeros((1, 2**bits), np.float32))
        assert found.tolist() == [0xE169C58D6627E8D5 >> (64 - bits)]


@pytest.mark.parametrize("dtype", FLOATING)
def test_a_row_draws_alone_as_among_others(dtype: str) -> None:
    """In any order, in chunks of any size, strided, at any address, by any number of threads."""
    count, width = 64, 1003
    x, own = logits(count, width, dtype), settings_of_rows(count)
    found = drawn(x, **own)
    assert len(set(found.tolist())) > count / 2
    for row in range(count):
        alone = {name: values[row : row + 1] for name, values in own.items()}
        assert drawn(x[row : row + 1], **alone).tolist() == [found[row]]
    order = inputs.hashed(9, count).argsort()
    assert np.array_equal(
        drawn(x[order], **{name: values[order] for name, values in own.items()}), found[order]
    )
    for size in (5, 32):
        chunks = [
            drawn(x[at : at + size], **{name: v[at : at + size] for name, v in own.items()})
            for at in range(0, count, size)
        ]
        assert np.array_equal(np.concatenate(chunks), found)
    for threads in (1, 3, 8):
        assert np.array_equal(drawn(x, planq.host_stream(threads=threads), **own), found)
    apart = {name: np.zeros((8, 13), values.dtype) for name, values in own.items()}
    for name, values in own.items():
        apart[name][:, 3:11] = values.reshape(8, 8)
    cut = {name: values[:, 3:11] for name, values in apart.items()}
    room = np.zeros((8, 8, 2, width + 7), x.dtype)
    for past in range(8):
        rows = room[:, :, 1, past : past + width]
        rows[...] = x.reshape(8, 8, width)
        assert np.array_equal(drawn(rows, **cut).reshape(-1), found)


def test_settings_that_are_left_out_keep_everything() -> None:
    """The same draws as with 1, 0, 1 and 0, one by one and all together; a top_k of -1 is 0."""
    x, own = logits(40, 500), settings_of_rows(40)
    numbers = {name: own.pop(name) for name in ("seed", "position")}
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    for name, value in off.items():
        rest = {other: values for other, values in own.items() if other != name}
        found = drawn(x, **numbers, **rest)
        assert np.array_equal(drawn(x, **numbers, **rest, **{name: value}), found)
    assert np.array_equal(drawn(x, **numbers), drawn(x, **numbers, **off))
    assert np.array_equal(drawn(x, **numbers, top_k=-1), drawn(x, **numbers))


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(
    "own", [{"temperature": 0}, {"top_k": 1}, {"top_p": 0}, {"temperature": 1e-30, "top_p": 0.5}]
)
def test_one_element_is_left_and_it_is_argmaxs(own: dict[str, float], dtype: str) -> None:
    """The first of the largest, whatever the random number is."""
    for kind in ("steps", "zeros", "normal"):
        made = np.rint(logits(30, 400, dtype).astype(np.float32))
        x = made.astype(STORAGE[dtype]) if kind == "steps" else inputs.make(kind, (30, 400), dtype)
        first = as_torch(x).argmax(-1).tolist()
        equal = (x == x.max(-1, keepdims=True)).sum(-1) > 1
        if own.get("top_p") == 0.5:  # which takes half of equal elements
            x, first = x[~equal], np.array(first)[~equal].tolist()
        assert drawn(x, position=np.arange(len(x)), **own).tolist() == first


def test_of_equal_elements_the_first_ones_are_kept() -> None:
    """By top_k a number of them, by top_p a part that is exact; min_p takes all or none."""
    count, x = 4000, np.zeros(64, np.float32)
    x[[3, 9, 10, 20, 33, 34, 35, 60]] = 2.5
    largest = np.flatnonzero(x)
    rows, position = np.broadcast_to(x, (count, 64)).copy(), np.arange(count)

    def support(**own: Any) -> list[int]:
        return np.unique(drawn(rows, position=position, **own)).tolist()

    assert support(top_k=3) == largest[:3].tolist()
    assert support(top_k=9) == sorted([0, *largest])
    assert support(top_k=8, top_p=0.5) == largest[:4].tolist()
    assert support(top_k=8, top_p=np.nextafter(np.float32(0.5), 1).item()) == largest[:5].tolist()
    assert support(top_k=6, top_p=0.5) == largest[:3].tolist()
    assert support(min_p=1) == largest.tolist()
    p = np.exp(np.float64(-2.5)).astype(np.float32)  # exp's bits are those of the rounded number
    assert support(min_p=float(p)) == list(range(64))
    assert support(min_p=float(np.nextafter(p, np.float32(1)))) == largest.tolist()


def test_rows_without_an_index_are_minus_one_and_counted() -> None:
    """Bad elements and bad settings, of these rows alone; a left-out count is no fault."""
    nan, inf = np.nan, np.inf
    bad = (
        *({"temperature": -1}, {"temperature": nan}, {"temperature": inf}, {"top_p": 1.001}),
        *({"top_p": -1e-45}, {"top_p": nan}, {"min_p": nan}, {"min_p": -1}, {"min_p": 1.5}),
    )
    count = len(bad) + 5
    x = np.zeros((count, 50), np.float32)
    own = {
        name: np.full(count, 1 if name != "min_p" else 0, dtype) for name, dtype in TYPES.items()
    }
    for row, faults in enumerate(bad):
        for name, value in faults.items():
            own[name][row] = value
    x[-5, 17], x[-4], x[-3, 17], x[-2, :-1] = nan, -inf, inf, -inf
    x[-1, 33], own["temperature"][-1] = -nan, 0
    plan = planq.Plan.select(
        planq.HOST,
        planq.SampleDescriptor(shape=x.shape, input_dtype="float32", output_dtype="int32"),
    )
    output, invalid = np.full(count, -7, np.int32), np.full(1, -7)
    numbers = {name: np.zeros(count, np.int64) for name in ("seed", "position")}
    args = planq.SampleArgs(input=x, output=output, invalid=invalid, **numbers, **own)
    plan.run(planq.HOST, None, args)
    assert output.tolist() == [*[-1] * len(bad), -1, -1, 17, 49, -1]
    assert invalid.tolist() == [len(bad) + 3]
    assert np.array_equal(drawn(x, **own), output)


def test_infinite_elements_share_all() -> None:
    """Equally, and leave nothing; -infinity never comes, however hot it is."""
    x = np.zeros((3000, 9), np.float32)
    x[:, [2, 7]] = np.inf
    position = np.arange(len(x))
    found = drawn(x, position=position, temperature=0.3)
    assert abs(np.count_nonzero(found == 2) / len(x) - 0.5) < 0.05
    assert set(found.tolist()) == {2, 7}
    x = np.full((3000, 9), -np.inf, np.float32)
    x[:, [1, 4]] = -1e38, 1e38
    assert set(drawn(x, position=position, temperature=3.4e38).tolist()) == {1, 4}


@settings(max_examples=150, deadline=None)
@given(
    rows=st.integers(1, 3),
    width=st.one_of(st.integers(1, 40), st.integers(1, 1500)),
    dtype=st.sampled_from(FLOATING),
    kind=st.sampled_from(("ties", "zeros", "subnormal", "normal", "huge", "patterns", "offset")),
    temperature=st.floats(0, 2.0**127, width=32),
    top_k=st.integers(-1, 1600),
    top_p=st.floats(0, 1, width=32),
    min_p=st.floats(0, 1, width=32),
    seed=st.integers(-(2**63), 2**63 - 1),
    position=st.integers(-(2**63), 2**63 - 1),
)
def test_any_settings_draw_as_the_reference(
    rows: int, width: int, dtype: str, kind: str, seed: int, position: int, **own: float
) -> None:
    """All of them, together."""
    x = inputs.make(kind, (rows, width), dtype, seed)
    every = {"seed": seed, "position": position, **own}
    held = {name: np.full(rows, v, TYPES.get(name, np.int64)) for name, v in every.items()}
    wanted = reference.sample(Problem(x.shape, dtype), {"input": x, **held})
    assert drawn(x, **every).tolist() == wanted["output"].tolist()


@pytest.mark.parametrize("own", [{}, {"top_k": 500}, {"top_p": 0.9}, {"top_p": 0.99999}])
@pytest.mark.parametrize("scale", [0.01, 1, 30])
def test_long_rows_draw_as_the_reference(scale: float, own: dict[str, float]) -> None:
    """Of a million elements: flat ones, where all matter, and peaked ones."""
    x = (logits(1, 2**20 + 3, "float32", 8) * np.float32(scale)).astype(np.float32)
    held = {name: np.full(1, v, TYPES.get(name, np.int64)) for name, v in own.items()}
    numbers = {"seed": np.array([5]), "position": np.array([2**40])}
    wanted = reference.sample(Problem(x.shape, "float32"), {"input": x, **held, **numbers})
    assert drawn(x, **numbers, **own).tolist() == wanted["output"].tolist()


def test_one_plan_takes_every_number_of_requests() -> None:
    """Rows may be a Dim; no request draws otherwise in a larger step."""
    requests = planq.Dim("requests", max=300)
    plan = planq.Plan.select(
        planq.HOST, planq.SampleDescriptor(shape=(requests, 90), input_dtype="bfloat16")
    )
    x, own = logits(300, 90, "bfloat16"), settings_of_rows(300)
    whole = drawn(x, **own)
    for count in (0, 1, 7, 300):
        made = plan.empty_outputs(np, requests=count)
        few = {name: values[:count] for name, values in own.items()}
        made["invalid"] = np.full(1, -7)
        plan.run(planq.HOST, None, planq.SampleArgs(input=x[:count], **few, **made))
        assert np.array_equal(made["output"], whole[:count])
        assert made["invalid"].tolist() == [0]


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"shape": (3, 0)}, "shape", "expected rows of 1 to 8388608 elements, got 0"),
        ({"shape": (0, 2**23 + 1)}, "shape", "got 8388609"),
        ({"input_dtype": "float64"}, "input_dtype", "float64"),
        ({"output_dtype": "float32"}, "output_dtype", "float32"),
    ],
)
def test_descriptors_that_are_refused(changes: dict[str, Any], field: str, text: str) -> None:
    """Each names its field and what came."""
    fields: dict[str, Any] = {"shape": (3, 5), "input_dtype": "float32"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.SampleDescriptor(**(fields | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("input", np.zeros((6, 41), np.float32)),
        ("seed", np.zeros(6, np.int32)),
        ("position", np.zeros(5, np.int64)),
        ("temperature", np.zeros(1, np.float32)),
        ("top_k", np.zeros(6, np.int64)),
        ("top_p", np.zeros(6, np.float64)),
        ("min_p", np.zeros((6, 1), np.float32)),
        ("invalid", np.zeros(6, np.int64)),
    ],
)
def test_operands_that_do_not_fit_are_named_and_nothing_is_written(name: str, other: Array) -> None:
    """Before anything runs."""
    plan = planq.Plan.select(
        planq.HOST, planq.SampleDescriptor(shape=(6, 40), input_dtype="float32")
    )
    operands: dict[str, Any] = {"input": np.zeros((6, 40), np.float32)}
    operands |= {number: np.zeros(6, np.int64) for number in ("seed", "position")}
    operands["output"] = np.full(6, 7)
    with pytest.raises(planq.ArgumentError, match=f"^{name}: "):
        plan.run(planq.HOST, None, planq.SampleArgs(**(operands | {name: other})))
    assert (operands["output"] == 7).all()


def test_every_type_has_a_kernel_of_both_backends() -> None:
    """Without workspace, exact, and a row at a time."""
    pref = planq.PlanPreference(
        determinism=planq.Determinism.BIT_EXACT, batch_invariant=True, max_workspace_bytes=0
    )
    found = {
        (dtype, device): planq.explain(
            planq.SampleDescriptor(shape=(6, 40), input_dtype=dtype), pref, device=device
        ).chosen
        for dtype in FLOATING
        for device in ("host", "sm_80", "sm_90")
    }
    assert all(each is not None for each in found.values())
    assert len({each.sku for each in found.values() if each}) == 2 * len(FLOATING)
