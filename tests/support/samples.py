"""One small plan and its operands, for tests of the contract itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import planq
from planq.audit.reference.formats import Array

SHAPE = (6, 32)


def make_descriptor(**changes: Any) -> planq.DynamicRangeQuantizeDescriptor:
    """float32 to int8 per token, with changes."""
    fields = {"shape": SHAPE, "input_dtype": "float32", "output_dtype": "int8", **changes}
    return planq.DynamicRangeQuantizeDescriptor(**fields)


@dataclass
class Sample:
    """Arrays for `make_descriptor()`, outputs poisoned."""

    x: Array
    q: Array
    s: Array

    def args(self, **changes: Any) -> planq.DynamicRangeQuantizeArgs:
        """The operands, some of them replaced."""
        made = planq.DynamicRangeQuantizeArgs(input=self.x, output=self.q, scale=self.s)
        return replace(made, **changes)

    def poison(self) -> None:
        """Forgets the outputs."""
        self.q.fill(-99)
        self.s.fill(-1)

    def untouched(self) -> bool:
        """Whether no output was written since the poison."""
        return bool((self.q == -99).all() and (self.s == -1).all())

    def right(self) -> bool:
        """Whether the outputs are those of the input."""
        s = np.abs(self.x).max(axis=1) / np.float32(127)
        codes = np.rint(self.x / s[:, None]).astype(np.int8)
        return bool((self.s == s).all() and (self.q == codes).all())


def make_sample() -> Sample:
    """Inputs without zeros or ends of the range, so that the formula is two lines of NumPy."""
    count = SHAPE[0] * SHAPE[1]
    x = ((np.arange(count) * 37 % 101 - 50.5) / 8).astype(np.float32).reshape(SHAPE)
    sample = Sample(x, np.empty(SHAPE, np.int8), np.empty(SHAPE[0], np.float32))
    sample.poison()
    return sample


def assign(target: Any, name: str, value: Any) -> None:
    """An assignment that a type checker would refuse."""
    setattr(target, name, value)
