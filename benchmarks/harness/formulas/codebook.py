"""The codebook family as torch operations, for elements without special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

import planq
from harness.formulas.segments import Operands, packed, unpacked, wide
from planq.audit.ops.codebook import reference as codebooks
from planq.audit.ops.statistics.estimate_quantiles import reference as quantiles

Results = tuple[torch.Tensor, ...]

_MAPS: Final[dict[int, Callable[[], Any]]] = {
    256: planq.codebooks.dynamic,
    16: planq.codebooks.nf4,
}


def given_values(entries: int) -> torch.Tensor:
    """What a codebook operand of so many entries holds."""
    return torch.from_numpy(_MAPS[entries]())


def source_of(desc: Any, distinct: int) -> Any:
    """The descriptor whose results a dequantization is measured on, for so many bytes of codes.

    Normal elements take some codes far more often than others; which, table and block size decide.
    """
    fields: dict[str, Any] = {
        "shape": (distinct * (2 if desc.input_dtype is planq.DType.UINT4 else 1),),
        "input_dtype": "float32",
        "output_dtype": desc.input_dtype,
        "codebook": desc.codebook,
        "entries": desc.entries,
    }
    if desc.operator == "blockwise_dequantize":
        return planq.BlockwiseQuantizeDescriptor(block_size=desc.block_size, **fields)
    return planq.CodebookQuantizeDescriptor(**fields)


def codes_of_normal(source: Any, device: torch.device) -> torch.Tensor:
    """The codes that normal elements have."""
    given = {"input": torch.empty(source.shape, device=device).normal_()}
    if source.codebook is planq.Codebook.GIVEN:
        given["codebook"] = given_values(source.operands()["codebook"].shape[0]).to(device)
    return Quantize(source)(given)[0]


def _everywhere(values: Any) -> dict[str, torch.Tensor]:
    """A table on every kind of device: a launch that is timed copies none."""
    made = torch.from_numpy(np.ascontiguousarray(values))
    kinds = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    return {kind: made.to(kind) for kind in kinds}


class _Codes:
    """What both ways share: a flat tensor of whole blocks, and codes as stored."""

    def __init__(self, desc: Any, code_dtype: planq.DType) -> None:
        count = math.prod(desc.shape)
        self.block: int = getattr(desc, "block_size", count)
        self.four = code_dtype is planq.DType.UINT4
        high_first = desc.nibble_order is planq.NibbleOrder.HIGH_FIRST
        if count % self.block or count % 2 or not high_first:
            raise ValueError(f"no torch formula for {desc}")
        self.desc = desc
        self.normalized: bool = getattr(desc, "normalized", False)
        self.name: str = desc.codebook.value
        self.reference: Any = codebooks

    def stored(self, codes: torch.Tensor) -> torch.Tensor:
        """Flat codes as stored, the first of a pair in the high nibble."""
        if not self.four:
            return codes.view(self.desc.shape)
        return packed(codes.view(-1, 2).flip(-1)).view(-1)

    def flat(self, stored: torch.Tensor) -> torch.Tensor:
        """The opposite of :meth:`stored`."""
        codes = stored.reshape(-1)
        if not self.four:
            return codes
        return unpacked(codes.view(-1, 1), planq.DType.UINT4).flip(-1).flatten()


class Quantize(_Codes):
    """Codes and absmax, by blocks or of the whole tensor; the thresholds are those of the tests."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc, desc.output_dtype)
        nearest = desc.rounding is planq.Rounding.NEAREST_EVEN
        if not nearest or getattr(desc, "nested_block_size", None) is not None:
            raise ValueError(f"no torch formula for {desc}")
        self.divides = desc.quotient is planq.Quotient.DIVIDE
        self.ties = "down" if self.four else "even"
        self.by_magnitude = desc.codebook is planq.Codebook.FP4
        self.is_given = desc.codebook is planq.Codebook.GIVEN
        if not self.is_given:
            self.thresholds, self.indices = map(_everywhere, self._table())

    def _table(self) -> tuple[Any, Any]:
        """Thresholds in ascending order, and the index behind each number of them."""
        values = self.reference.table(self.name)
        book = self.reference.Codebook(values, self.name, self.ties)
        if self.by_magnitude:
            return book.thresholds, self.reference.FP4_ASCENDING.astype(np.uint8)
        return book.thresholds, book.stored(np.arange(len(values))).astype(np.uint8)

    def codes(self, y: torch.Tensor, given: Operands) -> torch.Tensor:
        """The code of each quotient, a byte each."""
        kind = y.device.type
        if self.is_given:
            found = self.reference.thresholds_of(given["codebook"].cpu().numpy(), self.ties)
            thresholds = torch.from_numpy(found).to(y.device)
            return torch.bucketize(y, thresholds, out_int32=True).to(torch.uint8)
        size = y.abs() if self.by_magnitude else y
        places = torch.bucketize(size, self.thresholds[kind], out_int32=True)
        codes = self.indices[kind][places]
        return codes + (y < 0).to(torch.uint8) * 8 if self.by_magnitude else codes

    def __call__(self, given: Operands) -> Results:
        """The codes as stored; the absmax, where they are measured."""
        x = wide(given["input"])
        if self.normalized:
            return (self.stored(self.codes(x, given).view(-1)),)
        blocks = x.reshape(-1, self.block)
        absmax = given["absmax"] if self.desc.absmax_given else blocks.abs().amax(1)
        divisor = absmax[:, None]
        y = blocks / divisor if self.divides else blocks * divisor.reciprocal()
        codes = self.stored(self.codes(y, given).view(-1))
        return (codes,) if self.desc.absmax_given else (codes, absmax)


class Dequantize(_Codes):
    """Values of codes."""

    def __init__(self, desc: Any) -> None:
        super().__init__(desc, desc.input_dtype)
        self.nested: int | None = getattr(desc, "nested_block_size", None)
        if self.nested is not None and math.prod(desc.shape) // self.block % self.nested:
            raise ValueError(f"no torch formula for {desc}")
        self.result: torch.dtype = getattr(torch, desc.output_dtype.value)
        if desc.codebook is not planq.Codebook.GIVEN:
            self.values = _everywhere(self.reference.table(self.name))

    def absmax(self, given: Operands) -> torch.Tensor:
        """A column of them, restored where they are nested."""
        absmax: torch.Tensor = given["absmax"]
        if self.nested is not None:
            values = given["nested_codebook"][absmax.int()].to(given["nested_absmax"].dtype)
            sizes = values.view(-1, self.nested) * given["nested_absmax"][:, None]
            absmax = sizes.flatten() + given["nested_offset"]
        return absmax[:, None]

    def __call__(self, given: Operands) -> Results:
        """The values."""
        codes = self.flat(given["input"])
        table = given["codebook"] if "codebook" in given else self.values[codes.device.type]
        values = table[codes.int()]
        if not self.normalized:
            wider = torch.promote_types(self.result, torch.float32)
            values = values.to(wider).view(-1, self.block) * self.absmax(given).to(wider)
        return (values.to(self.result).view(self.desc.shape),)


class EstimateQuantiles:
    """Order statistics of sorted elements, at the positions of the tests' reference."""

    def __init__(self, desc: Any) -> None:
        reference: Any = quantiles
        dtype = desc.input_dtype.value
        problem = reference.Problem(desc.shape, dtype, desc.quantiles, desc.tail)
        self.places = _everywhere(reference.positions(problem, math.prod(desc.shape)))

    def __call__(self, given: Operands) -> Results:
        """The quantiles."""
        x = given["input"]
        found = x.flatten().sort().values[self.places[x.device.type]]
        return (wide(found) + 0.0,)
