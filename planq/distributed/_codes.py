"""What is sent: codes of flat groups, and their layout in a message."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import torch

from planq.arguments import DTypeLike
from planq.dtypes import DType, Mode
from planq.ops.group import SwizzledQuantizeDescriptor

ALIGNMENT: Final = 16
"""Alignment in bytes of messages, and of the parameters in a message."""


class Options(TypedDict, total=False):
    """What every collective takes beside its tensors and its process group.

    Attributes:
        dtype: Type of the codes: ``"int8"``, the default, or ``"int4"``.
        group_size: Elements that share a scale; 256 by default; even for int4.
        mode: SYMMETRIC, the default, or ASYMMETRIC, with an offset for each group.
    """

    dtype: DTypeLike
    group_size: int
    mode: Mode | str


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """How elements become codes. Equal options give the same object, so it is a key by identity."""

    dtype: DType
    group_size: int
    mode: Mode

    @staticmethod
    def of(options: Options) -> Codes:
        """Reads options.

        Raises:
            DescriptorError: An option has a value that is not allowed.
            TypeError: There is no option of a given name.
        """
        for name in options:
            if name not in _NAMES:
                raise TypeError(f"planq.distributed has no option {name!r}")
        given: tuple[Any, ...] = (
            options.get("dtype", "int8"),
            options.get("group_size", 256),
            options.get("mode", "symmetric"),
        )
        try:
            return _known(*given)
        except TypeError:  # unhashable: the descriptor will refuse it with a better message
            pass
        return _read(*given)

    @property
    def storage(self) -> torch.dtype:
        """The torch dtype of the tensor that holds codes."""
        return torch.uint8 if self.dtype is DType.INT4 else torch.int8

    @property
    def stored(self) -> str:
        """The name of the same dtype."""
        return "uint8" if self.dtype is DType.INT4 else "int8"

    @property
    def columns(self) -> int:
        """How many float32 parameters a group has."""
        return 2 if self.mode is Mode.ASYMMETRIC else 1

    def bytes_of(self, elements: int) -> int:
        """Bytes of the codes of this many elements, which are whole groups."""
        return elements // 2 if self.dtype is DType.INT4 else elements

    def groups_of(self, elements: int) -> int:
        """The number of groups that hold this many elements."""
        return -(-elements // self.group_size)

    def padded(self, elements: int) -> int:
        """The number of elements, rounded up to whole groups."""
        return self.groups_of(elements) * self.group_size


@dataclass(frozen=True)
class Message:
    """Layout of a message: the codes of whole groups, then their parameters."""

    codes: Codes
    elements: int

    @functools.cached_property
    def offset(self) -> int:
        """Where the parameters begin, in bytes."""
        return _aligned(self.codes.bytes_of(self.elements))

    @functools.cached_property
    def size(self) -> int:
        """Size in bytes."""
        groups = self.codes.groups_of(self.elements)
        return _aligned(self.offset + 4 * self.codes.columns * groups)

    def codes_in(self, messages: torch.Tensor) -> torch.Tensor:
        """A view of the codes in messages, whose bytes lie along the last axis."""
        held = messages[..., : self.codes.bytes_of(self.elements)]
        return held.view(self.codes.storage)

    def parameters_in(self, messages: torch.Tensor) -> torch.Tensor:
        """A view of the parameters, with a row for each group."""
        groups = self.codes.groups_of(self.elements)
        size = 4 * self.codes.columns * groups
        held = messages[..., self.offset : self.offset + size].view(torch.float32)
        return held.view(*held.shape[:-1], groups, self.codes.columns)


def _read(dtype: Any, group_size: Any, mode: Any) -> Codes:
    """Reads options by the operator with the strictest rules, so that all others take them."""
    desc = SwizzledQuantizeDescriptor(
        shape=(0,),
        input_dtype="float32",
        output_dtype=dtype,
        nodes=1,
        devices_per_node=1,
        group_size=group_size,
        mode=mode,
    )
    return _one(desc.output_dtype, desc.group_size, desc.mode)


# Typed, because 256.0 == 256, and a float is no group size.
_known: Final = functools.lru_cache(maxsize=256, typed=True)(_read)


@functools.lru_cache(maxsize=256)
def _one(dtype: DType, group_size: int, mode: Mode) -> Codes:
    return Codes(dtype, group_size, mode)


_NAMES: Final = frozenset(Options.__annotations__)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
