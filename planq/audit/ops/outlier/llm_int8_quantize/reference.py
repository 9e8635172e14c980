"""`llm_int8_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, fields
from functools import cached_property

import numpy as np

from planq.audit.reference.formats import FLOATS, Array, Arrays, canonical

F32 = np.float32


@dataclass(frozen=True)
class Problem:
    """What a descriptor says, without the library's types."""

    shape: tuple[int, ...]
    input_dtype: str = "float16"
    threshold: float = 6.0
    capacity: int = 8
    quotient: str = "divide"
    nonfinite: str = "propagate"

    @property
    def float_dtype(self) -> str:
        """What the scales are computed in."""
        return "float32"

    @cached_property
    def id(self) -> str:
        """A stable name: every field that differs from its default."""
        parts = ["x".join(map(str, self.shape))]
        default = {item.name: item.default for item in fields(self)}
        for name, value in asdict(self).items():
            if default[name] is not MISSING and value != default[name]:
                parts.append(f"{name}={value}")
        return ",".join(parts)


def scales(problem: Problem, inliers: Array) -> tuple[Array, Array]:
    """The scale and the largest magnitude of each row; what is no inlier is 0."""
    largest = np.abs(inliers).max(axis=1, initial=0)
    made = np.maximum(largest / F32(127), np.finfo(F32).smallest_normal)
    return np.where(largest == 0, F32(1), made).astype(F32), largest


def row_codes(problem: Problem, x: Array, scale: Array, largest: Array) -> Array:
    """Codes of all elements, as if no column were listed."""
    s = scale[:, None]
    if problem.quotient == "divide":
        t = x / s
    elif problem.quotient == "reciprocal":
        t = x * (F32(1) / s)
    else:
        t = x * np.where(largest == 0, F32(1), F32(127) / largest)[:, None]
    return np.asarray(np.clip(np.rint(np.where(np.isnan(t), 0, t)), -127, 127).astype(np.int8))


def llm_int8_quantize(problem: Problem, given: Array) -> Arrays:
    """All outputs."""
    stored = given.reshape(-1, problem.shape[-1]) if given.size else given
    columns, rows = problem.shape[-1], int(np.prod(problem.shape[:-1], dtype=np.int64))
    stored = stored.reshape(rows, columns)
    x = stored.astype(F32)
    finite = np.isfinite(x)
    far = (np.abs(x.astype(np.float64)) >= problem.threshold) if problem.threshold else False
    outliers = finite & far
    found = np.flatnonzero(outliers.any(axis=0))
    index = np.full(problem.capacity, -1, np.int32)
    listed = found[: problem.capacity]
    index[: listed.size] = listed
    with np.errstate(all="ignore"):
        scale, largest = scales(problem, np.where(finite & ~outliers, x, F32(0)))
        codes = row_codes(problem, x, scale, largest)
    fmt = FLOATS[problem.input_dtype]
    values = np.clip(np.where(np.isnan(x), F32(0), x), -fmt.largest, fmt.largest)
    kept = np.where(finite, stored, values.astype(fmt.dtype))
    if problem.nonfinite == "propagate":
        lost: Array = ~np.asarray(finite.all(axis=1))
        scale, codes = np.where(lost, F32(np.nan), scale), np.where(lost[:, None], 0, codes)
        kept = np.where(lost[:, None], fmt.dtype.type(0), kept)
    codes[:, listed] = 0
    outlier = np.zeros((rows, problem.capacity), fmt.dtype)
    outlier[:, : listed.size] = kept[:, listed]
    leading = problem.shape[:-1]
    return {
        "output": codes.astype(np.int8).reshape(problem.shape),
        "scale": canonical(scale.astype(F32), "float32").reshape(leading),
        "index": index,
        "count": np.array([found.size], np.int64),
        "outlier": outlier.reshape(*leading, problem.capacity),
    }
