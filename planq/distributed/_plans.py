"""Plans of the group family for one kind of exchange, and launches of them at addresses."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch

from planq import _core
from planq.arguments import RawTensor, Tensor
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


class Place(NamedTuple):
    """Where codes of whole groups lie, and their parameters: addresses."""

    codes: int
    parameters: int

    def behind(self, elements: int, codes: Codes) -> Place:
        """That of the groups behind so many elements."""
        parameters = 4 * codes.columns * codes.groups_of(elements)
        return Place(self.codes + codes.bytes_of(elements), self.parameters + parameters)


class Received(NamedTuple):
    """Codes of several ranks: the place of the first, and the bytes from one to the next."""

    first: Place
    ranks: int
    stride: int


class Plans:
    """Selects plans, and binds them to addresses of one device.

    Nothing here holds memory: who launches knows that the addresses are still those of its
    operands.
    """

    def __init__(self, codes: Codes, given: torch.dtype, device: torch.device, mean: bool) -> None:
        """``given`` elements become codes; ``mean``: sums are divided by the number of ranks."""
        self.codes, self.given, self.device, self.mean = codes, given, device, mean
        self._where = "host" if device.type == "cpu" else str(device)
        self._fields: dict[str, Any] = {"group_size": codes.group_size, "mode": codes.mode}

    # --- Plans

    def _select(self, desc: Descriptor) -> Plan:
        return Plan.select(current_stream(self.device), desc)

    def encoder(self, elements: int, nodes: int = 1, devices: int = 1) -> Plan:
        """Of elements in their order; of nodes and their devices in that of the devices."""
        fields = self._fields | {"input_dtype": self.given, "output_dtype": self.codes.dtype}
        if nodes == 1:
            return self._select(GroupQuantizeDescriptor(shape=(elements,), **fields))
        fields |= {"nodes": nodes, "devices_per_node": devices}
        return self._select(SwizzledQuantizeDescriptor(shape=(elements,), **fields))

    def adder(self, elements: int, ranks: int, wanted: Any) -> Plan:
        """Of what several ranks sent; ``wanted``: the codes' dtype, or another for elements."""
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
        """Of codes in their order."""
        desc = GroupDequantizeDescriptor(
            shape=(elements,), input_dtype=self.codes.dtype, output_dtype=wanted, **self._fields
        )
        return self._select(desc)

    # --- Launches

    def encode(self, plan: Plan, source: int, target: Place) -> _core.Launch:
        """Makes codes of elements."""
        desc: Any = plan.descriptor
        swizzled = isinstance(desc, SwizzledQuantizeDescriptor)
        make = SwizzledQuantizeArgs if swizzled else GroupQuantizeArgs
        [count] = desc.shape
        codes, parameters = self._held(target, count)
        elements = self._elements(source, count, desc.input_dtype)
        return plan.bind(None, make(input=elements, output=codes, parameters=parameters))

    def add(self, plan: Plan, source: Received, target: int | Place) -> _core.Launch:
        """Adds to elements at an address, or to codes at a place."""
        desc: Any = plan.descriptor
        [count] = desc.shape
        ranks, stride = source.ranks, source.stride
        codes, groups = self.codes.bytes_of(count), self.codes.groups_of(count)
        columns, where = self.codes.columns, self._where
        first = source.first
        parameters: Tensor | None = None
        if isinstance(target, Place):
            output, parameters = self._held(target, count)
        else:
            output = self._elements(target, count, desc.output_dtype)
        args = DequantizeReduceArgs(
            input=(first.codes, (ranks, codes), (stride, 1), self.codes.stored, where),
            parameters=(
                first.parameters,
                (ranks, groups, columns),
                (stride // 4, columns, 1),
                _PARAMETERS,
                where,
            ),
            output=output,
            output_parameters=parameters,
        )
        return plan.bind(None, args)

    def decode(self, plan: Plan, source: Place, target: int) -> _core.Launch:
        """Makes elements of codes."""
        desc: Any = plan.descriptor
        [count] = desc.shape
        codes, parameters = self._held(source, count)
        elements = self._elements(target, count, desc.output_dtype)
        args = GroupDequantizeArgs(input=codes, parameters=parameters, output=elements)
        return plan.bind(None, args)

    def _elements(self, address: int, count: int, dtype: Any) -> RawTensor:
        return (address, (count,), None, dtype, self._where)

    def _held(self, place: Place, count: int) -> tuple[RawTensor, RawTensor]:
        """Codes and parameters of so many elements."""
        codes, groups = self.codes, self.codes.groups_of(count)
        return (
            (place.codes, (codes.bytes_of(count),), None, codes.stored, self._where),
            (place.parameters, (groups, codes.columns), None, _PARAMETERS, self._where),
        )
