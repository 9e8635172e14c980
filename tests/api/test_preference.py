"""Every field of PlanPreference removes candidates, shown on kernels of the tests' own operator."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
from typing import Any, cast

import numpy as np
import pytest

import planq
from planq import _core
from planq._constructors import tie_fields
from planq.audit.operators import name_of
from support.samples import assign, make_descriptor

NOOP: Any = importlib.import_module("operators.noop")
DESC = NOOP.NoopDescriptor(shape=(8,), input_dtype="float32", output_dtype="int8")
ALL = [
    *("exact:direct", "exact:staged", "gpu_to_gpu:direct", "run_to_run:direct"),
    "not_guaranteed:direct",
]
LOOSEST = planq.PlanPreference(determinism=planq.Determinism.NOT_GUARANTEED)
BY_DEFAULT = planq.PlanPreference()


def accepted(device: str = "host", **changes: Any) -> list[str]:
    """Names of the kernels that a preference leaves, in order of preference."""
    pref = dataclasses.replace(LOOSEST, **changes)
    candidates = planq.explain(DESC, pref, device=device).candidates
    return [name_of(c).rpartition("/")[2] for c in candidates if c.chosen or not c.reason]


def test_without_wishes_every_kernel_of_the_backend_is_left() -> None:
    """The best-ranked one is chosen."""
    assert accepted() == ALL
    assert planq.Plan.select(planq.HOST, DESC, LOOSEST).sku == "noop/host/exact"


FILTERS: list[tuple[str, Any, list[str]]] = [
    ("determinism", planq.Determinism.NOT_GUARANTEED, ALL),
    ("determinism", planq.Determinism.RUN_TO_RUN, ALL[:4]),
    ("determinism", planq.Determinism.GPU_TO_GPU, ALL[:3]),
    ("determinism", planq.Determinism.BIT_EXACT, ALL[:2]),
    ("batch_invariant", True, ALL[:3]),
    ("max_ulp", 10, ALL[:3]),
    ("max_ulp", 1, ALL[:3]),
    ("max_ulp", 0, ALL[:2]),
    ("max_workspace_bytes", 1000, ALL),
    ("max_workspace_bytes", 999, [ALL[0], *ALL[2:]]),
    ("max_workspace_bytes", 0, [ALL[0], *ALL[2:]]),
    ("backend", planq.Backend.HOST, ALL),
    ("backend", planq.Backend.CUDA, []),
    ("sku", "noop/host/run_to_run", ["run_to_run:direct"]),
    ("sku", "noop/host/exact", ALL[:2]),
    ("body", "direct", [ALL[0], *ALL[2:]]),
    ("body", "staged", ["exact:staged"]),
]


@pytest.mark.parametrize(("field", "value", "left"), FILTERS)
def test_a_field_is_a_hard_filter(field: str, value: Any, left: list[str]) -> None:
    """It keeps the kernels that meet it, and no other."""
    assert accepted(**{field: value}) == left


def test_every_field_is_tested_above() -> None:
    """A knob that nothing reads is a lie."""
    tested = {field for field, _, _ in FILTERS}
    assert tested == {
        field.name for field in dataclasses.fields(planq.PlanPreference) if field.init
    }


def test_a_class_that_disagrees_with_the_native_table_is_refused() -> None:
    """A field less, another default, another order."""
    whole = [(item.name, Any, item.default) for item in dataclasses.fields(BY_DEFAULT) if item.init]
    tie_fields(dataclasses.make_dataclass("Same", whole), "a preference", _core.preference_fields())
    for items in (whole[1:], [*whole[:-1], (whole[-1][0], Any, "any")], whole[::-1]):
        other = dataclasses.make_dataclass("Other", items)
        with pytest.raises(TypeError, match="the fields of a preference: the Python class has"):
            tie_fields(other, "a preference", _core.preference_fields())


def test_preferences_survive_pickle() -> None:
    """Copies too."""
    pref = planq.PlanPreference(max_ulp=0, backend=planq.Backend.HOST, sku="any")
    assert pickle.loads(pickle.dumps(pref)) == copy.deepcopy(pref) == pref
    assert copy.copy(pref)._native.to_dict() == pref.to_dict()


def test_a_limit_is_an_integer_of_any_library() -> None:
    """As a descriptor's integers are; a truth value is none."""
    pref = planq.PlanPreference(max_ulp=cast("int", np.int64(3)))
    assert (pref.max_ulp, type(pref.max_ulp)) == (3, int)
    with pytest.raises(planq.DescriptorError, match="at least 0 and at most 63 bits, got True"):
        planq.PlanPreference(max_workspace_bytes=True)


def test_fields_combine() -> None:
    """Each removes its own."""
    assert accepted(max_workspace_bytes=0, max_ulp=0) == ["exact:direct"]
    assert accepted(batch_invariant=True, sku="noop/host/run_to_run") == []
    assert accepted(sku="noop/host/run_to_run", body="staged") == []


def test_the_default_asks_for_run_to_run() -> None:
    """A kernel that guarantees nothing must be asked for."""
    pref = planq.PlanPreference(sku="noop/host/not_guaranteed")
    with pytest.raises(planq.NoKernelError):
        planq.Plan.select(planq.HOST, DESC, pref)


@pytest.mark.parametrize("name", ALL)
def test_a_pin_selects_its_kernel(name: str) -> None:
    """Whatever its rank."""
    arithmetic, _, body = name.partition(":")
    pref = dataclasses.replace(LOOSEST, sku=f"noop/host/{arithmetic}", body=body)
    plan = planq.Plan.select(planq.HOST, DESC, pref)
    assert plan.sku == f"noop/host/{arithmetic}"
    assert plan.workspace_size() == (1000 if body == "staged" else 0)


def test_a_pin_of_a_sku_leaves_the_body_open() -> None:
    """The best-ranked one that the rest of the preference leaves; it is no part of the record."""
    plans = [
        planq.Plan.select(planq.HOST, DESC, planq.PlanPreference(sku="noop/host/exact", body=body))
        for body in (None, "direct", "staged")
    ]
    chosen = [[body.name for body in plan.bodies() if body.chosen] for plan in plans]
    assert chosen == [["direct"], ["direct"], ["staged"]]
    records = [plan.to_dict() for plan in plans]
    for record in records:
        record.pop("preference")
    assert records[0] == records[1] == records[2]


@pytest.mark.parametrize("body", ["no_such_body", "direct "])
def test_an_unknown_body_is_an_error_that_names_those_there_are(body: str) -> None:
    """Whatever kernels they are of."""
    with pytest.raises(planq.NoKernelError) as caught:
        planq.Plan.select(planq.HOST, DESC, planq.PlanPreference(body=body))
    line = str(caught.value).splitlines()[0]
    assert line == f"no body of noop is called '{body}'; there are direct, staged"


def test_a_rejected_body_is_an_error_that_names_the_bodies() -> None:
    """It is there, and the rest of the preference forbids it."""
    pref = planq.PlanPreference(body="staged", max_workspace_bytes=0)
    with pytest.raises(planq.NoKernelError) as caught:
        planq.Plan.select(planq.HOST, DESC, pref)
    reasons = {name_of(c): c.reason for c in caught.value.selection.candidates}
    assert "1000 bytes" in reasons["noop/host/exact:staged"]
    assert reasons["noop/host/exact:direct"] == "the preference pins the body staged"
    for body in ("staged", "direct"):
        assert reasons[f"noop/host/exact:{body}"] in str(caught.value)


def test_an_unknown_pin_is_an_error() -> None:
    """Named in the message, with the table of what there is."""
    pref = planq.PlanPreference(sku="noop/host/no_such_kernel")
    with pytest.raises(planq.NoKernelError, match="no_such_kernel") as caught:
        planq.Plan.select(planq.HOST, DESC, pref)
    assert isinstance(caught.value, NotImplementedError)
    assert caught.value.selection.chosen is None
    assert "noop/host/exact" in str(caught.value)


def test_a_rejected_pin_is_an_error() -> None:
    """The kernel exists, but not for this descriptor."""
    other = planq.Plan.select(planq.HOST, make_descriptor(input_dtype="float64")).sku
    with pytest.raises(planq.NoKernelError) as caught:
        planq.Plan.select(planq.HOST, make_descriptor(), planq.PlanPreference(sku=other))
    reasons = {c.sku: c.reason for c in caught.value.selection.candidates}
    assert reasons[other]


def test_the_error_prints_the_table_that_explain_prints() -> None:
    """When nothing qualifies, the message says of each kernel why."""
    pref = planq.PlanPreference(max_workspace_bytes=0, sku="noop/host/exact", body="staged")
    with pytest.raises(planq.NoKernelError) as caught:
        planq.Plan.select(planq.HOST, DESC, pref)
    table = str(planq.explain(DESC, pref, device="host"))
    assert table in str(caught.value)
    assert caught.value.selection == planq.explain(DESC, pref, device="host")
    assert "1000 bytes" in table


def test_a_pin_does_not_lift_the_other_filters() -> None:
    """Pin and promise are both asked for."""
    pref = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, sku="noop/host/gpu_to_gpu")
    with pytest.raises(planq.NoKernelError, match="guarantees"):
        planq.Plan.select(planq.HOST, DESC, pref)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("determinism", "sometimes"),
        ("max_ulp", -1),
        ("max_ulp", 0.5),
        ("max_workspace_bytes", -1),
        ("max_workspace_bytes", "4K"),
        ("backend", "abacus"),
        ("sku", 7),
        ("sku", ""),
        ("sku", "\ud800"),
        ("body", 7),
        ("body", ""),
        ("batch_invariant", "yes"),
        ("max_ulp", True),
        ("max_ulp", 2**63),
        ("max_ulp", 10**5000),
        ("determinism", 10**5000),
        ("determinism", []),
        ("backend", 10**5000),
        ("batch_invariant", 10**5000),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else type(value).__name__,
)
def test_a_preference_of_the_wrong_type_is_refused(field: str, value: Any) -> None:
    """At construction, by name."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.PlanPreference(**{field: value})
    assert caught.value.field == field


@pytest.mark.parametrize("made", [planq.PlanPreference, planq.PlanPreference.from_dict])
def test_an_unknown_field_is_answered_with_the_nearest(made: Any) -> None:
    """Which a misspelt promise would else be lost by."""
    given = {"determinsm": "bit_exact"}
    with pytest.raises(planq.DescriptorError, match="determinism") as caught:
        made(given) if made is not planq.PlanPreference else made(**given)
    assert caught.value.field == "determinsm"
    assert str(caught.value).endswith("did you mean determinism?")


def test_preferences_are_values() -> None:
    """Frozen, equal, hashable, keyword-only."""
    assert planq.PlanPreference(max_ulp=0) == planq.PlanPreference(max_ulp=0)
    assert len({BY_DEFAULT, planq.PlanPreference(), planq.PlanPreference(max_ulp=0)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(BY_DEFAULT, "max_ulp", 4)
    positional: Any = planq.PlanPreference
    with pytest.raises(TypeError):
        positional(planq.Determinism.BIT_EXACT)
