"""Compares what a timed launch wrote with references, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import planq
from harness.core.cases import Case, shape_field
from harness.core.workload import Launch, Operands, aligned_bytes, storage_of, tensors_of
from harness.formulas.formula import formula

MOST_ELEMENTS: Final = 1 << 22  # of larger inputs a part is compared
MOST_DRAWN: Final = 1 << 20  # likewise, of those whose reference draws random numbers
BY_SEGMENT: Final = ("scale", "zero_point", "absmax", "minimum", "maximum")
WHOLE: Final = (
    "column_scale",
    "bias",
    "codebook",
    "nested_codebook",
    "nested_offset",
    "tensor_scale",
)
MOST_IN_TORCH: Final = 1 << 24  # of more, as of a whole that is sorted, the host alone is quick
# Outputs of a product that torch computes again, on a GPU or a processor, and the host backend.
MOST_OUTPUTS: Final = {"cuda": 1 << 24, "cpu": 1 << 20}
HOST_ROWS, HOST_COLUMNS = 4, 4096
BY_ROW: Final = ("input", "input_scale", "input_zero_point", "input_sum", "outlier")
BY_COLUMN: Final = ("weight", "weight_scale", "weight_zero_point", "weight_sum", "bias")
BY_BOTH: Final = ("output", "residual")
# Operators whose results depend on all of the tensor, or lie elsewhere in its parts.
TOGETHER: Final = (
    "estimate_quantiles",
    "square_sum",
    "norm",
    "transform_layout",
    "extract_outliers",
    "vectorwise_quantize",
    "vectorwise_dequantize",
    "row_column_absmax",
    "double_quantize",
    "spmm_coo",
    "llm_int8_quantize",
    "pack_weight_4bit",
    "embedding",
    "rotary_embedding",
    "kv_cache_append",
    "rotary_kv_cache_append",
    "attention",
    "merge_attention_states",
    "moe_permute",
    "moe_unpermute",
    "percentile_clip",
    "group_quantize",
    "group_dequantize",
    "swizzled_quantize",
    "dequantize_reduce",
)
BY_BLOCK: Final = ("absmax1", "absmax2", "absmax3")
VECTOR_COLUMNS: Final = 4096  # a vector is compared as a matrix of this width

Reference = Callable[[Any, Operands], Operands | None]


@dataclass(frozen=True, slots=True)
class Check:
    """How many elements were computed again, and how many bytes of all outputs differ."""

    elements: int
    differing: int
    reference: str


def host_reference(desc: Any, inputs: Operands) -> Operands | None:
    """The outputs that the host backend computes."""
    operands = dict(inputs)
    for name, spec in desc.operands().items():
        if spec.role == "output" and not spec.optional:
            operands[name] = torch.empty(spec.shape, dtype=getattr(torch, storage_of(spec.storage)))
        elif spec.role == "inout" and name in inputs:
            operands[name] = _each(torch.clone, inputs[name])
    args = {info.name: info.args for info in planq.operators()}[desc.operator]
    plan = planq.Plan.select(planq.HOST, desc)
    size = plan.workspace_size()
    plan.run(planq.HOST, aligned_bytes(size, "cpu") if size else None, args(**operands))
    return operands


def torch_reference(desc: Any, inputs: Operands) -> Operands | None:
    """The outputs that torch's own operations compute; None where there is no formula."""
    whole = getattr(desc, "weight_shape", ()) if desc.operator in TOGETHER else ()
    if math.prod(getattr(desc, "shape", whole)) > MOST_IN_TORCH:
        return None
    try:
        compute = formula(desc)
    except ValueError:
        return None
    written = [name for name, spec in desc.operands().items() if spec.role != "input"]
    return dict(zip(written, compute(inputs), strict=True))


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows or columns of a case, seen as a matrix."""

    case: Case
    axis: int
    places: torch.Tensor

    @property
    def shape(self) -> list[int]:
        """The logical shape."""
        rows, columns = matrix_shape(self.case)
        return [rows, len(self.places)] if self.axis else [len(self.places), columns]

    def of(self, name: str, operand: Any) -> Any:
        """The part of an operand."""
        if name == "offset":  # the draws of the first element that is left
            return operand + int(self.places[0]) * matrix_shape(self.case)[1] // 4
        if not isinstance(operand, torch.Tensor) or name in WHOLE or operand.numel() == 1:
            return operand
        if name == "input" and getattr(self.case.descriptor, "table_rows", None):
            return operand  # any row of it may be asked for
        if name in BY_SEGMENT:
            return self._of_segments(operand)
        count, columns = matrix_shape(self.case)
        if self.axis == 0 and operand.shape == (columns,):  # weights, which all rows share
            return operand
        return operand.reshape(count, -1).index_select(self.axis, self.places)

    def _of_segments(self, parameters: torch.Tensor) -> torch.Tensor:
        scope = self.case.scope
        if scope is None or scope.kind == "tensor":
            return parameters
        if scope.kind == "channel" and scope.axis != self.axis:
            return parameters
        places = self.places
        if scope.kind == "block":
            places = torch.unique(places // scope.rows)
        chosen: torch.Tensor = parameters.index_select(0, places)
        return chosen


class BlockPart:
    """Stretches of the flat tensor, of whole rows, blocks and blocks of statistics."""

    def __init__(self, case: Case, device: torch.device) -> None:
        desc = case.descriptor
        rows, columns = matrix_shape(case)
        stretch = math.lcm(columns, desc.block_size * (desc.nested_block_size or 1))
        self.stretches = rows * columns // stretch
        self.places = _spread(self.stretches, MOST_ELEMENTS // stretch, device)
        self.shape = [len(self.places) * stretch // columns, columns]

    def of(self, name: str, operand: torch.Tensor) -> torch.Tensor:
        """The part of an operand."""
        if name in WHOLE:
            return operand
        return operand.reshape(self.stretches, -1).index_select(0, self.places)


class Whole:
    """All of a case, whose results depend on all of it."""

    def __init__(self, case: Case) -> None:
        self.shape = list(case.extents)

    def of(self, name: str, operand: torch.Tensor) -> torch.Tensor:
        """The operand."""
        return operand


class ListPart:
    """Of each tensor some whole blocks, the first and the last among them, as a tensor.

    All of them where blocks depend on each other.
    """

    def __init__(self, case: Case) -> None:
        desc = case.descriptor
        together = desc.trust_ratio != "none" or desc.state_format == "static8"
        self.block = desc.block_size
        self.counts = [math.prod(shape) for shape in desc.shapes]
        most = max(2, MOST_ELEMENTS // (self.block * len(self.counts)))
        blocks = [-(-count // self.block) for count in self.counts]
        self.places = [_spread(n, n if together else most, torch.device("cpu")) for n in blocks]

    @property
    def shape(self) -> list[int]:
        """The number of all elements."""
        return [sum(shape[0] for shape in self.fields["shapes"])]

    @property
    def fields(self) -> dict[str, list[list[int]]]:
        """The descriptor's fields that are another."""
        pairs = zip(self.places, self.counts, strict=True)
        return {"shapes": [[len(self._elements(places, count))] for places, count in pairs]}

    def of(self, name: str, operand: Any) -> Any:
        """The part of an operand: of blocks, or of their elements."""
        if not isinstance(operand, list):
            return operand
        found = []
        for tensor, places, count in zip(operand, self.places, self.counts, strict=True):
            chosen = places if name in BY_BLOCK else self._elements(places, count)
            found.append(tensor.flatten().index_select(0, chosen.to(tensor.device)))
        return found

    def _elements(self, blocks: torch.Tensor, count: int) -> torch.Tensor:
        places = (blocks[:, None] * self.block + torch.arange(self.block)).flatten()
        chosen: torch.Tensor = places[places < count]
        return chosen


class WeightPart:
    """The last columns of a weight that is reordered: whole tiles, whose bytes lie in a row."""

    def __init__(self, case: Case) -> None:
        rows, self.all = case.descriptor.shape
        self.columns = min(self.all, max(64, MOST_ELEMENTS // rows // 64 * 64))
        self.shape = [rows, self.columns]

    def of(self, name: str, operand: torch.Tensor) -> torch.Tensor:
        """The part of an operand."""
        rows, columns = operand.shape
        width = columns * self.columns // self.all
        if name == "input":
            return operand[:, columns - width :].contiguous()
        return operand.flatten()[rows * (columns - width) :].view(rows, width)


class ProductPart:
    """Some rows of a product, and some of its columns. What torch computes stays on its device."""

    def __init__(self, case: Case, reference: Reference, device: torch.device) -> None:
        assert case.product is not None
        self.product = case.product
        self.on_host = reference is host_reference
        rows, columns = HOST_ROWS, HOST_COLUMNS
        if not self.on_host:
            rows = max(1, MOST_OUTPUTS[device.type] // self.product.n)
        if not self.on_host or _weight_is_one(case.descriptor):
            columns = self.product.n
        self.rows = _spread(self.product.m, rows, device)
        self.columns = _spread(self.product.n, columns, device)

    @property
    def shape(self) -> list[int]:
        """The extents of the output."""
        return [len(self.rows), len(self.columns)]

    @property
    def fields(self) -> dict[str, list[int]]:
        """The descriptor's fields that are another."""
        return {
            "input_shape": self.product.shape("input", len(self.rows)),
            "weight_shape": self.product.shape("weight", len(self.columns)),
        }

    def of(self, name: str, operand: torch.Tensor) -> torch.Tensor:
        """The part of an operand."""
        if name == "expert_offset":  # as many of the rows that are left as lie before it
            return torch.searchsorted(self.rows, operand.long()).to(operand.dtype)
        if name in BY_COLUMN:
            axis = 1 if self.product.experts else self.product.row_axis(name)
            return self._along(operand, axis, self.columns, self.product.n)
        if name not in BY_ROW and name not in BY_BOTH:
            return operand
        found = self._along(operand, self.product.row_axis(name), self.rows, self.product.m)
        return self._along(found, 1, self.columns, self.product.n) if name in BY_BOTH else found

    @staticmethod
    def _along(operand: torch.Tensor, axis: int, places: torch.Tensor, extent: int) -> torch.Tensor:
        """All of it where nothing is left out, and where all rows share one parameter."""
        if len(places) == extent or operand.shape[axis] != extent:
            return operand
        return operand.index_select(axis, places)


def _weight_is_one(desc: Any) -> bool:
    """Whether rows of the weight share bytes, tiles or scales with others."""
    flat = getattr(desc, "block_size", None) is not None
    tiled = getattr(desc, "weight_layout", "row_major") != "row_major"
    scope = getattr(desc, "weight_scope", None)
    return flat or tiled or (scope is not None and scope.kind == "block")


def matrix_shape(case: Case) -> tuple[int, int]:
    """Rows and columns; a vector counts as a matrix of whole groups if it can."""
    width = max(VECTOR_COLUMNS, getattr(case.descriptor, "group_size", None) or 0)
    if len(case.descriptor.shape) == 1 and case.columns % width == 0:
        return case.columns // width, width
    return case.rows, case.columns


def _spread(extent: int, count: int, device: torch.device) -> torch.Tensor:
    """So many places of an axis, even numbers apart, the first and the last among them."""
    places = torch.linspace(0, extent - 1, min(extent, count), dtype=torch.float64, device=device)
    chosen: torch.Tensor = torch.unique(places.round().long())
    return chosen


def part_of(case: Case, x: torch.Tensor) -> Part | BlockPart | ListPart | WeightPart | Whole:
    """What is compared of a case with these elements."""
    desc, scope = case.descriptor, case.scope
    if hasattr(desc, "shapes"):
        return ListPart(case)
    if desc.operator == "reorder_mixed_dtype_weight":
        return WeightPart(case)
    nests = desc.operator == "blockwise_quantize" and desc.nested_block_size is not None
    if nests or desc.operator in TOGETHER:
        return Whole(case)
    if hasattr(desc, "block_size"):
        return BlockPart(case, x.device)
    rows, columns = matrix_shape(case)
    if case.stochastic:  # one stretch, whose draws are those of a tensor with another offset
        first = max(0, rows - MOST_DRAWN // columns)
        return Part(case, 0, torch.arange(first, rows, device=x.device))
    if rows * columns <= MOST_ELEMENTS:
        return Part(case, 0, torch.arange(rows, device=x.device))
    count = MOST_ELEMENTS // columns
    if scope is not None and scope.kind == "block":
        blocks = _spread(rows // scope.rows, max(1, count // scope.rows), x.device)
        inside = torch.arange(scope.rows, device=x.device)
        return Part(case, 0, (blocks[:, None] * scope.rows + inside).flatten())
    if _measures_ranges(desc):
        return _part_with_range(case, scope, x, count)
    return Part(case, 0, _spread(rows, count, x.device))


def _measures_ranges(desc: Any) -> bool:
    dynamic = desc.operator in ("dynamic_range_quantize", "min_max")
    measured = desc.operator == "codebook_quantize" and not desc.normalized
    return dynamic or measured or bool(getattr(desc, "dynamic", False))


def _part_with_range(case: Case, scope: planq.Scope | None, x: torch.Tensor, count: int) -> Part:
    """A part whose segments have the ranges that they have in the whole."""
    if scope is not None and scope.kind == "channel" and scope.axis == 1:
        return Part(case, 1, _spread(case.columns, MOST_ELEMENTS // case.rows, x.device))
    rows, columns = matrix_shape(case)
    places = _spread(rows, count, x.device)
    if scope is None or scope.kind == "tensor":
        x = x.view(rows, columns)
        extremes = torch.stack([x.amin(1).argmin(), x.amax(1).argmax()])
        places = torch.unique(torch.cat([places, extremes]))
    return Part(case, 0, places)


AnyPart = Part | BlockPart | ListPart | WeightPart | Whole | ProductPart


def check(
    case: Case, operands: Operands, references: Sequence[Reference], again: Launch | None = None
) -> Check:
    """Computes the case again, or a part of it, and compares every byte.

    Args:
        case: What was timed.
        operands: Of the last of its launches.
        references: What else computes it.
        again: That launch, where operands are updated in place: it is made once more, and is to do
            with what it finds what the references do with a copy.
    """
    parts: list[tuple[AnyPart, Sequence[Reference]]]
    x = tensors_of(operands[case.first.name])[0]
    if case.product is None:
        parts = [(part_of(case, x), references)]
    else:
        parts = [(ProductPart(case, one, x.device), [one]) for one in references]
    found = [_check_part(case, operands, *part, again) for part in parts]
    used = [one.reference for one in found if one.reference]
    if not used:
        raise RuntimeError("there is no reference to compare with")
    most = max(one.elements for one in found if one.reference)
    return Check(most, sum(one.differing for one in found), ", ".join(used))


def _check_part(
    case: Case,
    operands: Operands,
    part: AnyPart,
    references: Sequence[Reference],
    again: Launch | None,
) -> Check:
    moved = _on_host if not isinstance(part, ProductPart) or part.on_host else _as_it_is
    desc = planq.Descriptor.from_dict({**case.descriptor.to_dict(), **_fields_of(part, case)})
    roles = {name: spec.role for name, spec in desc.operands().items() if name in operands}
    inputs: Operands = {}
    for name, operand in operands.items():
        if roles[name] != "output":
            kept = _each(moved, part.of(name, operand))
            inputs[name] = _each(torch.clone, kept) if roles[name] == "inout" else kept
            if isinstance(kept, torch.Tensor):
                inputs[name] = inputs[name].reshape(desc.operands()[name].shape)
    if again is not None and "inout" in roles.values():
        again()
    written = [name for name, role in roles.items() if role != "input"]
    chosen = {name: _each(moved, part.of(name, operands[name])) for name in written}
    differing, used = 0, []
    for reference in references:
        expected = reference(desc, dict(inputs))
        if expected is None:
            continue
        used.append(reference.__name__)
        for name in written:
            pairs = zip(tensors_of(chosen[name]), tensors_of(expected[name]), strict=True)
            differing += sum(int((_bytes(got) != _bytes(right)).sum()) for got, right in pairs)
    return Check(math.prod(part.shape), differing, ", ".join(used))


def _fields_of(part: AnyPart, case: Case) -> dict[str, Any]:
    """The descriptor's fields that are another for a part."""
    if isinstance(part, ProductPart | ListPart):
        return part.fields
    return {shape_field(case.descriptor.operator): part.shape}


def _each(function: Callable[[torch.Tensor], torch.Tensor], operand: Any) -> Any:
    """Applied to every tensor of an operand; numbers stay."""
    if isinstance(operand, list):
        return [function(one) for one in operand]
    return function(operand) if isinstance(operand, torch.Tensor) else operand


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
