"""How many cases and elements each kernel had, in one process or in several."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest

import planq
from planq.audit.operators import name_of

PROPERTY = "fuzz"


@dataclass
class Tally:
    """Of one operator.

    Attributes:
        operator: Its name.
        seed: Of the cases.
        backend: Whose kernels were tried.
        cases: How many there were.
        elements: Of all cases.
        refused: Descriptors that the library refused while cases were looked for.
        unmet: Runs that a kernel refused, since the operands do not meet its constraints.
        runs: Of each kernel.
        elsewhere: Kernels that were written for another device than the one at hand.
        found: What was found, with a line that repeats it.
    """

    operator: str
    seed: int
    backend: str
    cases: int = 0
    elements: int = 0
    refused: int = 0
    unmet: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    elsewhere: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)

    def text(self) -> str:
        """As JSON, without what was found."""
        return json.dumps({**vars(self), "found": []})

    @classmethod
    def read(cls, text: str) -> Tally:
        """What `text` wrote."""
        values = json.loads(text)
        return cls(**{**values, "runs": Counter(values["runs"])})

    def add(self, other: Tally) -> None:
        """Counts the other's cases too."""
        for name in ("cases", "elements", "refused", "unmet"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.runs.update(other.runs)
        self.elsewhere += other.elsewhere

    def line(self) -> str:
        """One line for a person."""
        share = self.refused / max(self.refused + self.cases, 1)
        return (
            f"{self.backend:4} {self.operator:26} {self.cases:8} cases {self.elements:12} elements "
            f"{self.runs.total():8} runs of {len(self.runs):3} kernels, {self.unmet} unmet, "
            f"{share:4.0%} of descriptors refused"
        )


def gathered(reports: Iterable[pytest.TestReport]) -> list[Tally]:
    """The tallies of all tests, one for each operator and backend."""
    found: dict[tuple[str, str], Tally] = {}
    for report in reports:
        for name, text in report.user_properties if report.when == "call" else ():
            if name == PROPERTY:
                tally = Tally.read(str(text))
                known = found.setdefault((tally.backend, tally.operator), tally)
                if known is not tally:
                    known.add(tally)
    return [found[key] for key in sorted(found)]


def lines(tallies: list[Tally]) -> Iterator[str]:
    """What a person reads at the end of a run: each operator, all together, and the seed."""
    for tally in tallies:
        yield tally.line()
    for seed in sorted({tally.seed for tally in tallies}):
        own = [tally for tally in tallies if tally.seed == seed]
        cases, elements = sum(t.cases for t in own), sum(t.elements for t in own)
        runs, kernels = sum(t.runs.total() for t in own), sum(len(t.runs) for t in own)
        yield (
            f"{cases} cases, {elements} elements, {runs} runs of {kernels} kernels; "
            f"PLANQ_FUZZ_SEED={seed} makes them again"
        )


def unreached(tallies: Iterable[Tally]) -> list[str]:
    """The kernels that no case of a long run came to."""
    kernels = {operator.name: operator.kernels for operator in planq.operators()}
    return [
        name_of(kernel)
        for tally in tallies
        for kernel in kernels[tally.operator]
        if tally.cases >= 2 * len(kernels[tally.operator])
        and kernel.backend.value == tally.backend
        and name_of(kernel) not in tally.elsewhere
        and not tally.runs[name_of(kernel)]
    ]
