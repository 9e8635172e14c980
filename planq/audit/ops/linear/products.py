"""Products of integer codes: codes as they are stored, and their sums."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import numpy as np

import planq
from planq.audit.from_reference import ReferenceTests
from planq.audit.promises import Sums
from planq.audit.reference.formats import (
    INTEGER_RANGES,
    STORAGE,
    Array,
    Arrays,
    pack_nibbles,
    unpack_nibbles,
)
from planq.audit.reference.inputs import field, hashed

CODES = ("int8", "uint8", "int4", "uint4")
# Codes of every value; only the two ends of the range, where sums are largest; mostly zeros.
KINDS = ("any", "any", "ends", "sparse", "lowest")
PARTS = 4
TILE = 70001  # codes; larger tensors repeat them


def codes(dtype: str, shape: tuple[int, ...], kind: str, seed: int) -> Array:
    """Codes as integers."""
    low, high = INTEGER_RANGES[dtype]
    count = math.prod(shape)
    words = hashed(seed, min(count, TILE))
    every = low + field(words, 0, 30) % (high - low + 1)
    made = {
        "any": every,
        "ends": np.where(field(words, 40, 1) == 0, low, high),
        "sparse": np.where(field(words, 40, 3) == 0, every, 0),
        "lowest": np.full(words.size, low if low < 0 else high),
    }[kind]
    return np.resize(made, count).reshape(shape)


def stored(values: Array, dtype: str) -> Array:
    """Codes as memory holds them: of 4 bits two a byte, the first in the low nibble."""
    if dtype in ("int4", "uint4"):
        return pack_nibbles(values, "low_first")
    return np.ascontiguousarray(values.astype(STORAGE[dtype]))


def logical(values: Array, dtype: str, columns: int) -> Array:
    """The integers behind stored codes."""
    if dtype not in ("int4", "uint4"):
        return values.astype(np.int64)
    nibbles = unpack_nibbles(values, columns, "low_first").astype(np.int64)
    return np.where(nibbles >= 8, nibbles - 16, nibbles) if dtype == "int4" else nibbles


def wrapped(values: Array) -> Array:
    """int64 values modulo 2^32, as int32."""
    return values.astype(np.uint64).astype(np.uint32).view(np.int32)


def matmul(a: Array, w: Array) -> Array:
    """a w^T over the last axes. float64 holds every sum here exactly: none leaves 2^53."""
    return (a.astype(np.float64) @ np.swapaxes(w, -1, -2).astype(np.float64)).astype(np.int64)


def fused(x: Array, y: Any, z: Array) -> Array:
    """x y + z of float32 values with one rounding.

    float64 holds the product. Its sum is rounded to odd, which the second rounding cannot tell from
    the exact value.
    """
    product, addend = x.astype(np.float64) * np.float64(y), z.astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    inexact = np.isfinite(total) & (error != 0)
    toward_zero = inexact & (np.signbit(error) != np.signbit(total))
    cut = np.where(toward_zero, np.nextafter(total, 0.0), total)
    odd = (cut.view(np.uint64) | inexact.astype(np.uint64)).view(np.float64)
    return np.asarray(odd.astype(np.float32))


class Problem(Protocol):
    """A problem whose operands have rows of m."""

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""

    @property
    def rows(self) -> int:
        """m."""

    @property
    def size(self) -> int:
        """Multiplications."""

    def with_rows(self, rows: int) -> Any:
        """The same with another m."""

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Input operands by name."""

    def expected(self, given: Arrays) -> Arrays:
        """The reference's outputs."""


P = TypeVar("P", bound=Problem)


def named(problem: Any) -> str:
    """The fields of a problem that are not as usual, as one word."""
    words = []
    for name, value in asdict(problem).items():
        if value is not None and value is not False:
            text = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words.append(f"{name}={text}")
    return ",".join(words)


class MatmulShapes:
    """The extents of a problem whose sides may be transposed; a dataclass has the fields."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    transpose_input: bool
    transpose_weight: bool

    @property
    def row_axis(self) -> int:
        """Of the input: m."""
        return -1 if self.transpose_input else -2

    @property
    def rows(self) -> int:
        """m."""
        return self.input_shape[self.row_axis]

    @property
    def terms(self) -> int:
        """k."""
        return self.input_shape[-2 if self.transpose_input else -1]

    @property
    def size(self) -> int:
        """Multiplications, of the first product of a batch at least."""
        columns = self.weight_shape[-1 if self.transpose_weight else -2]
        return math.prod(self.input_shape) * columns

    def with_rows(self, rows: int) -> Any:
        """The same with another m."""
        shape = list(self.input_shape)
        shape[self.row_axis] = rows
        return replace(cast("Any", self), input_shape=tuple(shape))


@dataclass(frozen=True)
class Part:
    """Some rows of m, as a problem of their own."""

    whole: Any
    piece: slice

    @property
    def problem(self) -> Any:
        """The rows alone."""
        return self.whole.with_rows(self.piece.stop - self.piece.start)

    def inputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The rows' inputs out of the whole's."""
        made: Arrays = self.whole.cut(whole, self.piece)
        return made

    def outputs(self, whole: dict[str, Array]) -> dict[str, Array]:
        """The rows' outputs out of the whole's."""
        return self.inputs(whole)


@dataclass(frozen=True)
class Case:
    """A problem with its operands."""

    problem: Any
    kind: str = "any"
    seed: int = 0

    @cached_property
    def id(self) -> str:
        """The problem and the operands, as one word."""
        return f"{self.problem.id},kind={self.kind},seed={self.seed}"

    @property
    def size(self) -> int:
        """Multiplications."""
        return int(self.problem.size)

    def reseeded(self, seed: int) -> Case:
        """The same problem on other values."""
        return replace(self, kind=KINDS[seed % len(KINDS)], seed=seed)

    def inputs(self) -> dict[str, Array]:
        """Input operands by name."""
        made: Arrays = self.problem.inputs(self.kind, self.seed)
        return made

    def expected(self, given: dict[str, Array]) -> dict[str, Array]:
        """The reference's outputs, as stored."""
        made: Arrays = self.problem.expected(given)
        return made

    def sums(self, given: dict[str, Array], least: float) -> dict[str, Sums]:
        """The outputs in float64, of floating products."""
        made: dict[str, Sums] = self.problem.exact_sums(given, least)
        return made

    def parts(self) -> Iterator[Part]:
        """Runs of rows."""
        rows = self.problem.rows
        step = max(-(-rows // PARTS), 1)
        for start in range(0, rows, step):
            yield Part(self.problem, slice(start, min(start + step, rows)))


def sized(fields: dict[str, Any], count: int) -> dict[str, Any]:
    """The shapes of a problem with `count` codes in its input, of 64 terms, and 64 columns.

    An order of sums that asks for more of the terms than those have follows from the rest again.
    """
    if "shape" in fields:
        rank = len(fields["shape"])
        last = fields["axis"] in (-1, rank - 1)
        shape = [count // 64, 64] if last else [64, count // 64]
        return {"shape": shape, "axis": -1 if last else 0}
    rows = [64, count // 64] if fields.get("transpose_input") else [count // 64, 64]
    ones = [1] * (len(fields["input_shape"]) - 2)
    made: dict[str, Any] = {"input_shape": [*ones, *rows], "weight_shape": [64, 64]}
    return made | ({"accumulation": None} if fields.get("accumulation") == "groups_sm90" else {})


@dataclass(frozen=True)
class ProductTests(ReferenceTests):
    """A product of codes against its NumPy reference."""

    listed: tuple[Case, ...]
    empty: tuple[Case, ...]
    rounds: planq.Rounding = planq.Rounding.NONE

    def cases(self) -> tuple[Case, ...]:
        """Problems with elements."""
        return self.listed

    def empty_cases(self) -> tuple[Case, ...]:
        """Problems without."""
        return self.empty

    def math(self, problem: Any) -> planq.MathPrecision:
        """Integers."""
        return planq.MathPrecision.INT32

    def rounding(self, problem: Any) -> planq.Rounding:
        """Of floating outputs."""
        return self.rounds

    def variety(self, problem: Any) -> str:
        """Whether rows are whole vectors."""
        return "vectors" if problem.terms % 16 == 0 else "edges"

    def sized(self, fields: dict[str, Any], count: int) -> dict[str, Any]:
        """The problem with `count` codes in its input."""
        return sized(fields, count)
