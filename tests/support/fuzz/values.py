"""Values that are hard to get right, in the place of some of a case's own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import planq
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays, Float
from planq.audit.reference.inputs import bell, field, hashed, rounded
from planq.audit.runner import places
from support.fuzz.problems import Draw

# Operands whose values have an order or a sign that hostile ones would not have.
MEANT = ("codebook", "history")
NUMBERS = (0.0, -0.0, 1e-310, 1e-45, 1e-38, 1e-8, 0.5, 1.0, 1.5, -1.0, 1e8, 1e39, 1e300, math.inf)


def least(fmt: Float) -> float:
    """The smallest subnormal."""
    return fmt.smallest_normal * 2.0 ** (1 - fmt.precision)


def tiny(words: Array, fmt: Float) -> Array:
    """A few multiples of the smallest subnormal: ranges whose steps are subnormal or 0."""
    return rounded((field(words, 0, 7) - 64.0) * least(fmt), fmt)


def faint(words: Array, fmt: Float) -> Array:
    """Bell-shaped values about the smallest normal number, each thousandfold as wide as the last.

    The seed says how wide: steps of their ranges are subnormal, and so may their reciprocals be.
    """
    power = int(field(words[:1], 50, 6)[0]) - fmt.precision - 8 if words.size else 0
    return rounded(bell(words) * fmt.smallest_normal * 2.0 ** min(power, 6), fmt)


def narrow(words: Array, fmt: Float) -> Array:
    """Neighbouring numbers far from zero: ranges of a few units in the last place."""
    base = rounded(bell(words[:1]) + 2, fmt).astype(np.float64)
    step = 2.0 ** (1 - fmt.precision) * np.maximum(np.abs(base), 1)
    return rounded(base + field(words, 0, 3) * step, fmt)


def cancelling(words: Array, fmt: Float) -> Array:
    """Each value is followed by its negative, and a small one now and then: sums that vanish."""
    values = np.repeat(inputs.huge(words[: (words.size + 1) // 2], fmt).astype(np.float64), 2)
    signed = values[: words.size] * np.resize([2.0**-4, -(2.0**-4)], words.size)
    return rounded(np.where(field(words, 9, 4) == 0, bell(words), signed), fmt)


def steep(words: Array, fmt: Float) -> Array:
    """One huge value among tiny ones."""
    far = field(words, 0, 6) == 0
    return rounded(np.where(far, np.sign(bell(words)) * fmt.largest, bell(words) * least(fmt)), fmt)


OWN: tuple[Callable[[Array, Float], Array], ...] = (tiny, faint, faint, narrow, cancelling, steep)
KINDS = (*inputs.KINDS.values(), *OWN)


def sprinkled(draw: Draw, values: Array, fmt: Float) -> Array:
    """The values with a few special ones among them."""
    special = (np.nan, np.inf, -np.inf, -0.0, fmt.largest, -fmt.largest, least(fmt), -least(fmt))
    flat = values.reshape(-1).copy()
    for _ in range(draw.randint(1, 3) if flat.size else 0):
        with np.errstate(all="ignore"):
            flat[draw.randrange(flat.size)] = fmt.dtype.type(draw.choice(special))
    return flat.reshape(values.shape)


def hostile(draw: Draw, desc: planq.Descriptor, given: Arrays) -> Arrays:
    """The inputs with some floating tensors full of other values."""
    made = dict(given)
    for name, spec in desc.operands().items():
        fmt = FLOATS.get(spec.dtype.value)
        if spec.role == "output" or fmt is None or any(word in name for word in MEANT):
            continue
        if spec.kind is planq.OperandKind.SCALAR:
            if draw.chance(0.05):
                made[name] = np.array(draw.choice(NUMBERS), made[name].dtype)
            continue
        first = "input" in name or "gradient" in name
        for place, shape in places(spec):
            values = made[place].view(fmt.dtype).reshape(shape)
            if draw.chance(0.6 if first else 0.12):
                words = hashed(draw.randrange(2**31), values.size)
                kind = draw.choice(OWN if draw.chance(0.5) else KINDS)
                values = kind(words, fmt).reshape(shape)
            if draw.chance(0.15 if first else 0.02):
                values = sprinkled(draw, values, fmt)
            made[place] = values.view(made[place].dtype)
    return made
