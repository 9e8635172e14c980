"""The shapes of results where extents are symbols.

An operator's shape function is native and takes numbers. It is asked at several of them, and the
formula that fits all answers stands for it: an extent of a result is a constant, or a product of
extents times a whole number, or divided by one and rounded up. Where none fits, the symbols become
numbers, which torch then guards.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from planq._classes import classes_of
from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import Role
from planq.errors import DescriptorError

Results: TypeAlias = list[tuple[OperandSpec, tuple[Any, ...]]]

# Every extent takes these in another order: parts of groups and pairs, and whole ones.
_EXTENTS: Final = (1, 2, 3, 5, 7, 16, 31, 64, 65, 100, 129, 192, 256, 320, 1000, 4097, 65537)
_WHOLE: Final = (64, 128, 192, 320, 448, 704, 832, 1088)
_FAR: Final = 1 << 30
_NEAR: Final = 64


@dataclass(frozen=True, slots=True)
class Symbol:
    """The place of a symbolic extent: the same for extents that are the same."""

    number: int


@dataclass(frozen=True, slots=True)
class Formula:
    """``ceil(product of extents * times / parts)``; without extents it is ``times``."""

    symbols: tuple[int, ...]
    times: int
    parts: int

    def of(self, extents: Any) -> Any:
        """Of numbers or of symbols."""
        product = math.prod((extents[symbol] for symbol in self.symbols), start=self.times)
        return product if self.parts == 1 else (product + (self.parts - 1)) // self.parts


def is_symbol(extent: object) -> bool:
    """Whether an extent is not known yet."""
    return hasattr(extent, "node") and not isinstance(extent, int)


def results(operator: str, values: dict[str, Any]) -> Results:
    """The outputs of the descriptor with these fields, each with its shape, which may have symbols.

    Raises:
        DescriptorError: The fields have no meaning.
    """
    symbols: dict[Hashable, int] = {}
    extents: list[Any] = []

    def placed(extent: Any) -> Any:
        if not is_symbol(extent):
            return extent
        number = symbols.setdefault(extent.node.expr, len(symbols))
        if number == len(extents):
            extents.append(extent)
        return Symbol(number)

    fields = {
        name: tuple(map(placed, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
    }
    if not extents:
        return _known(operator, values)
    found = _formulas(operator, tuple(fields.items()), len(extents))
    if found is None:
        return _known(operator, {name: _numbers(value) for name, value in values.items()})
    return [(spec, tuple(formula.of(extents) for formula in shape)) for spec, shape in found]


def _numbers(value: Any) -> Any:
    return tuple(map(int, value)) if isinstance(value, tuple) else value


def _known(operator: str, values: dict[str, Any]) -> Results:
    made = classes_of(operator).descriptor(**values)
    return [(spec, spec.shape) for spec in _outputs(made)]


def _outputs(desc: Descriptor) -> list[OperandSpec]:
    return [spec for spec in desc.operands().values() if spec.role is Role.OUTPUT]


@functools.lru_cache(maxsize=1024)
def _formulas(
    operator: str, fields: tuple[tuple[str, Any], ...], count: int
) -> list[tuple[OperandSpec, tuple[Formula, ...]]] | None:
    """What the outputs' extents are; None where no formula fits.

    Raises:
        DescriptorError: The fields have no meaning at any extents.
    """
    asked = functools.partial(_asked, classes_of(operator).descriptor, dict(fields))
    points: list[tuple[tuple[int, ...], list[OperandSpec]]] = []
    fault: DescriptorError | None = None
    for extents in _points(count):
        try:
            points.append((extents, asked(extents)))
        except DescriptorError as error:
            fault = fault or error
    if not points:
        # The symbols may depend on one another in a way that these points do not.
        if fault is not None and count == 1:
            raise fault
        return None
    first = points[0][1]
    if any([len(s.shape) for s in specs] != [len(s.shape) for s in first] for _, specs in points):
        return None
    found = []
    for place, spec in enumerate(first):
        shape = []
        for axis in range(len(spec.shape)):
            answers = [(extents, _extent(specs[place], axis)) for extents, specs in points]
            formula = _fitting(answers, count)
            if formula is None:
                return None
            shape.append(formula)
        found.append((spec, tuple(shape)))
    return found


def _extent(spec: OperandSpec, axis: int) -> int:
    return spec.extents[axis]


def _asked(
    make: Callable[..., Descriptor], fields: dict[str, Any], extents: tuple[int, ...]
) -> list[OperandSpec]:
    """The outputs with numbers in the places of symbols."""

    def known(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        return tuple(extents[item.number] if isinstance(item, Symbol) else item for item in value)

    return _outputs(make(**{name: known(value) for name, value in fields.items()}))


def _points(count: int) -> Iterator[tuple[int, ...]]:
    """Extents to ask for: each far beyond the others, then many together."""
    for far in range(count):
        yield tuple(_FAR if symbol == far else _NEAR for symbol in range(count))
    for choices in (_WHOLE, _EXTENTS):
        for start in range(len(choices)):
            yield tuple(
                choices[(start * (2 * symbol + 1) + symbol) % len(choices)]
                for symbol in range(count)
            )


def _fitting(answers: list[tuple[tuple[int, ...], int]], count: int) -> Formula | None:
    """The formula with the fewest symbols that gives every answer."""
    for size in range(count + 1):
        for symbols in itertools.combinations(range(count), size):
            for formula in _candidates(symbols, answers):
                if all(formula.of(extents) == answer for extents, answer in answers):
                    return formula
    return None


def _candidates(
    symbols: tuple[int, ...], answers: list[tuple[tuple[int, ...], int]]
) -> Iterator[Formula]:
    extents, answer = max(answers, key=lambda pair: math.prod(pair[0][i] for i in symbols))
    product = math.prod(extents[symbol] for symbol in symbols)
    if not symbols:
        yield Formula((), answer, 1)
    elif answer > 0:
        yield Formula(symbols, max(answer // product, 1), 1)
        yield Formula(symbols, 1, -(-product // answer))
