"""`swizzled_quantize` in NumPy, written from the numeric contract alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from ops.group.reference import GroupQuantizeProblem
from reference import inputs
from reference.formats import Array, Arrays


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

    @property
    def id(self) -> str:
        """All fields, as one word."""
        return ",".join(str(value).replace(" ", "") for value in asdict(self).values())

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

    def expected(self, given: Arrays) -> Arrays:
        """Groups of codes and parameters, in the order in which they are sent."""
        made = self.in_order.expected({"input": given["input"].reshape(-1)})
        groups = self.count // self.group_size
        to = places(groups, self.nodes, self.devices_per_node, self.pipelining)
        moved = {}
        for name, values in made.items():
            rows = values.reshape(groups, -1) if groups else values
            found = np.empty_like(rows)
            found[to] = rows
            moved[name] = found.reshape(values.shape)
        return moved

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Elements of a kind."""
        return {"input": inputs.make(kind, self.shape, self.input_dtype, seed)}
