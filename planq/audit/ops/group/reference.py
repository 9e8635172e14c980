"""The group operators in NumPy, written from the numeric contract alone.

Nothing here is shared with the library. Every operation is one IEEE rounding in float32.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.reference import inputs
from planq.audit.reference.formats import (
    FLOATS,
    Array,
    Arrays,
    narrowed,
    pack_nibbles,
    unpack_nibbles,
)

F32 = np.float32
LARGEST = F32(FLOATS["float32"].largest)
BITS = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4}


@dataclass(frozen=True, kw_only=True)
class GroupProblem:
    """What a descriptor says, without the library's types; the fields have the same names."""

    shape: tuple[int, ...]
    input_dtype: str
    output_dtype: str
    group_size: int
    mode: str = "symmetric"
    convention: str = "deepspeed"

    @property
    def float_dtype(self) -> str:
        """The type T of the elements."""
        raise NotImplementedError

    @property
    def code_dtype(self) -> str:
        """That of the codes."""
        raise NotImplementedError

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return ",".join(str(value).replace(" ", "") for value in asdict(self).values())

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def groups(self) -> int:
        """Groups, the last of which may be shorter."""
        return -(-self.count // self.group_size)

    @property
    def intx(self) -> bool:
        """Whether each operation is rounded to T."""
        return self.convention == "deepspeed_intx"

    @property
    def asymmetric(self) -> bool:
        """Whether there is a second parameter."""
        return self.mode == "asymmetric"

    @property
    def half(self) -> Any:
        """2^(b-1)."""
        return F32(2 ** (BITS[self.code_dtype] - 1))

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The smallest and the largest code."""
        half = self.half
        return (F32(0), 2 * half - 1) if self.intx else (-half, half - 1)

    def group_of(self) -> Array:
        """The number of each flat element's group."""
        return np.arange(self.count) // self.group_size

    def rounded(self, values: Array) -> Array:
        """float32 values rounded to T, still float32."""
        return narrowed(values.astype(F32), self.float_dtype).astype(F32)

    def packed(self, codes: Array) -> Array:
        """Flat codes as they are stored."""
        if BITS[self.code_dtype] == 4:
            return pack_nibbles(codes.astype(np.int64), "high_first")
        return codes.astype(self.code_dtype).reshape(self.shape)

    def unpacked(self, stored: Array) -> Array:
        """Flat codes as numbers."""
        if BITS[self.code_dtype] == 8:
            return stored.reshape(-1).astype(F32)
        patterns = unpack_nibbles(stored, self.count, "high_first").astype(np.int64)
        signed = np.where(patterns > 7, patterns - 16, patterns)
        return np.asarray(patterns if self.intx else signed).astype(F32)

    def stored(self, first: Array, second: Array) -> Arrays:
        """The parameters of every group by operand name."""
        if self.intx:
            names = {"scale": first, "minimum": second}
            return {name: narrowed(each, self.float_dtype) for name, each in names.items()}
        columns = [first, second] if self.asymmetric else [first]
        return {"parameters": narrowed(np.stack(columns, axis=1).astype(F32), "float32")}

    def loaded(self, given: Arrays) -> tuple[Array, Array]:
        """The same back as float32."""
        if self.intx:
            return given["scale"].astype(F32), given["minimum"].astype(F32)
        parameters = given["parameters"]
        zeros = np.zeros(self.groups, F32)
        return parameters[:, 0], parameters[:, 1] if self.asymmetric else zeros

    def any_parameters(self, seed: int) -> Arrays:
        """Parameters near to what groups have, or special ones."""
        words = inputs.hashed(seed + 7, 2 * self.groups).reshape(2, -1)
        first = np.ldexp(1 + inputs.field(words[0], 0, 20) * 2.0**-20, -(words[0] % 9).astype(int))
        special = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, 1e-39, 1e30, -2.5])
        odd = inputs.field(words[0], 30, 3) == 0
        first = np.where(odd, special[inputs.field(words[0], 40, 3)], first)
        second = inputs.bell(words[1])
        with np.errstate(over="ignore"):
            return self.stored(first.astype(F32), second.astype(F32))


@dataclass(frozen=True, kw_only=True)
class GroupQuantizeProblem(GroupProblem):
    """`group_quantize`."""

    parameters_given: bool = False

    @property
    def float_dtype(self) -> str:
        """The input's type."""
        return self.input_dtype

    @property
    def code_dtype(self) -> str:
        """The output's type."""
        return self.output_dtype

    def measured(self, x: Array) -> tuple[Array, Array, Array]:
        """Factor, offset and first parameter of every group."""
        starts = np.arange(0, self.count, self.group_size)
        finite = np.minimum.reduceat(np.isfinite(x), starts)
        x = np.where(np.isfinite(x), x, F32(0))
        low, high = np.minimum.reduceat(x, starts) + F32(0), np.maximum.reduceat(x, starts) + F32(0)
        offset: Array = np.zeros_like(low)
        reach: Any
        factor: Array
        if self.intx:
            reach, offset = self.rounded(high - low), low
            finite &= np.isfinite(reach)
            factor = self.rounded(self.bounds[1] / reach)
            factor = np.minimum(factor, F32(FLOATS[self.float_dtype].largest))
        else:
            reach = np.maximum(high, -low)
            if self.asymmetric:
                reach, offset = high / 2 - low / 2, high / 2 + low / 2
            factor = np.minimum(self.half / reach, LARGEST)
        factor = np.where(reach == 0, F32(1), factor).astype(F32)
        first = factor if self.intx else F32(1) / factor
        return (
            np.where(finite, factor, F32(0)),
            np.where(finite, offset, F32(0)),
            np.where(finite, first, F32(np.nan)),
        )

    def given(self, operands: Arrays) -> tuple[Array, Array]:
        """Factor and offset of every group."""
        first, second = self.loaded(operands)
        return (first, second) if self.intx else (np.minimum(F32(1) / first, LARGEST), second)

    def expected(self, given: Arrays) -> Arrays:
        """Codes and parameters."""
        x = given["input"].reshape(-1).astype(F32)
        made: Arrays = {}
        with np.errstate(all="ignore"):
            if self.count == 0:
                factor = offset = first = np.zeros(0, F32)
            elif self.parameters_given:
                factor, offset = self.given(given)
            else:
                factor, offset, first = self.measured(x)
            if not self.parameters_given:
                made = self.stored(first, offset)
            group = self.group_of()
            y = x - offset[group]
            y = self.rounded(self.rounded(y) * factor[group]) if self.intx else y * factor[group]
            codes = np.rint(np.clip(np.where(np.isnan(y), F32(0), y), *self.bounds))
        return {"output": self.packed(codes), **made}

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Elements of a kind, and parameters where they are given."""
        made = {"input": inputs.make(kind, self.shape, self.input_dtype, seed)}
        return made | (self.any_parameters(seed) if self.parameters_given else {})


@dataclass(frozen=True, kw_only=True)
class GroupDequantizeProblem(GroupProblem):
    """`group_dequantize`."""

    @property
    def float_dtype(self) -> str:
        """The output's type."""
        return self.output_dtype

    @property
    def code_dtype(self) -> str:
        """The input's type."""
        return self.input_dtype

    def expected(self, given: Arrays) -> Arrays:
        """Elements."""
        q, group = self.unpacked(given["input"]), self.group_of()
        first, second = self.loaded(given)
        with np.errstate(all="ignore"):
            if self.intx:
                y = self.rounded(q / first[group]) + second[group]
            else:
                y = q * first[group]
                if self.asymmetric:
                    y = y + second[group]
        return {"output": narrowed(y, self.output_dtype).reshape(self.shape)}

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Bytes of every value, and parameters."""
        del kind
        shape = self.shape if BITS[self.code_dtype] == 8 else (-(-self.count // 2),)
        codes = inputs.field(inputs.hashed(seed, math.prod(shape)), 0, 8).astype(np.uint8)
        stored = codes.view(np.int8) if self.code_dtype == "int8" else codes
        return {"input": stored.reshape(shape), **self.any_parameters(seed)}


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback:
    """What codes lose of flat values is kept, and added to the values that come next."""

    beta: float
    error_dtype: str
    sum_dtype: str

    def halved(self, values: Array) -> Array:
        """Rounded to float16, where DeepSpeed's bits are wanted."""
        return narrowed(values, "float16").astype(F32) if self.sum_dtype == "float16" else values

    def encoded(self, values: GroupQuantizeProblem, x: Array, error: Array) -> Arrays:
        """Codes and parameters of float32 values, and the errors that they leave."""
        kept = F32(self.beta)
        error = error.astype(F32)
        with np.errstate(all="ignore"):
            wanted = self.halved(x + error)
            made = values.expected({"input": wanted})
            back = GroupDequantizeProblem(
                shape=values.shape,
                input_dtype=values.output_dtype,
                output_dtype="float32",
                group_size=values.group_size,
                mode=values.mode,
            )
            codes = {"input": made["output"], "parameters": made["parameters"]}
            decoded = self.halved(back.expected(codes)["output"])
            left = kept * error + (F32(1) - kept) * (wanted - decoded)
        return made | {"error": narrowed(left, self.error_dtype)}

    def errors(self, count: int, seed: int) -> Array:
        """What codes before may have lost: ordinary numbers, and sometimes special ones."""
        kind = ("finite", "normal", "zeros", "subnormal", "mixed")[seed % 5]
        return inputs.make(kind, (count,), self.error_dtype, seed + 1000)


FEEDBACK = (
    {"error_feedback": 0.0, "error_dtype": "float32", "sum_dtype": "float32"},
    {"error_feedback": 0.3, "error_dtype": "float16", "sum_dtype": "float16"},
    {"error_feedback": 0.9, "error_dtype": "float32", "sum_dtype": "float16"},
    {"error_feedback": 0.75, "error_dtype": "float16", "sum_dtype": "float32"},
)


def feedback_of(problem: Any) -> ErrorFeedback | None:
    """That of a problem whose operator may have it."""
    if problem.error_feedback is None:
        return None
    return ErrorFeedback(
        beta=problem.error_feedback,
        error_dtype=problem.error_dtype,
        sum_dtype=problem.sum_dtype,
    )


def id_of(problem: Any, *optional: str) -> str:
    """All fields as one word; those of error feedback only where there is some."""
    fields = asdict(problem)
    if fields["error_feedback"] is None:
        fields = {name: value for name, value in fields.items() if name not in optional}
    return ",".join(str(value).replace(" ", "") for value in fields.values())
