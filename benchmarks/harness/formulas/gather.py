"""The gather family as torch operations."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch

import planq
from harness.formulas.segments import Operands
from planq.audit.ops.gather.sample.reference import random_word
from planq.audit.reference.functions import exp_nonpositive


class Embedding:
    """Rows by index, of a floating table or of int8 codes under a scale for each row."""

    def __init__(self, desc: Any) -> None:
        codes = desc.table_dtype is planq.DType.INT8 and desc.scope.kind == "token"
        if not codes and desc.table_dtype in ("int8", "int4"):
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """Rows, and how many indices name none."""
        table, index = given["table"], given["index"]
        outside = (index < 0) | (index >= len(table))
        place = index.masked_fill(outside, 0)
        rows = torch.nn.functional.embedding(place, table).float()
        if "scale" in given:
            rows = rows * given["scale"].float()[place][..., None]
        rows = rows * torch.as_tensor(given["factor"]).float().to(rows.device)
        rows = rows.masked_fill(outside[..., None], 0)
        return rows.to(getattr(torch, self.desc.output_dtype.value)), outside.sum().view(1)


class Argmax:
    """torch's own."""

    def __init__(self, desc: Any) -> None:
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The first of the largest elements."""
        return (given["input"].argmax(-1).to(getattr(torch, self.desc.output_dtype.value)),)


class Sample:
    """Integer weights and sums, row by row. For a check: it reads numbers back."""

    def __init__(self, desc: Any) -> None:
        self.desc = desc

    def __call__(self, given: Operands) -> tuple[torch.Tensor, ...]:
        """The index that each row's random number falls on; rows and settings are good ones."""
        rows = given["input"].float().reshape(-1, self.desc.shape[-1])
        every = {name: v.flatten().tolist() for name, v in given.items() if name != "input"}
        found = [
            self._index(row, **dict(zip(every, own, strict=True)))
            for row, *own in zip(rows, *every.values(), strict=True)
        ]
        output = torch.tensor(found, dtype=getattr(torch, self.desc.output_dtype.value))
        output = output.to(rows.device).view(self.desc.shape[:-1])
        return output, torch.zeros(1, dtype=torch.int64, device=rows.device)

    @staticmethod
    def _index(
        row: torch.Tensor,
        seed: int,
        position: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
    ) -> int:
        below = (row - row.max()) * torch.tensor(temperature).reciprocal().to(row.device)
        p = torch.from_numpy(exp_nonpositive(below.cpu().numpy())).to(row.device)
        weight = (p.double() * 2.0**40).long()
        order = row.sort(descending=True, stable=True).indices
        order = order[:top_k] if top_k > 0 else order
        sums = weight[order].cumsum(0)
        goal = math.ceil(Fraction(top_p) * int(sums[-1]))
        order = order[: int((sums < goal).sum()) + 1]
        order = order[p[order] >= min_p].sort().values
        sums = weight[order].cumsum(0)
        drawn = random_word(seed, position) * int(sums[-1]) >> 64
        return int(order[int((sums <= drawn).sum())])


def usual_draw(given: Operands) -> tuple[torch.Tensor]:
    """What programs in torch do, with filters by a sort: other draws, and settings of all rows."""
    logits = given["input"].float()
    if "temperature" in given:
        logits = logits / given["temperature"][:, None]
    probabilities = logits.softmax(-1)
    if not {"top_k", "top_p", "min_p"} & given.keys():
        return (probabilities.multinomial(1)[:, 0],)
    sorted_, order = probabilities.sort(-1, descending=True)
    if "top_k" in given:
        rank = torch.arange(sorted_.shape[-1], device=logits.device)
        sorted_ = sorted_.masked_fill(rank >= given["top_k"][:, None], 0)
    if "top_p" in given:
        before = sorted_.cumsum(-1) - sorted_
        goal = given["top_p"][:, None] * sorted_.sum(-1, keepdim=True)
        sorted_ = sorted_.masked_fill(before >= goal, 0)
    if "min_p" in given:
        sorted_ = sorted_.masked_fill(sorted_ < given["min_p"][:, None] * sorted_[:, :1], 0)
    return (order.gather(-1, sorted_.multinomial(1))[:, 0],)
