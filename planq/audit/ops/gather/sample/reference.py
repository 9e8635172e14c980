"""`sample` in NumPy and Python's integers, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import Array, Arrays
from planq.audit.reference.functions import exp_nonpositive

F32 = np.float32
SETTINGS = ("temperature", "top_k", "top_p", "min_p")


@dataclass(frozen=True)
class Problem:
    """Rows of logits."""

    shape: tuple[int, ...]
    input_dtype: str
    output_dtype: str = "int64"

    @property
    def count(self) -> int:
        """How many rows there are."""
        return math.prod(self.shape[:-1])

    @cached_property
    def id(self) -> str:
        """A stable name."""
        return f"{'x'.join(map(str, self.shape))},{self.input_dtype}_{self.output_dtype}"


@dataclass(frozen=True)
class Settings:
    """What one row is drawn by."""

    seed: int
    position: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def are_valid(self) -> bool:
        """Whether they make sense; a NaN is never in a range."""
        finite = 0 <= self.temperature < math.inf
        return finite and 0 <= self.top_p <= 1 and 0 <= self.min_p <= 1


def random_word(seed: int, position: int) -> int:
    """Words 0 and 1 of Philox4x32-10, the first one low."""
    low = 2**32 - 1
    c0, c1, c2, c3 = position & low, position >> 32 & low, 0, 0
    k0, k1 = seed & low, seed >> 32 & low
    for _ in range(10):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q & low, (p >> 32) ^ c3 ^ k1, p & low
        k0, k1 = k0 + 0x9E3779B9 & low, k1 + 0xBB67AE85 & low
    return c1 << 32 | c0


def probabilities(row: Array, temperature: float) -> Array:
    """Next to the largest element, in float32."""
    with np.errstate(all="ignore"):
        slope = min(F32(1) / F32(temperature), np.finfo(F32).max)
        below = np.where(row == row.max(), F32(0), row - row.max())
        return np.asarray(exp_nonpositive(below * slope))


def kept(row: Array, p: Array, weights: list[int], settings: Settings) -> list[int]:
    """The indices that the filters leave, in the order of their elements."""
    order = np.argsort(-row, kind="stable").tolist()
    if settings.top_k > 0:
        order = order[: settings.top_k]
    goal = Fraction(settings.top_p) * sum(weights[i] for i in order)
    running, count = 0, 0
    while count < len(order) and (count == 0 or running < goal):
        running += weights[order[count]]
        count += 1
    return [i for i in order[:count] if p[i] >= settings.min_p]


def sample_row(row: Array, settings: Settings) -> int:
    """The row's index, or -1."""
    row = row.astype(F32) + F32(0)  # one zero
    if not settings.are_valid or np.isnan(row).any() or row.max() == -math.inf:
        return -1
    if settings.temperature == 0:
        return int(np.flatnonzero(row == row.max())[0])
    p = probabilities(row, settings.temperature)
    weights = [int(each) for each in p.astype(np.float64) * 2.0**40]
    chosen = sorted(kept(row, p, weights, settings))
    word = random_word(settings.seed, settings.position)
    rest = word * sum(weights[i] for i in chosen) >> 64
    for i in chosen:
        rest -= weights[i]
        if rest < 0:
            return i
    raise AssertionError


def settings_of(given: Arrays, row: int) -> Settings:
    """Those of a row."""
    own = {name: given[name].reshape(-1)[row].item() for name in SETTINGS if name in given}
    seed, position = (given[name].reshape(-1)[row].item() for name in ("seed", "position"))
    return Settings(seed, position, **own)


def sample(problem: Problem, given: Arrays) -> Arrays:
    """An index of each row, and how many rows have none."""
    rows = given["input"].reshape(problem.count, problem.shape[-1])
    found = [sample_row(row, settings_of(given, i)) for i, row in enumerate(rows)]
    output = np.array(found, problem.output_dtype).reshape(problem.shape[:-1])
    return {"output": output, "invalid": np.array([found.count(-1)], np.int64)}
