"""`swizzled_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from planq.audit.ops.group.reference import F32, GroupQuantizeProblem, feedback_of, id_of
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array, Arrays


def places(groups: int, nodes: int, devices: int, slices: int) -> Array:
    """Where each group goes."""
    count = groups // (nodes * devices * slices)
    order = np.arange(groups).reshape(nodes, devices, slices, count)
    sent = order.transpose(2, 1, 0, 3).reshape(-1)
    found = np.empty(groups, np.int64)
    found[sent] = np.arange(groups)
    return found


@dataclass(frozen=True, kw_only=True)
class SwizzledQuantizeProblem:
    """What a descriptor says, without the library's types; the fields have the same names."""

    shape: tuple[int, ...]
    input_dtype: str
    output_dtype: str
    group_size: int
    nodes: int
    devices_per_node: int
    pipelining: int = 1
    mode: str = "symmetric"
    error_feedback: float | None = None
    error_dtype: str = "float32"
    sum_dtype: str = "float32"

    @cached_property
    def id(self) -> str:
        """All fields, as one word."""
        return id_of(self, "error_feedback", "error_dtype", "sum_dtype")

    @property
    def float_dtype(self) -> str:
        """The input's type."""
        return self.input_dtype

    @property
    def count(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def in_order(self) -> GroupQuantizeProblem:
        """The same with every group in its place."""
        return GroupQuantizeProblem(
            shape=(self.count,),
            input_dtype=self.input_dtype,
            output_dtype=self.output_dtype,
            group_size=self.group_size,
            mode=self.mode,
        )

    @property
    def places(self) -> Array:
        """Where each group goes."""
        groups = self.count // self.group_size
        return places(groups, self.nodes, self.devices_per_node, self.pipelining)

    def encoded(self, given: Arrays) -> Arrays:
        """Codes, parameters and errors, with every group in its place."""
        x, feedback = given["input"].reshape(-1), feedback_of(self)
        if feedback is None:
            return self.in_order.expected({"input": x})
        error = given["error"].reshape(-1, self.group_size)[self.places].reshape(-1)
        values = replace(self.in_order, input_dtype="float32")
        return feedback.encoded(values, x.astype(F32), error)

    def expected(self, given: Arrays) -> Arrays:
        """Groups of codes, parameters and errors, in the order in which they are sent."""
        groups, moved = self.count // self.group_size, {}
        for name, values in self.encoded(given).items():
            rows = values.reshape(groups, -1) if groups else values
            found = np.empty_like(rows)
            found[self.places] = rows
            moved[name] = found.reshape(values.shape)
        return moved

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Elements of a kind, and what codes before lost."""
        made = {"input": inputs.make(kind, self.shape, self.input_dtype, seed)}
        feedback = feedback_of(self)
        return made if feedback is None else made | {"error": feedback.errors(self.count, seed)}
