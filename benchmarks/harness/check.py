"""Compares what a timed launch wrote with the reference, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

import planq
from harness.cases import Case
from harness.formula import formula
from harness.workload import Tensors, aligned_bytes

MOST_ELEMENTS: Final = 1 << 22  # of larger inputs a part is compared
Reference = Callable[[Any, torch.Tensor], Tensors]


@dataclass(frozen=True, slots=True)
class Check:
    """How many elements were quantized again, and how many bytes of all outputs differ."""

    elements: int
    differing: int
    reference: str


def host_reference(desc: Any, x: torch.Tensor) -> Tensors:
    """The outputs that the host backend computes."""
    operands: Tensors = {"input": x}
    for name, spec in desc.operands().items():
        if spec.role == "output":
            storage = "uint8" if spec.storage.startswith("float8") else spec.storage
            operands[name] = torch.empty(spec.shape, dtype=getattr(torch, storage))
    args = {info.name: info.args for info in planq.operators()}[desc.operator]
    plan = planq.Plan.select(planq.HOST, desc)
    size = plan.workspace_size()
    plan.run(planq.HOST, aligned_bytes(size, "cpu") if size else None, args(**operands))
    return operands


def torch_reference(desc: Any, x: torch.Tensor) -> Tensors:
    """The outputs that torch's own operations compute."""
    results = formula(desc)(x)
    names = [name for name, spec in desc.operands().items() if spec.role == "output"]
    return dict(zip(names, results, strict=True))


@dataclass(frozen=True, slots=True)
class _Part:
    """Some rows or columns of a matrix whose scales are those of the whole."""

    axis: int
    places: torch.Tensor

    def of(self, case: Case, name: str, tensor: torch.Tensor) -> torch.Tensor:
        scope, places = case.descriptor.scope, self.places
        if name in ("scale", "zero_point"):
            if scope.kind == "tensor":
                return tensor
            if scope.kind == "block":
                places = torch.unique(places // scope.rows)
        chosen: torch.Tensor = tensor.index_select(min(self.axis, tensor.dim() - 1), places)
        return chosen


def _spread(extent: int, count: int, device: torch.device) -> torch.Tensor:
    """So many places of an axis, even numbers apart, the first and the last among them."""
    places = torch.linspace(0, extent - 1, min(extent, count), dtype=torch.float64, device=device)
    chosen: torch.Tensor = torch.unique(places.round().long())
    return chosen


def _part_of(case: Case, x: torch.Tensor) -> _Part:
    scope = case.descriptor.scope
    rows, columns = case.rows, case.columns
    if x.numel() <= MOST_ELEMENTS:
        return _Part(0, torch.arange(rows, device=x.device))
    if scope.kind == "channel" and scope.axis == 1:
        return _Part(1, _spread(columns, MOST_ELEMENTS // rows, x.device))
    if scope.kind == "block":
        bands = _spread(-(-rows // scope.rows), MOST_ELEMENTS // (columns * scope.rows), x.device)
        places = bands[:, None] * scope.rows + torch.arange(scope.rows, device=x.device)
        return _Part(0, places[places < rows])
    places = _spread(rows, MOST_ELEMENTS // columns, x.device)
    if scope.kind == "tensor":
        # With the rows of both extremes the part has the range of the whole.
        extremes = torch.stack([x.amin(1).argmin(), x.amax(1).argmax()])
        places = torch.unique(torch.cat([places, extremes]))
    return _Part(0, places)


def check(case: Case, operands: Tensors, reference: Reference) -> Check:
    """Quantizes the input again, or a part of it, and compares every byte."""
    x = operands["input"]
    part = _part_of(case, x)
    chosen = part.of(case, "input", x).cpu()
    desc = planq.Descriptor.from_dict(
        {**case.descriptor.to_dict(), "shape": list(chosen.shape)},
    )
    expected = reference(desc, chosen)
    differing = 0
    for name, tensor in operands.items():
        if name != "input":
            got = part.of(case, name, tensor).cpu()
            differing += int((_bytes(got) != _bytes(expected[name])).sum())
    return Check(chosen.numel(), differing, reference.__name__)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)
