"""`linear_llm_int8` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.affine.reference import fma
from planq.audit.ops.linear.float_sums import chain
from planq.audit.reference.formats import Array, Arrays, narrowed, unpack_nibbles


@dataclass(frozen=True)
class Problem:
    """What a descriptor says, without the library's types."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    output_dtype: str = "float32"
    input_dtype: str = "int8"
    weight_dtype: str = "int8"
    input_scope: tuple[Any, ...] = ("token",)
    weight_scope: tuple[Any, ...] = ("channel", 0)
    scale_dtype: str | None = None
    bias_dtype: str | None = None
    residual_dtype: str | None = None
    capacity: int = 8
    outlier_dtype: str = "float16"
    accumulation: str = "sequential"

    @property
    def float_dtype(self) -> str:
        """The type of the results, which decides C."""
        return self.output_dtype

    @property
    def compute(self) -> Any:
        """The compute type C."""
        return np.float64 if self.output_dtype == "float64" else np.float32

    @property
    def stored_scale(self) -> str:
        """The dtype of the stored scales."""
        return self.scale_dtype or np.dtype(self.compute).name

    @property
    def output_shape(self) -> tuple[int, ...]:
        """A row for each of the input, a column for each row of the weight."""
        return (*self.input_shape[:-1], self.weight_shape[0])

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        shapes = (self.input_shape, self.weight_shape)
        parts = ["*".join("x".join(map(str, shape)) for shape in shapes)]
        default = {item.name: item.default for item in fields(self)}
        for name, value in asdict(self).items():
            if default[name] is not MISSING and value != default[name]:
                shown = ".".join(map(str, value)) if isinstance(value, tuple) else value
                parts.append(f"{name}={shown}")
        return ",".join(parts)


def codes_of(stored: Array, dtype: str, terms: int) -> Array:
    """Codes as integers."""
    if dtype == "int8":
        return stored.astype(np.int64)
    patterns = unpack_nibbles(stored, terms, "low_first").astype(np.int64)
    return np.where(patterns > 7, patterns - 16, patterns)


def sequential(t: Array, values: Array, codes: Array) -> Array:
    """t, with one listed column after another by fma; rows of both are the places of the list."""
    C = t.dtype.type
    for place in range(codes.shape[1]):
        t = fma(values[..., place, None].astype(C), codes[:, place].astype(C), t)
    return t


def tensor_sm90(t: Array, values: Array, codes: Array) -> Array:
    """t, with the listed columns as one chain of a tensor core's steps."""
    rows = math.prod(t.shape[:-1])
    flat = values.reshape(rows, values.shape[-1])
    made = chain(t.reshape(rows, len(codes)), flat, codes.astype(values.dtype))
    return made.reshape(t.shape)


LISTED = {"sequential": sequential, "tensor_sm90": tensor_sm90}


def linear_llm_int8(problem: Problem, given: Arrays) -> Arrays:
    """The output as stored."""
    C, terms = problem.compute, problem.input_shape[-1]
    a = codes_of(given["input"], problem.input_dtype, terms)
    w = codes_of(given["weight"], problem.weight_dtype, terms)
    sums = (a @ w.T).astype(np.int32)
    row = given["input_scale"].astype(C)
    row = row[..., None] if problem.input_scope == ("token",) else row
    listed = min(max(int(given["count"][0]), 0), problem.capacity)
    with np.errstate(all="ignore"):
        t = sums.astype(C) * row
        codes = np.zeros((len(w), listed), np.int64)
        for place, column in enumerate(given["index"][:listed].tolist()):
            if 0 <= column < terms:
                codes[:, place] = w[:, column]
        t = LISTED[problem.accumulation](t, given["outlier"][..., :listed], codes)
        t = t * given["weight_scale"].astype(C)
        if problem.bias_dtype:
            t = t + given["bias"].astype(C)
        if problem.residual_dtype:
            t = t + given["residual"].astype(C)
    return {"output": narrowed(np.asarray(t), problem.output_dtype)}
