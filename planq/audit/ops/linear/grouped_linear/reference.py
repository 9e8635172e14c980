"""`grouped_linear` in NumPy: the layer of each expert on its own rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from planq.audit.ops.linear.float_layers import FACTORS, FloatLayer
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.ops.linear.linear_fp8.reference import Fp8Problem
from planq.audit.ops.linear.linear_mixed.reference import MixedProblem
from planq.audit.ops.linear.linear_w8a8.reference import LinearProblem
from planq.audit.reference.formats import STORAGE, Array, Arrays
from planq.audit.reference.inputs import field, hashed, make

FP8 = ("float8_e4m3fn", "float8_e5m2")
ROWS = ("input", "input_scale")
# All other operands have a first axis of experts, but for blocks, which lie one after another.
SHARED = (*ROWS, "expert_offset", "codebook")


def rows_of_experts(offsets: Array, rows: int) -> Iterator[slice]:
    """The rows of each expert: they end at the largest offset so far, within the input."""
    ends = np.maximum.accumulate(np.clip(offsets.astype(np.int64), 0, rows))
    for first, end in itertools.pairwise(ends):
        yield slice(int(first), int(end))


def offsets(kind: str, rows: int, experts: int, seed: int) -> Array:
    """Where experts begin: in order, with rows of nobody at both ends, or anywhere."""
    words = hashed(seed + 5, experts + 1)
    if kind == "ends":
        return (field(words, 0, 20) % (2 * rows + 9) - rows // 2 - 4).astype(np.int32)
    inside = np.sort(field(words, 0, 20) % (rows + 1))
    if kind == "any":
        inside[0], inside[-1] = 0, rows
    return inside.astype(np.int32)


# Experts after these have the weights of one of them: to make more takes long. No power of two.
DIFFERENT = 17


@dataclass(frozen=True)
class GroupedProblem(FloatLayer):
    """One product of rows with the weights of their experts."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, int, int]  # type: ignore[assignment]
    input_dtype: str = "bfloat16"
    output_dtype: str = "float32"
    code_dtype: str = "uint4"
    weight_scope: tuple[Any, ...] = ("token",)
    weight_mode: str = "symmetric"
    scale_dtype: str = "float32"
    zero_point_dtype: str = "int32"
    nibble_order: str = "low_first"
    bias_dtype: str | None = None
    codebook: str | None = None  # None: it is left out
    block_size: int | None = None
    nested_block_size: int | None = None
    input_scope: tuple[Any, ...] | None = None  # likewise

    @property
    def accumulation(self) -> str:
        """The order of sums, which has no field."""
        return "tensor_sm90" if self.input_dtype in FP8 else "groups_sm90"

    @property
    def has_codes_as_input(self) -> bool:
        """Whether both sides are codes under scales."""
        return self.input_dtype in ("int8", *FP8)

    @property
    def experts(self) -> int:
        """How many there are."""
        return self.weight_shape[0]

    @property
    def columns(self) -> int:
        """n."""
        return self.weight_shape[1]

    def blocks(self, rows: int, columns: int, nested_block_size: int | None) -> FourBitProblem:
        """A layer of some of the weights' rows."""
        return FourBitProblem(
            (rows, self.terms),
            (columns, self.terms),
            self.input_dtype,
            self.output_dtype,
            codebook=self.codebook or "nf4",
            block_size=self.block_size,
            nested_block_size=nested_block_size,
            nibble_order=self.nibble_order,
            accumulation=self.accumulation,
            bias_dtype=self.bias_dtype,
        )

    def layer(self, rows: int) -> MixedProblem | FourBitProblem | Fp8Problem | LinearProblem:
        """The layer of one expert; its statistics are not nested."""
        if self.block_size:
            return self.blocks(rows, self.columns, None)
        if self.has_codes_as_input:
            blocks = self.weight_scope[0] == "block"
            made = LinearProblem if self.input_dtype == "int8" else Fp8Problem
            return made(
                (rows, self.terms),
                self.weight_shape[1:],
                self.output_dtype,
                self.input_dtype,
                self.code_dtype,
                self.input_scope or ("token",),
                self.weight_scope if blocks else ("channel", 0),
                bias_dtype=self.bias_dtype,
            )
        grouped = self.weight_scope[0] == "group"
        return MixedProblem(
            (rows, self.terms),
            self.weight_shape[1:],
            self.input_dtype,
            self.output_dtype,
            self.code_dtype,
            weight_scope=("group", self.weight_scope[1], 1) if grouped else ("channel", 0),
            weight_mode=self.weight_mode,
            nibble_order=self.nibble_order,
            accumulation=self.accumulation,
            bias_dtype=self.bias_dtype,
            scale_dtype=self.scale_dtype,
            zero_point_dtype=self.zero_point_dtype,
        )

    @property
    def whole(self) -> FourBitProblem:
        """The weights of all experts as one, which blocks run through."""
        return self.blocks(1, self.experts * self.columns, self.nested_block_size)

    def of_experts(self, given: Arrays) -> Arrays:
        """The operands with an axis of experts; those of blocks have an absmax for each."""
        if not self.block_size:
            return {name: each for name, each in given.items() if name not in SHARED}
        absmax = self.whole.blocks.absmax(given)[:: self.block_size]
        made = {"weight": given["weight"], "absmax": absmax}
        made = {name: each.reshape(self.experts, -1) for name, each in made.items()}
        return made | {name: given[name] for name in {"bias"} & set(given)}

    def inputs(self, kind: str, seed: int) -> Arrays:
        """Activations, offsets, and the operands of all experts."""
        layer, different = self.layer(1), min(self.experts, DIFFERENT)
        made = [layer.inputs(kind, seed + 1000 * e) for e in range(different)]
        each = [made[e % different] for e in range(self.experts)]
        names = {"bias"} & set(each[0]) if self.block_size else set(each[0]) - set(ROWS)
        of_experts = {name: np.stack([own[name] for own in each]) for name in names}
        if self.block_size:
            of_experts |= self.whole.weights(kind, seed)
        if "tensor_scale" in of_experts:
            of_experts["tensor_scale"] = of_experts["tensor_scale"].reshape(-1)
        if self.has_codes_as_input:
            whole = self.layer(self.rows).inputs(kind, seed)
            rows = {name: whole[name] for name in ROWS}
        else:
            rows = {"input": make(FACTORS[kind], self.input_shape, self.input_dtype, seed)}
        return of_experts | {
            **rows,
            "expert_offset": offsets(kind, self.rows, self.experts, seed),
        }

    def cut(self, values: Arrays, piece: slice) -> Arrays:
        """The operands of some rows, with the offsets that these have alone."""
        made = super().cut(values, piece)
        if "expert_offset" in values:
            ends = np.clip(values["expert_offset"].astype(np.int64), piece.start, piece.stop)
            made["expert_offset"] = (ends - piece.start).astype(np.int32)
        if "input_scale" in values:
            made["input_scale"] = np.ascontiguousarray(values["input_scale"][piece])
        return made

    @np.errstate(all="ignore")
    def expected(self, given: Arrays) -> Arrays:
        """Each expert's layer; 0 for rows of nobody."""
        output = np.zeros(self.output_shape, STORAGE[self.output_dtype])
        pieces = rows_of_experts(given["expert_offset"], self.rows)
        of_experts = self.of_experts(given)
        for expert, piece in enumerate(pieces):
            if piece.stop == piece.start:
                continue
            own = {name: each[expert] for name, each in of_experts.items()}
            own |= {name: given[name] for name in {"codebook"} & set(given)}
            if "tensor_scale" in own:
                own["tensor_scale"] = own["tensor_scale"].reshape(1)
            own |= {name: given[name][piece] for name in set(ROWS) & set(given)}
            layer = self.layer(piece.stop - piece.start)
            output[piece] = layer.expected(own)["output"]
        return {"output": output}
