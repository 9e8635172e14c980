"""`linear_gguf_merged` in NumPy: `linear_gguf` for each weight, side by side."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.reference import LinearGgufProblem
from planq.audit.ops.linear.float_layers import FloatLayer, addends
from planq.audit.ops.linear.products import named
from planq.audit.reference.formats import Arrays


def row_bytes(kind: str, terms: int) -> int:
    """Of a row of so many elements."""
    return terms // FORMATS[kind].elements * FORMATS[kind].nbytes


@dataclass(frozen=True)
class LinearGgufMergedProblem(FloatLayer):
    """Linear layers of one input, whose weights are blocks."""

    input_shape: tuple[int, ...]
    weight_shapes: tuple[tuple[int, int], ...]
    types: tuple[str, ...]
    input_dtype: str = "int8"
    output_dtype: str = "float32"
    bias_dtype: str | None = None
    residual_dtype: str | None = None

    @cached_property
    def id(self) -> str:
        """All fields, as one word: weights as `37*q5_0+16*q8_0`."""
        rest = replace(cast("Any", self), weight_shapes=None, types=None)
        pairs = zip(self.weight_shapes, self.types, strict=True)
        weights = "+".join(f"{shape[0]}*{kind}" for shape, kind in pairs)
        return f"{named(rest)},weights={weights}"

    @property
    def columns(self) -> int:
        """Of all weights."""
        return sum(shape[0] for shape in self.weight_shapes)

    @property
    def pieces(self) -> list[slice]:
        """Each weight's columns."""
        ends = list(itertools.accumulate(shape[0] for shape in self.weight_shapes))
        return [slice(*ends_of) for ends_of in zip([0, *ends[:-1]], ends, strict=True)]

    def alone(self, weight: int) -> LinearGgufProblem:
        """The layer of one weight."""
        return LinearGgufProblem(
            self.input_shape,
            (self.weight_shapes[weight][0], self.terms),
            self.types[weight],
            self.input_dtype,
            self.output_dtype,
            self.bias_dtype,
            self.residual_dtype,
        )

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, as stored when they are alone."""
        return self.alone(0).cut(values, piece)

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Those of layers alone, of which all but the weights are the first one's."""
        made: Arrays = {}
        for weight in range(len(self.types)):
            own = self.alone(weight).inputs(kind, seed + 7 * weight)
            made[f"weight[{weight}]"] = own["weight"]
            if weight == 0:
                made |= {name: own[name] for name in ("input", "input_scale") if name in own}
        return made | addends(self, kind, seed + 2000)

    def given_to(self, weight: int, given: Arrays) -> Arrays:
        """The operands of the layer of one weight."""
        names = {"input", "input_scale"} & set(given)
        own = {name: given[name] for name in names} | {"weight": given[f"weight[{weight}]"]}
        for name in {"bias", "residual"} & set(given):
            own[name] = given[name][..., self.pieces[weight]]
        return own

    def expected(self, given: Arrays) -> Arrays:
        """The outputs of the layers, side by side."""
        outputs = [
            self.alone(weight).expected(self.given_to(weight, given))["output"]
            for weight in range(len(self.types))
        ]
        return {"output": np.concatenate(outputs, axis=-1)}
