"""Every input of the corpora, once: what the guided fuzzers start from, and what they found.

`make fuzz` runs the fuzzers themselves. Here the native readers are those of the installed build.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from pathlib import Path

import pytest

import planq
from fuzz.native import READERS
from fuzz.targets import TARGETS
from planq import _core

CORPUS = Path(__file__).with_name("corpus")
importlib.import_module("operators.every_kind")  # which a descriptor of the corpus names


def inputs(target: str) -> list[bytes]:
    """The corpus of a target."""
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == {*TARGETS, *READERS}


@pytest.mark.parametrize("target", TARGETS)
def test_a_reader_returns_or_raises_its_own_error(target: str) -> None:
    """And some inputs get past every check."""
    taken = [TARGETS[target](data) for data in inputs(target)]
    assert any(taken)


def test_json_has_the_values_that_python_reads() -> None:
    """Or a sentence, where Python's reader is less strict, too."""
    taken = 0
    for data in inputs("native_json"):
        with contextlib.suppress(ValueError):
            found = _core.parse_json(data.decode("utf-8", "surrogateescape"))
            assert repr(found) == repr(json.loads(data))
            taken += 1
    assert taken


def test_stored_plans_differ_where_their_parts_do() -> None:
    compared = 0
    for data in inputs("native_stored"):
        first, _, second = data.decode("utf-8", "surrogateescape").partition("\0")
        with contextlib.suppress(planq.DescriptorError, planq.PlanMismatchError, ValueError):
            _, found = _core.compare_stored(first, second)
            left, right = json.loads(first), json.loads(second)
            names = left.keys() | right.keys()
            assert found.keys() == {name for name in names if left.get(name) != right.get(name)}
            compared += 1
    assert compared


def test_a_descriptor_with_a_field_of_every_kind_is_read_or_refused() -> None:
    taken = [TARGETS["descriptor"](data) for data in inputs("native_descriptor")]
    assert any(taken)


def test_a_preference_is_read_or_refused() -> None:
    taken = 0
    for data in inputs("native_preference"):
        with contextlib.suppress(planq.DescriptorError, ValueError):
            made = planq.PlanPreference.from_dict(_core.parse_json(data.decode("utf-8")))
            assert planq.PlanPreference.from_dict(made.to_dict()) == made
            taken += 1
    assert taken
