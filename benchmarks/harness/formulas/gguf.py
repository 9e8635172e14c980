"""The gguf family as torch operations, for the types that are measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from harness.formulas.segments import Operands

Blocks = torch.Tensor  # bytes, of a block in each row


def _half(blocks: Blocks, at: int) -> torch.Tensor:
    """A float16 number of each block."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _signed(part: Blocks) -> torch.Tensor:
    """Bytes as signed numbers."""
    return part.contiguous().view(torch.int8).float()


def _nibbles(part: Blocks, group: int) -> torch.Tensor:
    """Codes of 4 bits: low nibbles of so many bytes, then their high ones, and so on."""
    groups = part.unflatten(1, (-1, group))
    return torch.cat([groups & 15, groups >> 4], 2).flatten(1)


def _q4_0(blocks: Blocks) -> torch.Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:], 16).float() - 8)


def _q8_0(blocks: Blocks) -> torch.Tensor:
    return _half(blocks, 0) * _signed(blocks[:, 2:])


def _q4_k(blocks: Blocks) -> torch.Tensor:
    low, middle, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat([low & 63, (high & 15) + 16 * (low >> 6)], 1).float()
    minimum = torch.cat([middle & 63, (high >> 4) + 16 * (middle >> 6)], 1).float()
    codes = _nibbles(blocks[:, 16:], 32).unflatten(1, (8, 32)).float()
    product = (_half(blocks, 0) * scale)[:, :, None] * codes
    return (product - (_half(blocks, 2) * minimum)[:, :, None]).flatten(1)


def _q6_k(blocks: Blocks) -> torch.Tensor:
    low = _nibbles(blocks[:, :128], 64)
    pairs = blocks[:, 128:192].unflatten(1, (2, 32))
    high = torch.cat([pairs >> shift & 3 for shift in (0, 2, 4, 6)], 2).flatten(1)
    codes = (low + 16 * high).float() - 32
    scale = _half(blocks, 208) * _signed(blocks[:, 192:208])
    return (scale[:, :, None] * codes.unflatten(1, (16, 16))).flatten(1)


_VALUES: Final[dict[str, tuple[int, Callable[[Blocks], torch.Tensor]]]] = {
    "q4_0": (18, _q4_0),
    "q8_0": (34, _q8_0),
    "q4_k": (144, _q4_k),
    "q6_k": (210, _q6_k),
}


class Dequantize:
    """Blocks to numbers."""

    def __init__(self, desc: Any) -> None:
        if desc.type.value not in _VALUES:
            raise ValueError(f"no torch formula for {desc}")
        self.bytes, self.values = _VALUES[desc.type.value]
        self.dtype = getattr(torch, desc.output_dtype.value)

    def __call__(self, given: Operands) -> tuple[torch.Tensor]:
        """The numbers, with the axes of the bytes."""
        blocks = given["input"]
        values = self.values(blocks.reshape(-1, self.bytes))
        return (values.to(self.dtype).view(*blocks.shape[:-1], -1),)
