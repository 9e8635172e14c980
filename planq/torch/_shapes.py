"""The shapes of results where extents are symbols.

An operator's shape function is native and takes numbers. It is asked at several of them, and the
formula that fits all answers stands for it: an extent of a result is a constant, or a product of
extents times a whole number, or divided by one and rounded up, or rounded up to a multiple, or such
a product and a constant. Where none fits, the symbols become numbers, which torch then guards.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from planq._classes import classes_of
from planq.descriptor import Descriptor, OperandSpec
from planq.dtypes import Role
from planq.errors import DescriptorError

Results: TypeAlias = list[tuple[OperandSpec, tuple[Any, ...]]]

# Operators ask some extents to be multiples of something; these are, of all that is usual.
_WHOLE: Final = 64
_WHOLES: Final = (_WHOLE, _WHOLE * 3 * 5 * 7)
_MULTIPLES: Final = (2, 3, 5, 7)
_ODD: Final = (1, 2, 3, 5, 7, 16, 31, 65, 100, 129, 256, 1000, 4097, 65537)
_MOST_BITS: Final = 58  # of a product of extents
_FAR_BITS: Final = 40
_MOST_TRIED: Final = 400  # of what may be known of symbols


@dataclass(frozen=True, slots=True)
class Symbol:
    """The place of a symbolic extent: the same for extents that are the same."""

    number: int


@dataclass(frozen=True, slots=True)
class Formula:
    """``ceil(product of extents * times / parts) * step + more``; ``times`` without extents."""

    symbols: tuple[int, ...]
    times: int
    parts: int
    more: int = 0
    step: int = 1

    def of(self, extents: Any) -> Any:
        """Of numbers or of symbols."""
        product = math.prod((extents[symbol] for symbol in self.symbols), start=self.times)
        whole = product if self.parts == 1 else (product + (self.parts - 1)) // self.parts
        whole = whole * self.step if self.step != 1 else whole
        return whole + self.more if self.more else whole


def is_symbol(extent: object) -> bool:
    """Whether an extent is not known yet."""
    return hasattr(extent, "node") and not isinstance(extent, int)


def results(operator: str, values: dict[str, Any]) -> Results:
    """The outputs of the descriptor with these fields, each with its shape, which may have symbols.

    Raises:
        DescriptorError: The fields have no meaning.
    """
    extents: list[Any] = []
    numbers: dict[Hashable, int] = {}

    def placed(extent: Any) -> Any:
        if not is_symbol(extent):
            return extent
        number = numbers.setdefault(extent.node.expr, len(numbers))
        if number == len(extents):
            extents.append(extent)
        return Symbol(number)

    fields = _mapped(values, placed)
    if not extents:
        return _known(operator, values)
    hints = tuple(extent.node.hint if extent.node.has_hint() else None for extent in extents)
    known = _least_known(operator, tuple(fields.items()), hints)
    if known is None:
        return _known(operator, _mapped(values, lambda e: int(e) if is_symbol(e) else e))
    _guard(extents, known)
    found = _formulas(operator, tuple(_mapped(fields, known.apply).items()), len(extents))
    return [(spec, tuple(formula.of(extents) for formula in shape)) for spec, shape in found or []]


def _mapped(values: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The fields with every extent changed."""
    return {
        name: tuple(map(change, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
    }


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of symbols: some are numbers, some are others that come before them."""

    numbers: tuple[tuple[int, int], ...] = ()
    same: tuple[tuple[int, int], ...] = ()

    def apply(self, extent: Any) -> Any:
        """An extent, knowing this."""
        if not isinstance(extent, Symbol):
            return extent
        number = extent.number
        for ours, theirs in self.same:
            number = theirs if number == ours else number
        return dict(self.numbers).get(number, Symbol(number))


def _guard(extents: list[Any], known: Known) -> None:
    """Tells torch what a compiled program takes for granted."""
    for ours, theirs in known.same:
        if not extents[ours] == extents[theirs]:
            raise DescriptorError("shape", f"expected {extents[theirs]}, got {extents[ours]}")
    for symbol, number in known.numbers:
        if int(extents[symbol]) != number:
            raise DescriptorError("shape", f"expected {number}, got {extents[symbol]}")


@functools.lru_cache(maxsize=1024)
def _least_known(
    operator: str, fields: tuple[tuple[str, Any], ...], hints: tuple[int | None, ...]
) -> Known | None:
    """The least that gives formulas; None where nothing does.

    Some extents have to be as large as others, or as a number: the columns of two factors, those of
    a weight. All others stay symbols.
    """
    for known in itertools.islice(_ever_more(hints), _MOST_TRIED):
        changed = _mapped(dict(fields), known.apply)
        if _formulas(operator, tuple(changed.items()), len(hints)) is not None:
            return known
    return None


def _ever_more(hints: tuple[int | None, ...]) -> Iterator[Known]:
    """What may be known, the least first: equal extents before numbers."""
    facts: list[Known] = [
        Known(same=((later, first),))
        for first, later in itertools.combinations(range(len(hints)), 2)
        if hints[first] is not None and hints[first] == hints[later]
    ]
    facts += [Known(numbers=((i, hint),)) for i, hint in enumerate(hints) if hint is not None]
    for size in range(len(hints) + 1):
        for chosen in itertools.combinations(facts, size):
            yield Known(
                tuple(pair for fact in chosen for pair in fact.numbers),
                # From the last symbol down, so that what one becomes is changed in its turn.
                tuple(sorted((pair for fact in chosen for pair in fact.same), reverse=True)),
            )


def _known(operator: str, values: dict[str, Any]) -> Results:
    made = classes_of(operator).descriptor(**values)
    return [(spec, spec.shape) for spec in _outputs(made)]


def _outputs(desc: Descriptor) -> list[OperandSpec]:
    return [spec for spec in desc.operands().values() if spec.role is Role.OUTPUT]


@functools.lru_cache(maxsize=1024)
def _formulas(
    operator: str, fields: tuple[tuple[str, Any], ...], count: int
) -> list[tuple[OperandSpec, tuple[Formula, ...]]] | None:
    """What the outputs' extents are; None where the operator has no meaning at ordinary extents.

    That is so where extents depend on one another, and where the fields have no meaning at all.
    """
    asked = functools.partial(_asked, classes_of(operator).descriptor, dict(fields))
    symbols = [
        item.number
        for _, value in fields
        if isinstance(value, tuple)
        for item in value
        if isinstance(item, Symbol)
    ]
    answers: list[tuple[tuple[int, ...], list[OperandSpec]]] = []
    for whole in _WHOLES:
        with contextlib.suppress(DescriptorError):
            answers = [(extents, asked(extents)) for extents in _ordinary(symbols, count, whole)]
            break
    if not answers:
        return None
    for extents in (*_far(symbols, count), *_odd(count)):
        with contextlib.suppress(DescriptorError):
            answers.append((extents, asked(extents)))
    found = []
    for place, spec in enumerate(answers[0][1]):
        shapes = [(extents, specs[place].extents) for extents, specs in answers]
        if len({len(shape) for _, shape in shapes}) > 1:
            return None
        formulas = [
            _fitting([(extents, shape[axis]) for extents, shape in shapes], symbols)
            for axis in range(len(spec.shape))
        ]
        if None in formulas:
            return None
        found.append((spec, tuple(formula for formula in formulas if formula)))
    return found


def _asked(
    make: Callable[..., Descriptor], fields: dict[str, Any], extents: tuple[int, ...]
) -> list[OperandSpec]:
    """The outputs with numbers in the places of symbols."""

    def known(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        return tuple(extents[item.number] if isinstance(item, Symbol) else item for item in value)

    return _outputs(make(**{name: known(value) for name, value in fields.items()}))


def _ordinary(symbols: list[int], count: int, whole: int) -> Iterator[tuple[int, ...]]:
    """Whole extents: each in turn larger than the others."""
    if not symbols:
        yield (whole,) * count
    for number, far in zip(sorted(set(symbols)), _far(symbols, count), strict=True):
        for extent in (whole * multiple for multiple in _MULTIPLES):
            if extent <= far[number]:
                yield tuple(extent if other == number else whole for other in range(count))


def _far(symbols: list[int], count: int) -> Iterator[tuple[int, ...]]:
    """Each extent in turn far larger than the others, which not every operator takes."""
    for number in sorted(set(symbols)):
        uses = symbols.count(number)
        bits = (_MOST_BITS - (len(symbols) - uses) * (_WHOLE.bit_length() - 1)) // uses
        far = 1 << min(bits, _FAR_BITS)
        yield tuple(far if other == number else _WHOLE for other in range(count))


def _odd(count: int) -> Iterator[tuple[int, ...]]:
    """Any extents: parts of groups and of pairs."""
    for start in range(len(_ODD)):
        yield tuple(
            _ODD[(start * (2 * number + 1) + number) % len(_ODD)] for number in range(count)
        )


def _fitting(answers: list[tuple[tuple[int, ...], int]], symbols: list[int]) -> Formula | None:
    """The formula with the fewest symbols that gives every answer."""
    for size in range(len(symbols) + 1):
        for chosen in dict.fromkeys(itertools.combinations(sorted(symbols), size)):
            for formula in (
                _candidate(chosen, answers),
                _shifted(chosen, answers),
                _stepped(chosen, answers),
            ):
                if all(formula.of(extents) == answer for extents, answer in answers):
                    return formula
    return None


def _shifted(symbols: tuple[int, ...], answers: list[tuple[tuple[int, ...], int]]) -> Formula:
    """The one product and constant that may give the answers: so many pointers has a list."""
    extents, answer = answers[0]
    return Formula(symbols, 1, 1, answer - math.prod(extents[symbol] for symbol in symbols))


def _stepped(symbols: tuple[int, ...], answers: list[tuple[tuple[int, ...], int]]) -> Formula:
    """The one product rounded up to a multiple that may give the answers: so is memory padded."""
    step = math.gcd(*(answer for _, answer in answers)) or 1
    plain = _candidate(symbols, [(extents, answer // step) for extents, answer in answers])
    return replace(plain, step=step)


def _candidate(symbols: tuple[int, ...], answers: list[tuple[tuple[int, ...], int]]) -> Formula:
    """The one formula of these symbols that may give the answers."""
    products = [math.prod(extents[symbol] for symbol in symbols) for extents, _ in answers]
    pairs = [(product, answer) for product, (_, answer) in zip(products, answers, strict=True)]
    product, answer = max(pairs)
    if not symbols or answer >= product:
        return Formula(symbols, answer // product, 1)
    # ceil(product / parts) is the answer for these and no others; where some remain, none is known.
    fewest = max(-(-product // max(answer, 1)) for product, answer in pairs)
    larger = [(product - 1) // (answer - 1) for product, answer in pairs if answer > 1]
    most = min(larger, default=0)
    return Formula(symbols, 1, fewest if fewest == most else 1)
