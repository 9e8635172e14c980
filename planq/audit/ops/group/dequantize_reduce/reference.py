"""`dequantize_reduce` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planq.audit.ops.group.reference import (
    BITS,
    F32,
    GroupDequantizeProblem,
    GroupQuantizeProblem,
    feedback_of,
    id_of,
)
from planq.audit.reference.formats import Array, Arrays, narrowed


@dataclass(frozen=True, kw_only=True)
class DequantizeReduceProblem:
    """What a descriptor says, without the library's types; the fields have the same names."""

    shape: tuple[int, ...]
    ranks: int
    input_dtype: str
    output_dtype: str
    group_size: int
    output_group_size: int | None = None
    mode: str = "symmetric"
    mean: bool = False
    sum_dtype: str = "float32"
    error_feedback: float | None = None
    error_dtype: str = "float32"

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return id_of(self, "error_feedback", "error_dtype")

    @property
    def float_dtype(self) -> str:
        """Sums are float32, whatever becomes of them."""
        return "float32"

    @property
    def makes_codes(self) -> bool:
        """Whether sums become codes."""
        return self.output_dtype == self.input_dtype

    @property
    def of_rank(self) -> GroupDequantizeProblem:
        """What one rank sent."""
        return GroupDequantizeProblem(
            shape=self.shape,
            input_dtype=self.input_dtype,
            output_dtype="float32",
            group_size=self.group_size,
            mode=self.mode,
        )

    @property
    def of_sum(self) -> GroupQuantizeProblem:
        """What becomes of the sum."""
        return GroupQuantizeProblem(
            shape=self.shape,
            input_dtype="float32",
            output_dtype=self.output_dtype,
            group_size=self.output_group_size or self.group_size,
            mode=self.mode,
        )

    @property
    def count(self) -> int:
        """Elements of a rank."""
        return math.prod(self.shape)

    def halved(self, values: Array) -> Array:
        """Rounded to float16, where sums are."""
        return narrowed(values, "float16").astype(F32) if self.sum_dtype == "float16" else values

    def summed(self, given: Arrays) -> Array:
        """The sum of all ranks, flat."""
        rank, total = self.of_rank, np.zeros(self.count, F32)
        for codes, parameters in zip(given["input"], given["parameters"], strict=True):
            values = rank.expected({"input": codes, "parameters": parameters})["output"]
            total = self.halved(total + self.halved(values.reshape(-1)))
        return self.halved(total / F32(self.ranks)) if self.mean else total

    def expected(self, given: Arrays) -> Arrays:
        """Codes and parameters, or elements; errors."""
        feedback = feedback_of(self)
        with np.errstate(all="ignore"):
            total = self.summed(given)
        if not self.makes_codes:
            return {"output": narrowed(total, self.output_dtype).reshape(self.shape)}
        if feedback is None:
            made = self.of_sum.expected({"input": total.reshape(self.shape)})
        else:
            made = feedback.encoded(
                replace(self.of_sum, shape=(self.count,)), total, given["error"]
            )
            if self.output_dtype == "int8":
                made["output"] = made["output"].reshape(self.shape)
        made["output_parameters"] = made.pop("parameters")
        return made

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Bytes of every value; parameters, special ones of some groups unless `ordinary`."""
        each: list[Any] = [self.of_rank.inputs("", seed + 100 * rank) for rank in range(self.ranks)]
        parameters = np.stack([rank["parameters"] for rank in each])
        if kind == "ordinary":
            ordinary = np.isfinite(parameters) & (np.abs(parameters) < 100)
            parameters = np.where(ordinary, parameters, F32(0.5))
        stored = [rank["input"].reshape(-1) for rank in each]
        width = self.count if BITS[self.input_dtype] == 8 else -(-self.count // 2)
        codes = np.stack(stored).reshape(self.ranks, width)
        feedback = feedback_of(self)
        errors = {} if feedback is None else {"error": feedback.errors(self.count, seed)}
        return {"input": codes, "parameters": parameters, **errors}
