"""What the two directions of vectorwise quantization share in the tests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

FORMS = (
    "linear",
    "row",
    "vector",
    "zeropoint",
    "row_zeropoint",
    "vector_zeropoint",
    "truncated",
)
WHOLE = ("linear", "zeropoint")


@dataclass(frozen=True)
class Problem:
    """Elements of a type in a form, with vectors along an axis."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    form: str = "vector"
    axis: int = -1

    @property
    def shifted(self) -> bool:
        """Whether there is a zero point."""
        return "zeropoint" in self.form

    @property
    def code(self) -> str:
        """The type of codes."""
        return "uint8" if self.shifted else "int8"

    @property
    def scalar(self) -> Any:
        """The type of statistics and of everything that is computed."""
        return np.float64 if self.dtype == "float64" else np.float32

    @property
    def along(self) -> int | None:
        """Which axis a statistic is made along; None: all of them."""
        return None if self.form in WHOLE else self.axis

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        """Of scale and zero point."""
        if self.along is None:
            return (1,)
        shape = list(self.shape)
        shape[self.along] = min(shape[self.along], 1)
        return tuple(shape)

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        shape = "x".join(map(str, self.shape))
        return f"{shape},{self.dtype},{self.form},axis={self.axis}"


# Vectors along the last axis, down columns and between; of a few elements and of many.
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((7, 40), -1),
    ((5, 33), 0),
    ((3, 5, 130), 1),
    ((2, 4096), -1),
    ((300,), -1),
    ((64, 256), 0),
    ((2, 3, 4, 5), -2),
    ((4, 1000), -1),
    ((1, 1), -1),
    ((700, 96), 0),
    ((3, 17, 64), -1),
    ((5, 1), -1),
    ((2, 3, 1, 2, 2, 3, 2, 5), 4),
)
WIDE: tuple[tuple[tuple[int, ...], int], ...] = (
    ((2, 70000), -1),
    ((3000, 136), 0),
    ((1100, 520), -1),
    ((5, 20011), -1),
    ((3, 300, 333), 1),
)
EMPTY: tuple[tuple[tuple[int, ...], int], ...] = (
    ((0,), -1),
    ((0, 5), 0),
    ((0, 5), 1),
    ((5, 0), 0),
    ((5, 0), 1),
    ((3, 0, 4), 1),
    ((3, 0, 4), 2),
)
