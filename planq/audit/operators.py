"""What the audit and the tests know of operators.

An operator joins them by its folder, `planq/audit/ops/<family>/<operator>`, with an `adapter.py`
that has a `TESTS`: its cases, and how one of their problems becomes a descriptor. Everything else
follows from the registry and from the descriptor's own operands.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Protocol

import planq
import planq.audit.ops
from planq.audit.reference.formats import Array


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


def _adapters() -> dict[str, OperatorTests]:
    """Every operator's, by its name."""
    found = {}
    for family in pkgutil.iter_modules(planq.audit.ops.__path__, "planq.audit.ops."):
        package = importlib.import_module(family.name)
        for module in pkgutil.iter_modules(package.__path__, f"{family.name}."):
            if module.ispkg:
                operator = module.name.rpartition(".")[2]
                found[operator] = importlib.import_module(f"{module.name}.adapter").TESTS
    return dict(sorted(found.items()))


OPERATORS = _adapters()
# The same, and those of operators that are no users' but tests'.
ADAPTERS = dict(OPERATORS)


def name_of(kernel: planq.KernelInfo | planq.Candidate) -> str:
    """What a kernel is called: its SKU and its body."""
    return f"{kernel.sku}:{kernel.body}"


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
