"""What the tests generated from the registry know of operators.

An operator joins them by its folder, `tests/ops/<family>/<operator>`, with an `adapter.py` that has
a `TESTS`: its cases, and how one of their problems becomes a descriptor. Everything else follows
from the registry and from the descriptor's own operands.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import planq
from reference.formats import Array

TESTS = Path(__file__).parent.parent
# The tests' own operators, which tests/api watches.
PRIVATE = frozenset(path.parent.name for path in TESTS.glob("operators/*/desc.h"))


class Part(Protocol):
    """A part of a problem that shares no result with the rest."""

    @property
    def problem(self) -> Hashable:
        """The part alone, as a problem."""

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its inputs out of the whole's."""

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """Its outputs out of the whole's, stored as if they were made alone."""


class Case(Protocol):
    """A problem with its input."""

    def __hash__(self) -> int:
        """Cases are keys of caches."""

    @property
    def problem(self) -> Hashable:
        """In the reference's plain values."""

    @property
    def id(self) -> str:
        """A stable name of the problem and the input."""

    @property
    def size(self) -> int:
        """How many elements are worked on."""

    def reseeded(self, seed: int) -> Case:
        """The same problem on other values."""

    def inputs(self) -> dict[str, Array]:
        """Input operands by name."""

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs for these inputs by operand name, as stored."""

    def parts(self) -> Iterator[Part]:
        """What batch invariance is about; nothing where a result depends on every element."""


class OperatorTests(Protocol):
    """One operator, as the tests see it."""

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without elements."""

    def descriptor(self, problem: Hashable) -> planq.Descriptor:
        """The library's descriptor of a problem."""

    def math(self, problem: Hashable) -> planq.MathPrecision:
        """What the contract has a problem computed in."""

    def rounding(self, problem: Hashable) -> planq.Rounding:
        """How the contract has its results rounded."""

    def variety(self, problem: Hashable) -> str:
        """Which of the ways that a kernel must be shown to work in; a word."""


def _adapters(pattern: str) -> dict[str, OperatorTests]:
    found = sorted(TESTS.glob(pattern))
    modules = [".".join(path.relative_to(TESTS).with_suffix("").parts) for path in found]
    names = [path.parent.name if path.stem == "adapter" else path.stem for path in found]
    return {
        name: importlib.import_module(module).TESTS
        for name, module in sorted(zip(names, modules, strict=True))
    }


OPERATORS = _adapters("ops/*/*/adapter.py")
# Of the tests' own operators, those with kernels of a kind that users' operators have none of yet.
OWN = _adapters("operators/adapters/*.py")


@cache
def all_cases(operator: str) -> tuple[Case, ...]:
    """The operator's cases in the order in which recorded files number them."""
    tests = OPERATORS[operator]
    return (*tests.cases(), *tests.empty_cases())


@cache
def expected(case: Case) -> dict[str, Array]:
    """The reference's outputs, kept for the other kernels that run the same case."""
    return case.expected(inputs_of(case))


@cache
def inputs_of(case: Case) -> dict[str, Array]:
    """The case's inputs, kept likewise."""
    return case.inputs()
