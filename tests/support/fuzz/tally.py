"""How many cases and elements each kernel had, in one process or in several."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

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

    def line(self) -> str:
        """One line for a person."""
        share = self.refused / max(self.refused + self.cases, 1)
        return (
            f"{self.operator:28} {self.cases:8} cases {self.elements:12} elements "
            f"{self.runs.total():8} runs of {len(self.runs):3} kernels, {self.unmet} unmet, "
            f"{share:4.0%} of descriptors refused"
        )
