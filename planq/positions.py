"""Tables of cosines and sines for `rotary_embedding`, as NumPy arrays.

Every bit of a table is specified, and the same on every machine: frequencies are made in decimal
arithmetic and become integers, angles are exact products of these with positions, and cosines and
sines are those of docs/numerics/functions.md. No table depends on the C library.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planq import _core
from planq.errors import ArgumentError

__all__ = ["cos_sin"]

Frequencies: TypeAlias = "list[Decimal]"


class _Numbers(dict[str, Decimal]):
    """What a scaling is given, by name.

    Attributes:
        pairs: Of what each pair of columns has a number of its own: these, by name.
    """

    pairs: dict[str, Frequencies]


_DIGITS: Final = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN)
_PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_ROWS: Final = 4096  # positions at a time
_MOST_POSITIONS: Final = 2**32

# What each kind of scaling has to have, and what it may have.
_KEYS: Final[dict[str, tuple[set[str], set[str]]]] = {
    "default": (set(), set()),
    "linear": ({"factor"}, set()),
    "ntk": ({"factor"}, set()),
    "dynamic": ({"factor", "original_max_position_embeddings"}, set()),
    "yarn": (
        {"factor", "original_max_position_embeddings"},
        {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
    ),
    "llama3": (
        {
            *("factor", "low_freq_factor", "high_freq_factor"),
            "original_max_position_embeddings",
        },
        set(),
    ),
    "longrope": (
        {"short_factor", "long_factor", "original_max_position_embeddings"},
        {"factor", "attention_factor"},
    ),
}
_OF_PAIRS: Final[tuple[str, ...]] = ("short_factor", "long_factor")


def cos_sin(
    base: float, dim: int, max_position: int, scaling: Mapping[str, Any] | None = None
) -> npt.NDArray[np.float32]:
    """Cosines and sines of positions 0 to ``max_position - 1``.

    When to use:
        Once for a model: the table is the operand ``cos_sin`` of ``rotary_embedding``.

    Formula:
        Pair ``i`` of ``dim / 2`` has the frequency ``w = base^(-2 i / dim)`` in radians a position,
        which ``scaling`` changes. ``F = round(w / 2 pi * 2^64)``, to the nearest integer, ties to
        even; everything before is computed with 60 decimal digits. The angle of position ``p`` is
        ``floor((p * F mod 2^64) / 2^32)``, in units of ``2^-32`` turns. The table has ``cos_turn``
        and ``sin_turn`` of it; with YaRN and longrope ``fl(factor * cosine)``, where ``factor`` is
        the attention factor, rounded once to float32.

        ``scaling`` is what a checkpoint's configuration has under ``rope_parameters`` or
        ``rope_scaling``, by transformers' names. ``rope_type`` (or ``type``) is one of

        - ``default``: nothing changes.
        - ``linear``: ``w / factor``.
        - ``ntk``: ``base * factor^(dim / (dim - 2))`` in the place of ``base``.
        - ``dynamic``: the same for a sequence of ``max_position`` positions, with ``factor * n /
          original_max_position_embeddings - (factor - 1)``, where ``n`` is ``max_position``, or
          ``original_max_position_embeddings`` if that is larger.
        - ``yarn``: ``w / factor`` for slow pairs, ``w`` for fast ones, a linear ramp in between.
          The bounds are the pairs that turn ``beta_fast`` (32) and ``beta_slow`` (1) times within
          ``original_max_position_embeddings``, rounded outwards with ``truncate`` (True). The
          attention factor is ``attention_factor``, or ``0.1 * ln(factor) + 1``, or with ``mscale``
          and ``mscale_all_dim`` the quotient of two such.
        - ``llama3``: ``w / factor`` for waves longer than ``original_max_position_embeddings /
          low_freq_factor``, ``w`` for those shorter than ``... / high_freq_factor``, and a mean of
          both in between, weighted by how often they turn.
        - ``longrope``: ``w`` of pair ``i`` over ``long_factor[i]`` if ``max_position`` is above
          ``original_max_position_embeddings``, else over ``short_factor[i]``. An engine that
          takes short sequences by the short factors makes a table of either kind. The attention
          factor is ``attention_factor``, or ``sqrt(1 + ln(factor) /
          ln(original_max_position_embeddings))``, or 1 for a ``factor`` up to 1. Phi-3 has no
          ``factor``: there it is ``max_position_embeddings`` of the configuration over
          ``original_max_position_embeddings``, both of which stand beside the scaling.

    Args:
        base: The base of the frequencies (``rope_theta``), above 0.
        dim: How many columns of a head are turned: an even number, 2 or more.
        max_position: How many positions there are, up to 2^32.
        scaling: How the frequencies are changed. None: not at all.

    Returns:
        ``(max_position, dim)`` in float32: the cosines of a position, then its sines.

    Raises:
        ArgumentError: A number out of its range, another ``rope_type``, a key that it does not
            have, or one that it lacks; factors of pairs that are not ``dim / 2`` numbers.

    Source:
        transformers ``modeling_rope_utils``, which computes frequencies and angles in float32.
    """
    count = _integer("dim", dim, 2, 2**20)
    if count % 2:
        raise ArgumentError("dim", "an even number", str(dim))
    rows = _integer("max_position", max_position, 0, _MOST_POSITIONS)
    theta = _number("base", base)
    kind, numbers = _read(scaling, theta)
    with decimal.localcontext(_DIGITS):
        waves, factor = _SCALINGS[kind](theta, count, rows, numbers)
        steps = [int((wave / (2 * _PI) * 2**64).to_integral_value()) % 2**64 for wave in waves]
    return _table(np.array(steps, np.uint64), rows, np.float32(factor))


def _table(steps: npt.NDArray[np.uint64], rows: int, factor: np.float32) -> npt.NDArray[np.float32]:
    half = len(steps)
    table = np.empty((rows, 2 * half), np.float32)
    for first in range(0, rows, _ROWS):
        position = np.arange(first, min(first + _ROWS, rows), dtype=np.uint64)
        phases = (position[:, None] * steps >> np.uint64(32)).astype(np.uint32).reshape(-1)
        sines, cosines = np.empty(phases.size, np.float32), np.empty(phases.size, np.float32)
        _core.sines_and_cosines(phases, sines, cosines)
        part = table[first : first + len(position)]
        part[:, :half] = cosines.reshape(-1, half) * factor
        part[:, half:] = sines.reshape(-1, half) * factor
    return table


# --- Frequencies ---------------------------------------------------------------------------------


def _waves(base: Decimal, dim: int) -> Frequencies:
    return [base ** (Decimal(-2 * i) / dim) for i in range(dim // 2)]


def _default(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    del rows, given
    return _waves(base, dim), Decimal(1)


def _linear(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    del rows
    return [wave / given["factor"] for wave in _waves(base, dim)], Decimal(1)


def _stretched(base: Decimal, dim: int, by: Decimal) -> tuple[Frequencies, Decimal]:
    if dim == 2:
        raise ArgumentError("dim", "4 or more where the base is scaled", "2")
    return _waves(base * by ** (Decimal(dim) / (dim - 2)), dim), Decimal(1)


def _ntk(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    del rows
    return _stretched(base, dim, given["factor"])


def _dynamic(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    factor, original = given["factor"], given["original_max_position_embeddings"]
    length = max(Decimal(rows), original)
    return _stretched(base, dim, factor * length / original - (factor - 1))


def _yarn(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    del rows
    factor, original = given["factor"], given["original_max_position_embeddings"]
    if base <= 1:
        raise ArgumentError("base", "a number above 1 for yarn", str(base))

    def pair_that_turns(times: Decimal) -> Decimal:
        return dim * (original / (times * 2 * _PI)).ln() / (2 * base.ln())

    low = pair_that_turns(given.get("beta_fast", Decimal(32)))
    high = pair_that_turns(given.get("beta_slow", Decimal(1)))
    if given.get("truncate", Decimal(1)):
        low = low.to_integral_value(decimal.ROUND_FLOOR)
        high = high.to_integral_value(decimal.ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(dim - 1))
    if low == high:
        high += Decimal("0.001")
    waves = []
    for i, wave in enumerate(_waves(base, dim)):
        slow = min(max((i - low) / (high - low), Decimal(0)), Decimal(1))
        waves.append(wave / factor * slow + wave * (1 - slow))
    return waves, _attention_factor(factor, given)


def _attention_factor(factor: Decimal, given: _Numbers) -> Decimal:
    def scale(by: Decimal) -> Decimal:
        return Decimal(1) if factor <= 1 else by * factor.ln() / 10 + 1

    if "attention_factor" in given:
        return given["attention_factor"]
    if given.get("mscale") and given.get("mscale_all_dim"):
        return scale(given["mscale"]) / scale(given["mscale_all_dim"])
    return scale(Decimal(1))


def _llama3(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    del rows
    factor, original = given["factor"], given["original_max_position_embeddings"]
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    if high <= low:
        raise ArgumentError("high_freq_factor", f"a number above low_freq_factor, {low}", str(high))
    waves = []
    for wave in _waves(base, dim):
        turns = original * wave / (2 * _PI)
        fast = min(max((turns - low) / (high - low), Decimal(0)), Decimal(1))
        waves.append(wave / factor * (1 - fast) + wave * fast)
    return waves, Decimal(1)


def _longrope(base: Decimal, dim: int, rows: int, given: _Numbers) -> tuple[Frequencies, Decimal]:
    original = given["original_max_position_embeddings"]
    for name in _OF_PAIRS:
        if len(given.pairs[name]) != dim // 2:
            count = len(given.pairs[name])
            raise ArgumentError(name, f"{dim // 2} numbers, one for each pair", str(count))
    factors = given.pairs["long_factor" if rows > original else "short_factor"]
    waves = [wave / by for wave, by in zip(_waves(base, dim), factors, strict=True)]
    return waves, _longrope_factor(original, given)


def _longrope_factor(original: Decimal, given: _Numbers) -> Decimal:
    if "attention_factor" in given:
        return given["attention_factor"]
    if "factor" not in given:
        raise ArgumentError("factor", "a number for longrope, or attention_factor", "nothing")
    if given["factor"] <= 1:
        return Decimal(1)
    if original <= 1:
        raise ArgumentError("original_max_position_embeddings", "a number above 1", str(original))
    return (1 + given["factor"].ln() / original.ln()).sqrt()


_SCALINGS: Final[
    dict[str, Callable[[Decimal, int, int, _Numbers], tuple[Frequencies, Decimal]]]
] = {
    "default": _default,
    "linear": _linear,
    "ntk": _ntk,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}


# --- Arguments -----------------------------------------------------------------------------------


def _integer(name: str, value: int, lowest: int, highest: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(name, "an integer", type(value).__name__) from None
    if lowest <= number <= highest:
        return number
    raise ArgumentError(name, f"{lowest} to {highest}", str(value))


def _number(name: str, value: Any) -> Decimal:
    """A number above 0, exactly as it is given."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentError(name, "a number", type(value).__name__) from None
    if not 0 < number < float("inf"):
        raise ArgumentError(name, "a finite number above 0", str(value))
    return Decimal(number)


def _list(name: str, values: Any) -> Frequencies:
    """Numbers above 0, in the order of the pairs."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ArgumentError(name, "a list of numbers", type(values).__name__)
    return [_number(f"{name}[{i}]", value) for i, value in enumerate(values)]


def _read(scaling: Mapping[str, Any] | None, base: Decimal) -> tuple[str, _Numbers]:
    """The kind of scaling and its numbers; what is None is not there."""
    given = {name: value for name, value in (scaling or {}).items() if value is not None}
    kind = given.pop("rope_type", given.pop("type", "default"))
    if kind not in _KEYS:
        raise ArgumentError("rope_type", f"one of {', '.join(_KEYS)}", str(kind))
    theta = given.pop("rope_theta", None)
    if theta is not None and _number("rope_theta", theta) != base:
        raise ArgumentError("rope_theta", f"the base, {base}", str(theta))
    needed, more = _KEYS[kind]
    for name in sorted(needed - given.keys()):
        raise ArgumentError(name, f"a number for {kind}", "nothing")
    for name in sorted(given.keys() - needed - more):
        raise ArgumentError("scaling", f"keys that {kind} has", name)
    truncate = given.pop("truncate", None)
    listed = [name for name in _OF_PAIRS if name in given]
    pairs = {name: _list(name, given.pop(name)) for name in listed}
    numbers = _Numbers({name: _number(name, value) for name, value in given.items()})
    numbers.pairs = pairs
    if truncate is not None:
        numbers["truncate"] = Decimal(bool(truncate))
    return kind, numbers
