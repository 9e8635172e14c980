"""Dims: extents of a descriptor that are known at run."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pickle
from typing import Any

import pytest

import planq
from support.samples import assign, make_descriptor

EVERY: Any = importlib.import_module("operators.every_kind")
M = planq.Dim("m", max=16384)


def make(**changes: Any) -> Any:
    """A descriptor with two shape fields, which takes every shape."""
    given: dict[str, Any] = {"shape": (M, 5), "other": (6,), "input_dtype": "float32"}
    return EVERY.EveryKindDescriptor(**{**given, **changes})


def test_dims_are_values() -> None:
    """Equal, hashable, frozen, printable."""
    assert planq.Dim("m", 16384) == M
    assert hash(planq.Dim("m", 16384)) == hash(M)
    assert len({M, planq.Dim("n", 16384), planq.Dim("m", 1)}) == 3
    assert M != 16384
    assert repr(M) == "Dim('m', max=16384)"
    assert eval(repr(M), {"Dim": planq.Dim}) == M
    with pytest.raises(dataclasses.FrozenInstanceError):
        assign(M, "max", 4)


@pytest.mark.parametrize("name", ["m", "_", "rows_2", "x" * 31, "ä" * 15, "数"])
def test_a_name_is_an_identifier(name: str) -> None:
    """Of at most 31 bytes; it survives the native half."""
    desc = make(shape=(planq.Dim(name, 2**40), 1))
    assert desc._native.values()["shape"] == (planq.Dim(name, 2**40), 1)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *[(name, 4) for name in ("", "a b", "2m", "x" * 32, "ä" * 16, "\ud800", "a\0b", 3, None)],
        *[("m", most) for most in (0, -1, 2**63, 1.5, True, "4", None, 10**5000)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_names_and_maxima_are_refused(name: Any, most: Any) -> None:
    """Alone, and in JSON by the field that has them."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.Dim(name, most)
    assert caught.value.field == "dim"
    values = {**make().to_dict(), "other": [{"dim": name, "max": most}, 4]}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.Descriptor.from_dict(values)
    assert caught.value.field == "other"


@pytest.mark.parametrize("shape", [(M, 8), (2, M, 8), (M, planq.Dim("n", 3), M, 1)])
def test_descriptors_keep_their_dims(shape: tuple[Any, ...]) -> None:
    """As attributes, in equality and hash, through JSON, pickle and the native half."""
    desc = make(shape=shape)
    assert desc.shape == shape
    assert desc._native.values()["shape"] == shape
    assert desc != make(shape=tuple(getattr(extent, "max", extent) for extent in shape))
    copies = (
        planq.Descriptor.from_json(desc.to_json()),
        pickle.loads(pickle.dumps(desc)),
        dataclasses.replace(desc),
        make(shape=list(shape)),
    )
    for copy in copies:
        assert copy == desc
        assert hash(copy) == hash(desc)
        assert repr(copy) == repr(desc)


def test_a_dim_in_json() -> None:
    """A dictionary in the list."""
    shape = json.loads(make().to_json())["shape"]
    assert shape == [{"dim": "m", "max": 16384}, 5]


def test_one_dim_in_two_shapes() -> None:
    """The same name is the same extent, so it has one maximum."""
    desc = make(other=(M, 7))
    assert (desc.shape, desc.other) == ((M, 5), (M, 7))
    with pytest.raises(planq.DescriptorError) as caught:
        make(other=(planq.Dim("m", 3), 7))
    assert str(caught.value) == "other: the Dim 'm' has the maximum 16384 and 3"
    with pytest.raises(planq.DescriptorError, match=r"^shape: the Dim 'm' has the maximum"):
        make(shape=(M, planq.Dim("m", 3), 7))


@pytest.mark.parametrize("field", ["shape", "other"])
def test_the_last_axis_has_no_dim(field: str) -> None:
    """It is the one that is contiguous."""
    with pytest.raises(planq.DescriptorError) as caught:
        make(**{field: (3, M)})
    assert str(caught.value) == (
        f"{field}: expected an integer for the last axis, got Dim('m', max=16384)"
    )


@pytest.mark.parametrize(
    "extent",
    [{}, {"dim": "m"}, {"dim": "m", "max": 4, "min": 0}, {1: 2}, {"dim": [], "max": 4}],
    ids=str,
)
def test_a_dictionary_that_is_no_dim_is_refused(extent: Any) -> None:
    """By the field."""
    with pytest.raises(planq.DescriptorError) as caught:
        make(other=[extent, 4])
    assert caught.value.field == "other"


def test_the_maximum_is_judged_like_an_extent() -> None:
    """By the checks that every shape has."""
    with pytest.raises(planq.DescriptorError, match=r"^shape: more than 2\^60 elements"):
        make_descriptor(shape=(planq.Dim("m", 2**60), 2))
