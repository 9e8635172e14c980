"""benchmarks/steps.py: what it makes of a profiler's events, and the steps that it measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import steps
from checkpoint.small_gemma3 import write
from checkpoint.small_vocabulary import VOCABULARY
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import Gemma3, Limits

if TYPE_CHECKING:
    from pathlib import Path


def test_names_of_kernels_are_short() -> None:
    name = "void planq::norm::(anonymous namespace)::rows<float, (int)4>(planq::norm::Args<1>)"
    assert steps.plain(name) == "norm::rows<float, (int)4>"
    assert steps.plain("Memcpy DtoH (Device -> Pinned)") == "Memcpy DtoH"


def test_events_are_added_up_by_kernels() -> None:
    """Of two steps; the second kernel overlaps the first one's end."""
    first = [
        steps.Event("a(int)", 0, 4),
        steps.Event("b(int)", 3, 9),
        steps.Event("a(int)", 11, 14),
    ]
    second = [steps.Event(name, begin + 20, end + 20) for name, begin, end in first]
    found = steps.told_of([*second, *first], 2)
    assert found["busy_us"] == 4 + 6 + 3
    assert found["idle_us"] == (2 + 6 + 2) / 2
    assert list(found["kernels"].items()) == [
        ("a", {"us": 7.0, "launches": 2.0}),
        ("b", {"us": 6.0, "launches": 1.0}),
    ]
    entry = {"part": "decode", "texts": 3, "step_us": 20.0, **found}
    first_line, *rest = steps.table(entry).splitlines()
    assert first_line == "decode, 3 texts: 20 us a step, of which kernels take 13 and gaps 5"
    assert [line.split() for line in rest] == [
        ["7.0", "us", "2.0", "x", "3.50", "a"],
        ["6.0", "us", "1.0", "x", "6.00", "b"],
    ]


@pytest.mark.usefixtures("one_thread")
def test_steps_are_those_of_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a host, without a profiler: texts have room for all steps, and are released."""
    runs: list[int] = []

    def measured(run: Any, count: int) -> dict[str, Any]:
        for _ in range(2):
            run()
        runs.append(count)
        return {"step_us": 1.0}

    monkeypatch.setattr(steps, "measured", measured)
    limits = Limits(rows=8, texts=2, asked=2, context=8 + steps.WARM + 3 * 4, page=4)
    with read_gguf(write(tmp_path / "small.gguf")) as files:
        network = Gemma3(files, "host", limits)
    prompts = np.random.default_rng(1).integers(3, len(VOCABULARY), (2, 8))
    for _ in range(2):
        found = steps.decoding(network, prompts, 4)
        assert found == {"part": "decode", "texts": 2, "context": 8, "step_us": 1.0}
        assert steps.reading(network, prompts[0].tolist())["tokens"] == 8
    assert runs == [4, 1, 4, 1]
