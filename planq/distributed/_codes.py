"""What is sent: codes of flat groups, and the bytes of a message."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final, TypedDict

import torch

from planq.arguments import DTypeLike
from planq.dtypes import DType, Mode
from planq.ops.group import SwizzledQuantizeDescriptor

ALIGNMENT: Final = 16
"""Of the parameters in a message, and of messages."""


class Options(TypedDict, total=False):
    """What every collective takes beside its tensors and its group.

    Attributes:
        dtype: Of the codes: ``"int8"``, the default, or ``"int4"``.
        group_size: Elements that share a parameter, 256; of int4 an even number.
        mode: SYMMETRIC, or ASYMMETRIC with an offset for every group.
    """

    dtype: DTypeLike
    group_size: int
    mode: Mode | str


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """How elements become codes. Of the same options the same object, which is its own key."""

    dtype: DType
    group_size: int
    mode: Mode

    @staticmethod
    def of(options: Options) -> Codes:
        """Reads options.

        Raises:
            DescriptorError: They have no meaning.
            TypeError: One has a name that no option has.
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
        except TypeError:  # unhashable, and so no option
            pass
        return _read(*given)

    @property
    def storage(self) -> torch.dtype:
        """Of the tensor that holds them."""
        return torch.uint8 if self.dtype is DType.INT4 else torch.int8

    @property
    def stored(self) -> str:
        """The name of its dtype."""
        return "uint8" if self.dtype is DType.INT4 else "int8"

    @property
    def columns(self) -> int:
        """Parameters of a group."""
        return 2 if self.mode is Mode.ASYMMETRIC else 1

    def bytes_of(self, elements: int) -> int:
        """Of the codes of whole groups."""
        return elements // 2 if self.dtype is DType.INT4 else elements

    def groups_of(self, elements: int) -> int:
        """As many as hold them."""
        return -(-elements // self.group_size)

    def padded(self, elements: int) -> int:
        """Elements of whole groups."""
        return self.groups_of(elements) * self.group_size


@dataclass(frozen=True)
class Message:
    """The codes of some whole groups, and their parameters behind them."""

    codes: Codes
    elements: int

    @functools.cached_property
    def offset(self) -> int:
        """Where the parameters begin."""
        return _aligned(self.codes.bytes_of(self.elements))

    @functools.cached_property
    def size(self) -> int:
        """Bytes."""
        groups = self.codes.groups_of(self.elements)
        return _aligned(self.offset + 4 * self.codes.columns * groups)

    def codes_in(self, messages: torch.Tensor) -> torch.Tensor:
        """Those of messages that lie along the last axis."""
        held = messages[..., : self.codes.bytes_of(self.elements)]
        return held.view(self.codes.storage)

    def parameters_in(self, messages: torch.Tensor) -> torch.Tensor:
        """Likewise, a row for each group."""
        groups = self.codes.groups_of(self.elements)
        size = 4 * self.codes.columns * groups
        held = messages[..., self.offset : self.offset + size].view(torch.float32)
        return held.view(*held.shape[:-1], groups, self.codes.columns)


def _read(dtype: Any, group_size: Any, mode: Any) -> Codes:
    """What options say, by the most particular of the operators: what it takes, all take."""
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


# Typed: 256.0 equals 256, and is no group size.
_known: Final = functools.lru_cache(maxsize=256, typed=True)(_read)


@functools.lru_cache(maxsize=256)
def _one(dtype: DType, group_size: int, mode: Mode) -> Codes:
    return Codes(dtype, group_size, mode)


_NAMES: Final = frozenset(Options.__annotations__)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
