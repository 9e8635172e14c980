"""Medians, and how much effort a measurement is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.workload import Timing


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to sample: about ``seconds``, within the limits on the number of samples."""

    seconds: float = 0.06
    fewest: int = 20
    most: int = 100

    def samples(self, seconds_each: float) -> int:
        """The number of samples of this length."""
        return max(self.fewest, min(self.most, round(self.seconds / max(seconds_each, 1e-9))))


QUICK = Effort(seconds=0.02, fewest=5, most=20)


def summarize(samples: Sequence[float], launches: int, method: str) -> Timing:
    """Condenses samples that hold this many launches each."""
    ordered = sorted(sample / launches for sample in samples)
    last = len(ordered) - 1
    middle = (ordered[last // 2] + ordered[(last + 1) // 2]) / 2
    low, high = ordered[round(0.1 * last)], ordered[round(0.9 * last)]
    return Timing(middle, low, high, len(ordered), launches, method)
