"""Seeded operands of the codebook operators: the same bits on every machine and NumPy version."""

from __future__ import annotations

import math

import numpy as np

from reference import inputs
from reference.affine import Arrays
from reference.codebook import Operand, Problem, QuantizeProblem, table
from reference.formats import FLOATS, Array
from reference.inputs import bell, field, hashed, rounded, unsigned

SPECIAL = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, 1e-39, 1e30, -2.5])


def codebook(entries: int, words: Array) -> Array:
    """Ascending values about zero; every third codebook has equal neighbours and runs of zeros."""
    values = np.sort(bell(words[:entries]) / 4)
    if int(words[0]) % 3 == 0:
        values = np.rint(values * 8) / 8
    return values.astype(np.float32)


def magnitudes(parameters: str, words: Array, dtype: str) -> Array:
    """Given absmax: powers of two, any positive numbers, or some that are none."""
    powers = np.ldexp(1.0, field(words, 0, 4) - 8)
    ordinary = powers * (1 + field(words, 4, 20) * 2.0**-20)
    special = np.where(field(words, 30, 1) == 0, SPECIAL[field(words, 31, 3)], ordinary)
    chosen = {"powers": powers, "ordinary": ordinary, "special": special}[parameters]
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


def near(problem: QuantizeProblem, given: Arrays, words: Array) -> Array:
    """Elements on and beside thresholds; the first one of a block is its absmax, if measured."""
    fmt = FLOATS[problem.input_dtype]
    limits = thresholds(problem, given)
    index = np.arange(len(words))
    size = getattr(problem, "block_size", max(len(words), 1))
    scale = scales(problem, given, index // size)
    chosen = limits[(words % np.uint64(len(limits))).astype(np.int64)].astype(np.float64)
    on = rounded(chosen * scale, fmt)
    steps = (field(words, 40, 3) - 3).astype(unsigned(fmt))
    beside = (on.view(unsigned(fmt)) + steps).view(fmt.dtype)
    with np.errstate(invalid="ignore"):
        values = np.where(np.isfinite(beside), beside, on)
    largest = rounded(scale * np.where(index // size % 2 == 0, 1, -1), fmt)
    return np.where((index % size == 0) & (not problem.absmax_given), largest, values)


def elements(problem: QuantizeProblem, data: str, seed: int, given: Arrays) -> Array:
    """The input of an operator that makes codes."""
    if data != "near":
        return inputs.make(data, problem.shape, problem.input_dtype, seed)
    return near(problem, given, hashed(seed, math.prod(problem.shape))).reshape(problem.shape)


def operand(name: str, spec: Operand, parameters: str, words: Array) -> Array:
    """An operand that does not depend on the others."""
    if name == "nested_codebook":
        return table("dynamic")
    if name == "codebook":
        return codebook(spec.shape[0], words)
    if name in ("seed", "offset"):
        return words[:1].view(np.int64).reshape(())
    if spec.dtype == "uint8":
        return field(words, 0, 8).astype(np.uint8).reshape(spec.shape)
    return magnitudes(parameters, words, spec.dtype).reshape(spec.shape)


def make(problem: Problem, data: str, parameters: str, seed: int) -> Arrays:
    """All input operands as stored.

    `data` is `near`, which puts elements on and beside the thresholds, or a kind of
    `reference.inputs`; `parameters` is `powers`, `ordinary` or `special`.
    """
    made: Arrays = {}
    for number, (name, spec) in enumerate(problem.inputs.items()):
        if name != "input" or not isinstance(problem, QuantizeProblem):
            words = hashed(seed * 16 + number + 1, math.prod(spec.shape))
            made[name] = operand(name, spec, parameters, words)
    if isinstance(problem, QuantizeProblem):
        made["input"] = elements(problem, data, seed, made)
    return {name: made[name] for name in problem.inputs}
