"""JSON of anybody's making, by C and by Python: the same answer, whatever it is.

Python reads a text with the same reader, but makes its descriptors by classes of its own. `make
fuzz` runs these for longer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import planq
from api.test_fuzz import DESCRIPTORS, PREFERENCE, json_text
from planq import _core
from support import c_library as c
from support.hostile import Chaos, bounded, fuzzing

Answer = tuple[str, str]


def answer_of(make: Callable[[], str]) -> Answer:
    """What comes of it, by its code; a message up to where C's ends, and without Python's guess."""
    try:
        return "ok", make()
    except planq.PlanqError as error:
        return error.code, str(error).partition("\0")[0].partition("; did you mean ")[0]
    except c.Refused as refused:
        return refused.code, refused.message


def check(text: str, by_python: Callable[[], str], by_c: Callable[[], str]) -> None:
    """Both answer the same, but for words in which only one of them can speak."""
    with bounded():
        told, answer = answer_of(by_python), answer_of(by_c)
    assert answer[0] == told[0], (text, told, answer)
    if is_common(text, told[1]):
        assert answer == told, text


def is_common(text: str, words: str) -> bool:
    """Whether the words are about something that both languages spell alike."""
    if "not JSON" in words:
        return text.isascii()  # Python's text may be no UTF-8, which C's cannot even say
    # Python has only operators whose classes it has, and escapes letters that nobody prints.
    return "there are" not in words and words.isascii() and "\\u" not in text + words


@fuzzing(300)
def test_a_descriptor_means_what_it_means_in_python(chaos: Chaos) -> None:
    text = json_text(chaos, chaos.choice(DESCRIPTORS).to_dict()).partition("\0")[0]
    check(
        text,
        lambda: planq.Plan.select(planq.HOST, planq.Descriptor.from_json(text)).to_json(),
        lambda: c.Plan.select(text).text("to_json"),
    )


@fuzzing(200)
def test_a_preference_means_what_it_means_in_python(chaos: Chaos) -> None:
    desc = chaos.choice(DESCRIPTORS)
    text = json_text(chaos, PREFERENCE.to_dict()).partition("\0")[0]

    def by_python() -> str:
        try:
            values = _core.parse_json(text)
        except ValueError as error:
            raise planq.DescriptorError("preference", str(error)) from None
        pref = planq.PlanPreference.from_dict(values)
        return planq.Plan.select(planq.HOST, desc, pref).to_json()

    check(text, by_python, lambda: c.Plan.select(desc.to_json(), text).text("to_json"))


@fuzzing(200)
def test_a_stored_plan_means_what_it_means_in_python(chaos: Chaos) -> None:
    stored = planq.Plan.select(planq.HOST, chaos.choice(DESCRIPTORS), PREFERENCE).to_dict()
    text = json_text(chaos, stored).partition("\0")[0]
    check(
        text,
        lambda: planq.Plan.from_json(planq.HOST, text).to_json(),
        lambda: c.Plan.from_json(text).text("to_json"),
    )


def standard(text: str) -> Any:
    """What Python's own reader makes of a text; None where it is not strict JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) != len(pairs):
            raise ValueError("twice")
        return values

    def refuse(_: str) -> Any:
        raise ValueError("no number")

    try:
        values = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
        json.dumps(values, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return [values]


def read(text: str) -> tuple[list[Any] | None, str]:
    """What planq's reader makes of a text, or why it makes nothing."""
    try:
        return [_core.parse_json(text)], ""
    except ValueError as error:
        return None, str(error)


@fuzzing(600)
def test_the_reader_is_as_strict_as_the_standard(chaos: Chaos) -> None:
    text = json_text(chaos, chaos.json(depth=4))
    told, (values, fault) = standard(text), read(text)
    if "nested too deep" in fault or "beyond those of double" in fault:
        return
    assert json.dumps(values) == json.dumps(told), (text, fault)


@pytest.mark.parametrize(
    "value",
    [
        0.1,
        1e-5,
        1e-4,
        1.5e16,
        1e16,
        123456789.125,
        5e-324,
        1.7976931348623157e308,
        -2.5,
        1e22,
        100.0,
    ],
)
def test_numbers_are_written_as_python_writes_them(value: float) -> None:
    """In a message, where they come back as they are."""
    desc = json.dumps(DESCRIPTORS[0].to_dict() | {"shape": [value]})
    with pytest.raises(c.Refused) as refused:
        c.Plan.select(desc)
    assert refused.value.message == f"shape: expected a sequence of integers, got [{value!r}]"
