"""Stored plans come back as the same plan, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

import planq
from support.samples import make_descriptor

PREF = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, max_workspace_bytes=4096)


def stored() -> dict[str, Any]:
    """A stored plan as a dictionary."""
    plan = planq.Plan.select(planq.HOST, make_descriptor(), PREF)
    content: dict[str, Any] = json.loads(plan.to_json())
    return content


def test_a_stored_plan_comes_back() -> None:
    """Same kernel, same descriptor, same preference, same text."""
    plan = planq.Plan.select(planq.HOST, make_descriptor(), PREF)
    again = planq.Plan.from_json(planq.HOST, plan.to_json())
    assert type(again) is planq.DynamicRangeQuantizePlan
    assert again.sku == plan.sku
    assert again.descriptor == plan.descriptor
    assert again.preference == plan.preference
    assert again.to_json() == plan.to_json()


def test_a_stored_plan_holds_what_is_compared() -> None:
    """Descriptor, preference, kernel, revision, guarantee and build."""
    content = stored()
    assert content.keys() >= {"descriptor", "preference", "sku", "revision", "guarantee"}
    assert planq.build_info().build_id in json.dumps(content)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sku", "dynamic_range_quantize.token/host/another/f32_s8"),
        ("revision", 10_000),
        ("build_id", "another build"),
        ("guarantee", {}),
        ("extra", "nobody asked for"),
    ],
)
def test_any_difference_is_a_mismatch(key: str, value: Any) -> None:
    """Named in the message, with both values."""
    content = {**stored(), key: value}
    with pytest.raises(planq.PlanMismatchError, match=key):
        planq.Plan.from_json(planq.HOST, json.dumps(content))


@pytest.mark.parametrize(
    "field",
    ["determinism", "math", "accumulator", "rounding", "max_ulp", "batch_invariant", "basis"],
)
def test_every_field_of_the_guarantee_is_compared(field: str) -> None:
    """A promise that was reworded is another promise."""
    content = stored()
    assert field in content["guarantee"]
    content["guarantee"][field] = "else"
    with pytest.raises(planq.PlanMismatchError, match="guarantee"):
        planq.Plan.from_json(planq.HOST, json.dumps(content))


@pytest.mark.parametrize("key", ["sku", "revision", "build_id", "guarantee"])
def test_a_missing_key_is_a_mismatch(key: str) -> None:
    """Nothing is assumed."""
    content = stored()
    del content[key]
    with pytest.raises(planq.PlanMismatchError):
        planq.Plan.from_json(planq.HOST, json.dumps(content))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", '{"descriptor": 3}', "not json", "[" * 100_000, "9" * 5000),
        *("\ud800", '{"sku": "\\ud800"}', '{"sku": 1, "sku": 1}', '{"max_ulp": NaN}', "1e999"),
    ],
    ids=[
        *("nothing", "{}", "[]", "null", "a number", "no json", "deep", "digits", "no text"),
        *("half a letter", "twice", "no number", "a number too large"),
    ],
)
def test_text_that_is_no_plan_is_refused(text: str) -> None:
    """With a typed error."""
    with pytest.raises((planq.PlanMismatchError, planq.DescriptorError)):
        planq.Plan.from_json(planq.HOST, text)


def test_a_changed_descriptor_selects_for_the_changed_one_and_is_caught() -> None:
    """Another dtype needs another kernel."""
    content = stored()
    content["descriptor"]["input_dtype"] = "float64"
    with pytest.raises(planq.PlanMismatchError, match="sku"):
        planq.Plan.from_json(planq.HOST, json.dumps(content))


def test_a_preference_that_no_kernel_meets_is_a_mismatch() -> None:
    """The stored preference is applied again."""
    content = stored()
    content["preference"]["backend"] = "cuda"
    with pytest.raises(planq.PlanMismatchError):
        planq.Plan.from_json(planq.HOST, json.dumps(content))


@pytest.mark.parametrize(
    ("field", "value"),
    [("sku", ""), ("max_ulp", 10**400), ("speed", 9)],
    ids=["no name", "many digits", "unknown"],
)
def test_a_preference_that_means_nothing_is_refused(field: str, value: Any) -> None:
    """By name."""
    content = stored()
    content["preference"][field] = value
    with pytest.raises(planq.DescriptorError) as caught:
        planq.Plan.from_json(planq.HOST, json.dumps(content))
    assert caught.value.field == field


@pytest.mark.parametrize("key", ["preference", "descriptor", "guarantee", "sku"])
@pytest.mark.parametrize("value", [None, [], 7, "x", {"a": 1}, 10**400, [["\ud800"]]], ids=str)
def test_a_part_of_another_type_is_refused(key: str, value: Any) -> None:
    """With a typed error."""
    with pytest.raises((planq.PlanMismatchError, planq.DescriptorError)):
        planq.Plan.from_json(planq.HOST, json.dumps(stored() | {key: value}))
