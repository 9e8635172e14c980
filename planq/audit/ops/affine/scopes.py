"""Scopes in plain values: the shape of their parameters, and which parameter an element has.

A scope is `("tensor",)`, `("channel", axis)`, `("token",)`, `("group", size, axis)`,
`("block", rows, columns)` or `("pair",)`, whose rows have parameters as tokens do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planq.audit.reference.formats import Array

ScopeSpec = tuple[Any, ...]


def divisors(shape: tuple[int, ...], scope: ScopeSpec) -> dict[int, int]:
    """The axes that parameters have, each with the number of elements that share one along it."""
    kind, rank = scope[0], len(shape)
    if kind == "tensor":
        return {}
    if kind == "channel":
        return {scope[1] % rank: 1}
    axes = dict.fromkeys(range(rank - 1 if kind in ("token", "pair") else rank), 1)
    if kind == "group":
        axes[scope[2] % rank] = scope[1]
    if kind == "block":
        axes[rank - 2], axes[rank - 1] = scope[1:]
    return axes


def parameter_shape(shape: tuple[int, ...], scope: ScopeSpec) -> tuple[int, ...]:
    """The shape of the scales and zero points; one scale of a tensor is a vector of one."""
    if scope[0] == "tensor":
        return (1,)
    return tuple(-(-shape[axis] // n) for axis, n in divisors(shape, scope).items())


def expand(parameters: Array, shape: tuple[int, ...], scope: ScopeSpec) -> Array:
    """The parameter of every element."""
    axes = divisors(shape, scope)
    aligned = [-(-extent // axes[axis]) if axis in axes else 1 for axis, extent in enumerate(shape)]
    values = parameters.reshape(aligned)
    for axis, n in axes.items():
        values = values.take(np.arange(shape[axis]) // n, axis=axis) if n > 1 else values
    return np.broadcast_to(values, shape)
