"""`activation` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planq.audit.ops.affine.quantized_output import Codes, results, text_of
from planq.audit.ops.elementwise.elements import of_each, shape_text
from planq.audit.reference.formats import Array, Arrays


@dataclass(frozen=True)
class Problem(Codes):
    """A function of the elements of a tensor, alone or as a gate."""

    shape: tuple[int, ...]
    function: str
    gated: bool
    layout: str
    input_dtype: str
    output_dtype: str

    @property
    def is_packed(self) -> bool:
        """Whether the input holds both sides."""
        return self.gated and self.layout != "separate"

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of the input."""
        return (*self.shape[:-1], self.shape[-1] * (2 if self.is_packed else 1))

    @cached_property
    def id(self) -> str:
        """A stable name."""
        gate = f"{self.function},{self.layout if self.gated else 'alone'}"
        types = f"{self.input_dtype}_{self.output_dtype}"
        return f"{shape_text(self.shape)},{gate},{types}{text_of(self)}"


def relu(x: Array) -> Array:
    """The number above 0, else +0; a NaN stays."""
    return np.where(x > 0, x, np.where(np.isnan(x), x, np.float32(0)))


def function_of(name: str, x: Array) -> Array:
    """In float32."""
    if name == "relu":
        return relu(x)
    if name == "relu_squared":
        return relu(x) * relu(x)
    return of_each(name, x)


def sides(problem: Problem, given: Arrays) -> tuple[Array, Array | None]:
    """The gate and the up side, in float32."""
    x = given["input"].astype(np.float32)
    if not problem.gated:
        return x, None
    if problem.layout == "separate":
        return x, given["up"].astype(np.float32)
    if problem.layout == "interleaved":
        return x[..., 0::2], x[..., 1::2]
    first, second = x[..., : problem.shape[-1]], x[..., problem.shape[-1] :]
    return (first, second) if problem.layout == "halves" else (second, first)


def activation(problem: Problem, given: Arrays) -> Arrays:
    """The operator's output."""
    with np.errstate(all="ignore"):
        gate, up = sides(problem, given)
        found = function_of(problem.function, np.ascontiguousarray(gate))
        if up is not None:
            found = found * up
        return results(problem, found, given)
