"""Plans of the group family for one kind of exchange, and launches of them at addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from planq import _core
from planq.descriptor import Descriptor
from planq.distributed._codes import Codes
from planq.ops.group import (
    DequantizeReduceArgs,
    DequantizeReduceDescriptor,
    GroupDequantizeArgs,
    GroupDequantizeDescriptor,
    GroupQuantizeArgs,
    GroupQuantizeDescriptor,
    SwizzledQuantizeArgs,
    SwizzledQuantizeDescriptor,
)
from planq.plan import Plan
from planq.torch._running import current_stream

_PARAMETERS: Final = "float32"


class Spot(NamedTuple):
    """A place in a call's memory: the index of the memory area, and the offset in bytes.

    The areas themselves are only known in a call.
    """

    memory: int
    offset: int


class Place(NamedTuple):
    """Where codes of whole groups and their parameters lie: the area, and offsets in bytes."""

    memory: int
    codes: int
    parameters: int

    def behind(self, elements: int, codes: Codes) -> Place:
        """The place after the groups of this many elements."""
        parameters = 4 * codes.columns * codes.groups_of(elements)
        return Place(
            self.memory, self.codes + codes.bytes_of(elements), self.parameters + parameters
        )


class Received(NamedTuple):
    """Codes of several ranks: the place of the first, and the bytes from one to the next."""

    first: Place
    ranks: int
    stride: int


Rest: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None, Any, str]
"""What names an operand beside its address: shape, strides, dtype and device."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A launch without the addresses of a call.

    Attributes:
        plan: The plan that is launched.
        make: The class of its args.
        operands: For each operand: its name, memory area, offset in bytes, and the rest.
    """

    plan: Plan
    make: Any
    operands: tuple[tuple[str, int, int, Rest], ...]

    def bind(self, memories: Sequence[int]) -> _core.Launch:
        """The launch with memory areas at these addresses."""
        operands = {
            name: (memories[memory] + offset, *rest) for name, memory, offset, rest in self.operands
        }
        return self.plan.bind(None, self.make(**operands))


class Plans:
    """Selects plans for one device, and describes their operands."""

    def __init__(self, codes: Codes, given: torch.dtype, device: torch.device, mean: bool) -> None:
        """``given`` is the dtype that is quantized; ``mean`` divides sums by the rank count."""
        self.codes, self.given, self.device, self.mean = codes, given, device, mean
        self._where = "host" if device.type == "cpu" else str(device)
        self._fields: dict[str, Any] = {"group_size": codes.group_size, "mode": codes.mode}

    # --- Plans

    def _select(self, desc: Descriptor) -> Plan:
        return Plan.select(current_stream(self.device), desc)

    def encoder(self, elements: int, nodes: int = 1, devices: int = 1) -> Plan:
        """A plan that quantizes; with several nodes, it orders groups for the devices first."""
        fields = self._fields | {"input_dtype": self.given, "output_dtype": self.codes.dtype}
        if nodes == 1:
            return self._select(GroupQuantizeDescriptor(shape=(elements,), **fields))
        fields |= {"nodes": nodes, "devices_per_node": devices}
        return self._select(SwizzledQuantizeDescriptor(shape=(elements,), **fields))

    def adder(self, elements: int, ranks: int, wanted: Any) -> Plan:
        """A plan that sums the codes of several ranks; to codes if ``wanted`` is their dtype."""
        desc = DequantizeReduceDescriptor(
            shape=(elements,),
            ranks=ranks,
            input_dtype=self.codes.dtype,
            output_dtype=wanted,
            mean=self.mean,
            **self._fields,
        )
        return self._select(desc)

    def decoder(self, elements: int, wanted: torch.dtype) -> Plan:
        """A plan that dequantizes codes."""
        desc = GroupDequantizeDescriptor(
            shape=(elements,), input_dtype=self.codes.dtype, output_dtype=wanted, **self._fields
        )
        return self._select(desc)

    # --- Launches

    def encode(self, plan: Plan, source: Spot, target: Place) -> Recipe:
        """The launch that quantizes elements."""
        desc: Any = plan.descriptor
        swizzled = isinstance(desc, SwizzledQuantizeDescriptor)
        operands = (
            ("input", *source, self._elements(desc.shape, desc.input_dtype)),
            *self._coded(("output", "parameters"), target, desc.shape),
        )
        return Recipe(plan, SwizzledQuantizeArgs if swizzled else GroupQuantizeArgs, operands)

    def add(self, plan: Plan, source: Received, target: Spot | Place) -> Recipe:
        """The launch that sums received codes into elements (Spot) or codes (Place)."""
        desc: Any = plan.descriptor
        first, ranks, stride = source
        outputs: tuple[tuple[str, int, int, Rest], ...]
        if isinstance(target, Place):
            outputs = self._coded(("output", "output_parameters"), target, desc.shape)
        else:
            outputs = (("output", *target, self._elements(desc.shape, desc.output_dtype)),)
        inputs = self._coded(("input", "parameters"), first, desc.shape, ranks, stride)
        return Recipe(plan, DequantizeReduceArgs, (*inputs, *outputs))

    def decode(self, plan: Plan, source: Place, target: Spot) -> Recipe:
        """The launch that dequantizes codes."""
        desc: Any = plan.descriptor
        operands = (
            *self._coded(("input", "parameters"), source, desc.shape),
            ("output", *target, self._elements(desc.shape, desc.output_dtype)),
        )
        return Recipe(plan, GroupDequantizeArgs, operands)

    def _elements(self, shape: tuple[int, ...], dtype: Any) -> Rest:
        return (shape, None, dtype, self._where)

    def _coded(
        self,
        names: tuple[str, str],
        place: Place,
        shape: tuple[int, ...],
        ranks: int = 0,
        stride: int = 0,
    ) -> tuple[tuple[str, int, int, Rest], ...]:
        """The two operands for codes and parameters; those of ranks are ``stride`` bytes apart."""
        [count] = shape
        codes, groups = self.codes, self.codes.groups_of(count)
        held, rows = (codes.bytes_of(count),), (groups, codes.columns)
        first: Rest = (held, None, codes.stored, self._where)
        second: Rest = (rows, None, _PARAMETERS, self._where)
        if ranks:
            apart = stride // 4, codes.columns, 1
            first = ((ranks, *held), (stride, 1), codes.stored, self._where)
            second = ((ranks, *rows), apart, _PARAMETERS, self._where)
        return (
            (names[0], place.memory, place.codes, first),
            (names[1], place.memory, place.parameters, second),
        )
