"""`Bound` of the core: a step follows others of its plan where there are others.

A kernel that follows reads weights before it waits. Behind parts that launched nothing it would
read what the plan ahead still writes.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from support.emulation import emulated

PARTS = ("nothing", "plain", "now or add", "taken", "refused for nothing", "refused for another")


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The C++ half of these tests."""
    library = emulated(Path(__file__).with_name("bound.cpp"), tmp_path_factory.mktemp("bound"))
    library.follows.restype = ctypes.c_bool
    return library


def follows(bound: ctypes.CDLL, parts: tuple[str, ...], *, at_once: bool) -> bool:
    """Whether the step behind these parts follows one."""
    numbers = [PARTS.index(part) for part in parts]
    found: bool = bound.follows((ctypes.c_int * len(parts))(*numbers), len(parts), at_once)
    return found


@pytest.mark.parametrize("at_once", [True, False])
def test_a_step_behind_parts_without_steps_follows_none(bound: ctypes.CDLL, at_once: bool) -> None:
    """Whether they are launched at once or kept."""
    for parts in ((), ("nothing",), ("nothing", "nothing")):
        assert not follows(bound, parts, at_once=at_once), parts


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("part", ["plain", "now or add", "taken", "refused for another"])
def test_a_step_behind_another_follows_it(bound: ctypes.CDLL, part: str, at_once: bool) -> None:
    """Wherever that stands among parts without steps."""
    for parts in ((part,), ("nothing", part), (part, "nothing"), (part, "plain")):
        assert follows(bound, parts, at_once=at_once), parts


def test_a_step_that_the_stream_refused_is_none(bound: ctypes.CDLL) -> None:
    """It did nothing; a step that is kept may yet be launched."""
    assert not follows(bound, ("refused for nothing",), at_once=True)
    assert follows(bound, ("refused for nothing", "plain"), at_once=True)
    assert follows(bound, ("refused for nothing",), at_once=False)
