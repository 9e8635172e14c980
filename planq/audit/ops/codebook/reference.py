"""The codebook operators in NumPy, written from the numeric contract alone.

Nothing here is shared with the library. Arrays are of the compute type C, whose operations are
single IEEE roundings; the tables and their thresholds are float32, and exact in C.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

from planq.audit.reference.formats import Array, Arrays, narrowed, pack_nibbles, unpack_nibbles
from planq.audit.reference.philox import uniform

F32 = np.float32
LEAF = 1024
NESTED_ENTRIES = 256


def rounded_once(decimal: str) -> Any:
    """The float32 nearest to a decimal; by way of float64 it may be the one beside it."""
    near = F32(float(decimal))
    beside = (near, np.nextafter(near, F32(-np.inf)), np.nextafter(near, F32(np.inf)))
    return min(beside, key=lambda each: abs(Fraction(float(each)) - Fraction(decimal)))


def dynamic_values(signed: bool = True) -> Array:
    """The 8-bit dynamic map: 7 decades, each cut into twice the cells of the one below.

    The edges of the cells are single roundings of `start + step * i` and `end - step * i`, as a
    fused multiply-add gives them; both are exact in float64.
    """
    values = [F32(0), F32(1)]
    for decade in range(7):
        cells = 2**decade if signed else 2 ** (decade + 1)
        step = F32(F32(F32(1) - F32(0.1)) / F32(cells))
        i = np.arange(cells + 1)
        upwards = float(F32(0.1)) + float(step) * i
        downwards = 1.0 - float(step) * (cells - i)
        edges = np.where(i < (cells + 1) // 2, upwards, downwards).astype(F32)
        means = (edges[:-1] + edges[1:]) / F32(2) * F32(10.0 ** (decade - 6))
        values += [*means, *-means] if signed else [*means]
    return np.sort(np.array(values, F32))


NF4 = [
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453],
    [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0],
    [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224],
    [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
]
# bitsandbytes' decimals: the middles of neighbours, to sixteen digits.
NF4_MIDDLES = [
    ["-0.8480964004993439", "-0.6106329262256622", "-0.4599952697753906", "-0.33967943489551544"],
    ["-0.23460740596055984", "-0.13791173323988914", "-0.045525018125772476"],
    ["0.03979014977812767", "0.1202552504837513", "0.2035212516784668", "0.2920137718319893"],
    ["0.3893125355243683", "0.5016634166240692", "0.6427869200706482", "0.8614784181118011"],
]
NF4_THRESHOLDS = np.array([rounded_once(each) for row in NF4_MIDDLES for each in row], F32)
AF4 = [
    [1.0, 0.72424863, 0.55496234, 0.42563882, 0.31675666, 0.21961274, 0.12934483, 0.04273164],
    [0.0, -0.04934812, -0.14982478, -0.25607552, -0.3736951, -0.51243739, -0.69441008, -1.0],
]
FP4_TWELFTHS = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3], F32)
INT4_SEVENTHS = np.array([7, 6, 5, 4, 3, 2, 1, 0], F32)
# Lower ends of the magnitudes 1, 6, 7, 4, 5, 2 and 3, which ascend in this order.
FP4_THRESHOLDS = np.array(
    [0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333], F32
)
FP4_ASCENDING = np.array([0, 1, 6, 7, 4, 5, 2, 3])
INT4_ZERO, INT4_OTHER_ZERO = 7, 8


@cache
def table(codebook: str) -> Array:
    """The values of a compiled-in codebook by index."""
    made: dict[str, Callable[[], Array]] = {
        "dynamic": dynamic_values,
        "nf4": lambda: np.array(NF4, F32).ravel(),
        "fp4": lambda: np.concatenate([FP4_TWELFTHS, -FP4_TWELFTHS]) / F32(12),
        "int4": lambda: np.concatenate([INT4_SEVENTHS, -INT4_SEVENTHS[::-1]]) / F32(7),
        "af4": lambda: np.array(AF4, F32).ravel(),
    }
    return made[codebook]()


def thresholds_of(ascending: Array, ties: str) -> Array:
    """What a quotient has to exceed to go beyond each value; one fewer than values.

    Args:
        ascending: The values.
        ties: `even` sends the middle itself to the even index, `down` to the lower one.
    """
    low, high = ascending[:-1], ascending[1:]
    with np.errstate(over="ignore"):
        whole = low + high
    middle = np.where(np.isfinite(whole), whole / F32(2), low / F32(2) + high / F32(2)).astype(F32)
    if ties == "even":
        odd = np.arange(len(low)) % 2 == 1
        middle = np.where(odd & (low < high), np.nextafter(middle, F32(-np.inf)), middle)
    return np.maximum.accumulate(middle) if len(middle) else middle


@dataclass(frozen=True, eq=False)
class Codebook:
    """Values by index, and how a quotient finds its own.

    Attributes:
        values: float32, by index.
        name: Which of the codebooks; `given` has no rule of its own.
        ties: As in `thresholds_of`.
    """

    values: Array
    name: str
    ties: str

    @property
    def order(self) -> Array:
        """The indices of the values in ascending order; of two zeros the negative one is first."""
        return np.lexsort((~np.signbit(self.values), self.values))

    @property
    def thresholds(self) -> Array:
        """What a quotient has to exceed to go beyond each value; of fp4 what a magnitude has to."""
        own = {"nf4": NF4_THRESHOLDS, "fp4": FP4_THRESHOLDS}
        if self.name in own:
            return own[self.name]
        return thresholds_of(self.values[self.order], self.ties)

    def nearest(self, y: Array) -> Array:
        """The index of each quotient, none of them NaN."""
        if self.name == "fp4":
            magnitude = np.searchsorted(self.thresholds, np.abs(y), side="left")
            return FP4_ASCENDING[magnitude] + 8 * (y < 0)
        return self.stored(np.searchsorted(self.thresholds, y, side="left"))

    def drawn(self, y: Array, u: Array) -> Array:
        """The value below or the one above, which has the odds of how near it is."""
        C, last = y.dtype.type, len(self.values) - 1
        ascending = self.values[self.order].astype(C)
        below = np.clip(np.searchsorted(ascending, y, side="right") - 1, 0, last)
        above = np.minimum(below + 1, last)
        inside = (ascending[0] <= y) & (below < last)
        low, gap = ascending[below], ascending[above] - ascending[below]
        p = np.where(inside, (y - low) / np.where(gap > 0, gap, C(1)), C(0))
        return self.stored(np.where(u.astype(C) < p, above, below))

    def stored(self, rank: Array) -> Array:
        """From the place among ascending values to the index; int4 uses one of its two zeros."""
        index = self.order[rank]
        both = (self.name == "int4") & (index == INT4_OTHER_ZERO)
        return np.asarray(np.where(both, INT4_ZERO, index))

    @property
    def zero(self) -> int:
        """The index of +0, which takes the place of what has no index of its own."""
        return int(self.nearest(np.zeros(1, F32))[0])

    def codes(self, y: Array, u: Array | None = None) -> Array:
        """The index of each quotient, to the nearest or by its draw; NaN has that of 0."""
        numbers = np.where(np.isnan(y), y.dtype.type(0), y)
        return self.nearest(numbers) if u is None else self.drawn(numbers, u)

    def decoded(self, codes: Array, C: Any) -> Array:
        """The value of each index in C; NaN beyond the last."""
        values = np.append(self.values, F32(np.nan)).astype(C)
        return values[np.minimum(codes.astype(np.int64), len(self.values))]


DYNAMIC = Codebook(table("dynamic"), "dynamic", "even")


def quotients(x: Array, absmax: Array, quotient: str) -> Array:
    """`x` over `absmax` as Quotient forms it; divided where `1 / absmax` overflows."""
    if quotient == "divide":
        return np.asarray(x / absmax)
    reciprocal = x.dtype.type(1) / absmax
    return np.asarray(np.where(np.isinf(reciprocal), x / absmax, x * reciprocal))


def largest(rows: Array, nonfinite: str) -> Array:
    """max|x| of each row; NaN where PROPAGATE gives a row up."""
    finite = np.isfinite(rows)
    found = np.max(np.abs(rows), axis=1, initial=0, where=finite)
    lost = ~finite.all(axis=1) & (nonfinite == "propagate")
    return np.where(lost, rows.dtype.type(np.nan), found).astype(rows.dtype)


def row_codes(
    codebook: Codebook, rows: Array, absmax: Array, quotient: str, u: Array | None = None
) -> Array:
    """The codes of rows that have an absmax each; 0 and NaN make a row zeros."""
    y = quotients(rows, absmax[:, None], quotient)
    empty = ((absmax == 0) | np.isnan(absmax))[:, None]
    return np.where(empty, codebook.zero, codebook.codes(y, u))


def in_rows(flat: Array, size: int) -> Array:
    """A row for each block; the last one is filled up with 0."""
    width = max(min(size, len(flat)), 1)
    return np.pad(flat, (0, -len(flat) % width)).reshape(-1, width)


def out_of_rows(rows: Array, count: int) -> Array:
    """The elements of the blocks without what filled them up."""
    return rows.reshape(-1)[:count]


def tree_sum(values: Array) -> Array:
    """The sum of neighbours, again and again, in leaves of 1024 and then of the row of leaves."""
    while len(values) > LEAF:
        values = np.array([tree_sum(values[i : i + LEAF]) for i in range(0, len(values), LEAF)])
    padded = np.zeros(2 ** math.ceil(math.log2(max(len(values), 1))), values.dtype)
    padded[: len(values)] = values
    while len(padded) > 1:
        padded = padded[0::2] + padded[1::2]
    return np.asarray(padded[0])


def tree_mean(values: Array) -> Array:
    """`fl(sum / count)`; 0 of nothing."""
    count = values.dtype.type(max(len(values), 1))
    return np.asarray(tree_sum(values) / count).astype(values.dtype)


@dataclass(frozen=True)
class Nested:
    """Statistics of statistics: codes for absmax, the largest of each of their blocks, the mean."""

    codes: Array
    absmax: Array
    offset: Array


def nest(absmax: Array, block_size: int) -> Nested:
    """absmax without its mean, quantized with the dynamic map."""
    mean = tree_mean(absmax)
    rows = in_rows(absmax - mean, block_size)
    found = largest(rows, "propagate")[: -(-len(absmax) // block_size)]
    codes = row_codes(DYNAMIC, rows, largest(rows, "propagate"), "reciprocal")
    return Nested(out_of_rows(codes, len(absmax)).astype(np.uint8), found, mean.reshape(1))


def unnest(codes: Array, codebook: Codebook, absmax: Array, offset: Array, size: int) -> Array:
    """`fl(fl(v[q] * absmax) + offset)` of each code, in the type of `absmax`."""
    blocks = np.arange(len(codes)) // size
    value = codebook.decoded(codes, absmax.dtype.type) * absmax[blocks]
    return np.asarray(value + offset)


@dataclass(frozen=True)
class Operand:
    """An operand as it is stored.

    Attributes:
        dtype: Its element type; codes are uint8 also where two share a byte.
        shape: In elements of that type.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a descriptor says, without the library's types; the fields have the same names."""

    shape: tuple[int, ...]
    input_dtype: str
    output_dtype: str
    codebook: str = "given"
    entries: int | None = None
    nibble_order: str = "high_first"

    @property
    def float_dtype(self) -> str:
        """The floating point side of the operator, which decides C."""
        raise NotImplementedError

    @property
    def code_dtype(self) -> str:
        """The other side: uint8 or uint4."""
        raise NotImplementedError

    @property
    def inputs(self) -> dict[str, Operand]:
        """The input operands by name."""
        raise NotImplementedError

    @property
    def outputs(self) -> dict[str, Operand]:
        """The output operands by name."""
        raise NotImplementedError

    def expected(self, given: Arrays) -> Arrays:
        """The outputs as stored, for inputs as stored."""
        raise NotImplementedError

    @property
    def compute(self) -> Any:
        """The compute type C."""
        return np.float64 if self.float_dtype == "float64" else np.float32

    @property
    def compute_dtype(self) -> str:
        """Its name."""
        return np.dtype(self.compute).name

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def entry_count(self) -> int:
        """Values of the codebook."""
        if self.codebook == "given":
            return self.entries or (256 if self.code_dtype == "uint8" else 16)
        return len(table(self.codebook))

    @property
    def codes(self) -> Operand:
        """The codes: as many bytes as elements, or a flat row of half as many."""
        if self.code_dtype == "uint8":
            return Operand("uint8", self.shape)
        return Operand("uint8", (-(-self.count // 2),))

    @property
    def book(self) -> dict[str, Operand]:
        """The codebook, where it is an operand."""
        return {"codebook": Operand("float32", (self.entry_count,))} if self.is_given else {}

    @property
    def is_given(self) -> bool:
        """Whether the codebook is an operand."""
        return self.codebook == "given"

    def searched(self, given: Arrays) -> Codebook:
        """The codebook: 8-bit codes break ties to even indices, 4-bit codes downwards."""
        values = given["codebook"] if self.is_given else table(self.codebook)
        return Codebook(values, self.codebook, "even" if self.code_dtype == "uint8" else "down")

    def as_stored(self, codes: Array) -> Array:
        """Flat codes as the codes' operand."""
        if self.code_dtype == "uint8":
            return codes.astype(np.uint8).reshape(self.shape)
        return pack_nibbles(codes, self.nibble_order)

    def as_codes(self, stored: Array) -> Array:
        """The codes' operand as flat codes."""
        flat = stored.reshape(-1)
        if self.code_dtype == "uint8":
            return flat
        return unpack_nibbles(flat, self.count, self.nibble_order)

    @cached_property
    def id(self) -> str:
        """A stable name: types, and every field that differs from its default."""
        default = {item.name: item.default for item in fields(self)}
        parts = ["x".join(map(str, self.shape)), f"{self.input_dtype}-{self.output_dtype}"]
        for name, value in asdict(self).items():
            if default[name] is not MISSING and value != default[name]:
                parts.append(f"{name}={value}")
        return ",".join(parts)


@dataclass(frozen=True, kw_only=True)
class QuantizeProblem(Problem):
    """What both ways to make codes have in common."""

    output_dtype: str = "uint8"
    absmax_given: bool = False
    quotient: str = "reciprocal"
    nonfinite: str = "propagate"
    rounding: str = "nearest_even"

    @property
    def float_dtype(self) -> str:
        """The type of the elements."""
        return self.input_dtype

    @property
    def code_dtype(self) -> str:
        """The type of the codes."""
        return self.output_dtype

    @property
    def statistics(self) -> dict[str, Operand]:
        """absmax and what describes it."""
        raise NotImplementedError

    @property
    def inputs(self) -> dict[str, Operand]:
        """Elements, and what is given with them."""
        made = {"input": Operand(self.input_dtype, self.shape), **self.book}
        if self.absmax_given:
            made |= self.statistics
        if self.rounding == "stochastic":
            made |= {name: Operand("int64", ()) for name in ("seed", "offset")}
        return made

    @property
    def outputs(self) -> dict[str, Operand]:
        """Codes, and the statistics that are measured."""
        return {"output": self.codes, **({} if self.absmax_given else self.statistics)}

    def draws(self, given: Arrays) -> Array | None:
        """A draw for each element, in a flat row."""
        if self.rounding != "stochastic":
            return None
        return uniform(int(given["seed"]), int(given["offset"]), (self.count,))

    def elements(self, given: Arrays) -> Array:
        """The elements in C, in a flat row."""
        return given["input"].astype(self.compute).reshape(-1)

    def in_blocks(self, given: Arrays, size: int) -> tuple[Array, Array]:
        """Flat codes and the absmax of each block."""
        rows = in_rows(self.elements(given), size)
        absmax = largest(rows, self.nonfinite)
        if self.absmax_given:
            absmax = given["absmax"][: len(rows)]
        u = self.draws(given)
        drawn = None if u is None else in_rows(u, size)
        codes = row_codes(self.searched(given), rows, absmax, self.quotient, drawn)
        return out_of_rows(codes, self.count), absmax


def statistics(blocks: int, dtype: str, nested_block_size: int | None) -> dict[str, Operand]:
    """What describes blocks."""
    if nested_block_size is None:
        return {"absmax": Operand(dtype, (blocks,))}
    return {
        "absmax": Operand("uint8", (blocks,)),
        "nested_absmax": Operand(dtype, (-(-blocks // nested_block_size),)),
        "nested_offset": Operand(dtype, (1,)),
    }


@dataclass(frozen=True, kw_only=True)
class DequantizeProblem(Problem):
    """What both ways back have in common."""

    input_dtype: str = "uint8"
    output_dtype: str = "float32"
    absmax_dtype: str | None = None

    @property
    def float_dtype(self) -> str:
        """The type of the elements."""
        return self.output_dtype

    @property
    def code_dtype(self) -> str:
        """The type of the codes."""
        return self.input_dtype

    @property
    def stored_absmax(self) -> str:
        """The type of the statistics."""
        return self.absmax_dtype or self.compute_dtype

    @property
    def statistics(self) -> dict[str, Operand]:
        """absmax and what describes it."""
        raise NotImplementedError

    def absmax(self, given: Arrays) -> Array:
        """The absmax of every element, or one for all, in C."""
        raise NotImplementedError

    @property
    def inputs(self) -> dict[str, Operand]:
        """Codes, and what gives them back their size."""
        return {"input": self.codes, **self.statistics, **self.book}

    @property
    def outputs(self) -> dict[str, Operand]:
        """The elements."""
        return {"output": Operand(self.output_dtype, self.shape)}

    def expected(self, given: Arrays) -> Arrays:
        """The elements."""
        with np.errstate(all="ignore"):
            y = self.searched(given).decoded(self.as_codes(given["input"]), self.compute)
            if self.statistics:
                y = y * self.absmax(given)
            return {"output": narrowed(y, self.output_dtype).reshape(self.shape)}
