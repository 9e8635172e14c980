"""Operands of collectives that share memory: refused where something is lost, before it is sent."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import planq
import planq.distributed as pd
from planq.distributed import _transport

RANK, RANKS = 1, 4
OPTIONS: dict[str, Any] = {"group_size": 2}
CALLS: dict[str, Any] = {
    "reduce_scatter": pd.quantized_reduce_scatter,
    "all_gather": pd.quantized_all_gather,
    "all_reduce": pd.quantized_all_reduce,
}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """One of four ranks, whose transport carries nothing and notes what it was asked to."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    seen: list[str] = []
    for name in ("scatter", "gather"):
        send = functools.partial(seen.append, name)
        monkeypatch.setattr(_transport, name, lambda *_, send=send: send)
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=RANKS)
    yield seen
    dist.destroy_process_group()


def elements(view: torch.Tensor) -> set[int]:
    """Where those of a view lie in its buffer."""
    first = view.storage_offset()
    return set(range(first, first + view.numel()))


def own(view: torch.Tensor) -> set[int]:
    """Those of this rank's part."""
    length = -(-view.numel() // RANKS)
    return set(sorted(elements(view))[RANK * length : (RANK + 1) * length])


def loses(name: str, given: list[torch.Tensor], outs: list[torch.Tensor]) -> bool:
    """Whether an element that is written is another operand's too, by counting elements."""
    inputs = [elements(each) for each in given]
    for i, (read, out) in enumerate(zip(given, outs, strict=True)):
        place = elements(out)
        may = {
            "all_reduce": place == inputs[i],
            "reduce_scatter": place == own(read),
            "all_gather": inputs[i] == own(out),
        }[name]
        if may:
            inputs[i] = inputs[i] - place
    written = [elements(each) for each in outs]
    pairs = [(a, b) for i, a in enumerate(written) for b in written[:i]]
    pairs += [(a, b) for a in written for b in inputs]
    return any(a & b for a, b in pairs)


def drawn(name: str, rng: np.random.Generator) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Inputs and outputs anywhere in one buffer, in place as often as not."""
    buffer, given, outs = torch.ones(90), [], []
    for _ in range(int(rng.integers(1, 4))):
        count = int(rng.integers(0, 14))
        length = -(-count // RANKS)
        part = max(0, min(length, count - RANK * length))
        reads, writes = {
            "all_reduce": (count, count),
            "reduce_scatter": (count, part),
            "all_gather": (part, count),
        }[name]
        x, y = (int(rng.integers(0, 90 - 14)) for _ in "xy")
        if rng.random() < 0.5:
            x = x if name != "all_gather" else y + min(count, RANK * length)
            y = {"all_reduce": x, "reduce_scatter": x + min(count, RANK * length)}.get(name, y)
        given.append(buffer[x : x + reads])
        outs.append(buffer[y : y + writes])
    return given, outs


@pytest.mark.parametrize("name", CALLS)
def test_overlaps_are_refused_and_nothing_else_is(name: str, sent: list[str]) -> None:
    """Any views of one buffer, against a count of elements; what is refused is not sent."""
    rng, found = np.random.default_rng(1), []
    for _ in range(250):
        given, outs = drawn(name, rng)
        before = given[0]._base
        assert before is not None
        held, expected = before.clone(), loses(name, given, outs)
        sent.clear()
        if not expected:
            CALLS[name](given, out=outs, **OPTIONS)
        else:
            with pytest.raises(planq.ArgumentError, match="memory that overlaps") as refused:
                CALLS[name](given, out=outs, **OPTIONS)
            assert refused.value.operand.startswith("out[")
            assert sent == []
            assert torch.equal(before, held)
        found.append(expected)
    assert 40 < sum(found) < 210


@pytest.mark.parametrize("name", CALLS)
def test_a_workspace_over_an_operand_is_refused(name: str, sent: list[str]) -> None:
    """Whether that is read or written; only as many bytes as are needed count."""
    x, y = torch.ones(64), torch.empty(64)
    sizes = {"reduce_scatter": (64, 16), "all_gather": (16, 64), "all_reduce": (64, 64)}[name]
    size = pd.workspace_size(name, torch.ones(64), **OPTIONS)
    for operand in ("tensors", "out"):
        held = torch.full((size + 1024,), 7, dtype=torch.uint8)
        held = held[-held.data_ptr() % 256 :]
        operands = {"tensors": x[: sizes[0]], "out": y[: sizes[1]]}
        inside, behind = held[size - 64 :], held[size:]
        for bytes_, taken in ((inside, False), (behind, True)):
            first = -bytes_.data_ptr() % 4
            count = operands[operand].numel()
            floats = bytes_[first : first + 4 * count].view(torch.float32)
            call: dict[str, Any] = {**operands, operand: floats, "workspace": held, **OPTIONS}
            sent.clear()
            if taken:
                CALLS[name](call.pop("tensors"), **call)
                assert sent
                continue
            with pytest.raises(planq.WorkspaceError, match=f"it overlaps {operand}"):
                CALLS[name](call.pop("tensors"), **call)
            assert sent == []


def test_results_in_the_place_of_what_is_given_are_those_elsewhere(alone: Any) -> None:
    """One rank: its part is the whole."""
    x = torch.randn(700, generator=torch.Generator().manual_seed(1))
    for call in CALLS.values():
        plain, held = call(x, out=torch.empty_like(x)), x.clone()
        assert call(held, out=held) is held
        assert torch.equal(held, plain)
        pair = torch.zeros(700), torch.zeros(1000)
        with pytest.raises(planq.ArgumentError, match=r"^out\[1\]: .* overlaps out\[0\]"):
            call([x, x], out=[pair[0], pair[0]])
        with pytest.raises(planq.ArgumentError, match=r"^out\[1\]: .* overlaps out\[0\]"):
            call([x, x], out=[pair[1][:700], pair[1][300:]])
        assert not pair[0].any()
        assert not pair[1].any()
