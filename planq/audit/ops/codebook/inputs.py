"""Seeded operands of the codebook operators: the same bits on every machine and NumPy version."""

from __future__ import annotations

import math

import numpy as np

from planq.audit.ops.codebook.reference import Operand, Problem, QuantizeProblem, table
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays
from planq.audit.reference.inputs import bell, field, hashed, rounded

SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, 1e-39, 1e30, -2.5])


def codebook(entries: int, words: Array, both_zeros: bool) -> Array:
    """Ascending values about zero; every third codebook has equal neighbours and runs of zeros.

    With `both_zeros` all of them, and the signs of their zeros are in no order.
    """
    values = np.sort(bell(words[:entries]) / 4)
    if both_zeros or int(words[0]) % 3 == 0:
        values = np.rint(values * 8) / 8
    if both_zeros:
        middle = entries // 2
        low = np.arange(entries) < middle
        values = np.where(np.where(low, values < 0, values > 0), values, 0.0)
        signs = np.where(field(words[:entries], 60, 1) == 0, -1.0, 1.0)
        values = np.where(values == 0, np.copysign(0.0, signs), values)
        values[middle - 1 : middle + 1] = 0.0, -0.0
    return values.astype(np.float32)


def magnitudes(parameters: str, words: Array, dtype: str) -> Array:
    """Given absmax: powers of two, any positive numbers, or some that are none."""
    powers = np.ldexp(1.0, field(words, 0, 4) - 8)
    ordinary = powers * (1 + field(words, 4, 20) * 2.0**-20)
    special = np.where(field(words, 30, 1) == 0, SPECIAL[field(words, 31, 3)], ordinary)
    chosen = {"ordinary": ordinary, "special": special}.get(parameters, powers)
    with np.errstate(over="ignore"):
        return chosen.astype(dtype)


def thresholds(problem: QuantizeProblem, given: Arrays) -> Array:
    """Where the codes of a problem change."""
    limits = problem.searched(given).thresholds
    if problem.codebook == "fp4":
        return np.concatenate([-limits, limits, np.zeros(1, np.float32)])
    return limits


def scales(problem: QuantizeProblem, given: Arrays, block: Array) -> Array:
    """What the quotients of each block are multiplied by, in float64."""
    if getattr(problem, "normalized", False):
        return np.ones(len(block))
    if problem.absmax_given:
        known = given["absmax"].astype(np.float64)[block]
        return np.where(np.isfinite(known), known, 1.0)
    return np.ldexp(1.0, block * 7 % 13 - 6)


def at_thresholds(problem: QuantizeProblem, given: Arrays, words: Array, data: str) -> Array:
    """Elements on and beside thresholds; the first one of a block is its absmax, if measured.

    `near` draws a threshold and up to four steps from it; `thresholds` has each in turn with the
    number below and the one above.
    """
    fmt = FLOATS[problem.input_dtype]
    limits = thresholds(problem, given)
    index = np.arange(len(words))
    size = getattr(problem, "block_size", max(len(words), 1))
    scale = scales(problem, given, index // size)
    first = (index % size == 0) & (not problem.absmax_given)
    turn = np.cumsum(~first) - 1
    chosen = turn // 3 if data == "thresholds" else words
    on = rounded(limits[(chosen % len(limits)).astype(np.int64)].astype(np.float64) * scale, fmt)
    values = in_turns(on, turn) if data == "thresholds" else steps_from(on, words)
    largest = rounded(scale * np.where(index // size % 2 == 0, 1, -1), fmt)
    return np.where(first, largest, values)


def steps_from(on: Array, words: Array) -> Array:
    """Numbers up to four steps of their bit patterns away; finite ones."""
    raw = np.dtype(f"u{on.dtype.itemsize}")
    beside = (on.view(raw) + (field(words, 40, 3) - 3).astype(raw)).view(on.dtype)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(beside), beside, on)


def in_turns(on: Array, turn: Array) -> Array:
    """Each third number as it is, the others one step down or up."""
    end = np.where(turn % 3 == 1, -np.inf, np.inf).astype(on.dtype)
    return np.where(turn % 3 == 0, on, np.nextafter(on, end))


def elements(problem: QuantizeProblem, data: str, seed: int, given: Arrays) -> Array:
    """The input of an operator that makes codes."""
    if data not in ("near", "thresholds"):
        return inputs.make(data, problem.shape, problem.input_dtype, seed)
    words = hashed(seed, math.prod(problem.shape))
    return at_thresholds(problem, given, words, data).reshape(problem.shape)


def operand(name: str, spec: Operand, parameters: str, words: Array) -> Array:
    """An operand that does not depend on the others."""
    if name == "nested_codebook":
        return table("dynamic")
    if name == "codebook":
        return codebook(spec.shape[0], words, parameters == "zeros")
    if name in ("seed", "offset"):
        return words[:1].view(np.int64).reshape(())
    if spec.dtype == "uint8":
        return field(words, 0, 8).astype(np.uint8).reshape(spec.shape)
    return magnitudes(parameters, words, spec.dtype).reshape(spec.shape)


def make(problem: Problem, data: str, parameters: str, seed: int) -> Arrays:
    """All input operands as stored.

    `data` is `near` or `thresholds`, which put elements on and beside the thresholds, or a kind of
    `planq.audit.reference.inputs`. `parameters` is `powers`, `ordinary`, `special`, or `zeros`:
    powers, and codebooks with both zeros.
    """
    made: Arrays = {}
    for number, (name, spec) in enumerate(problem.inputs.items()):
        if name != "input" or not isinstance(problem, QuantizeProblem):
            words = hashed(seed * 16 + number + 1, math.prod(spec.shape))
            made[name] = operand(name, spec, parameters, words)
    if isinstance(problem, QuantizeProblem):
        made["input"] = elements(problem, data, seed, made)
    return {name: made[name] for name in problem.inputs}
