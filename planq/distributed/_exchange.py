"""Plans between what torch.distributed sends: the steps of every collective."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from planq import _core
from planq.descriptor import Descriptor
from planq.distributed._codes import Codes, Message
from planq.distributed._levels import Levels
from planq.distributed._shards import Shards
from planq.errors import WorkspaceError
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
from planq.torch._running import current_stream, room

_KEPT: Final = 1024
# torch 2.13 has a new name for it, and warns of the old one.
_all_gather: Final[Any] = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Exchange:
    """The plans and the memory of one collective over tensors of given sizes.

    Memory is one tensor of bytes, whose pieces several steps use. What can be refused, is refused
    here: before anything is sent.
    """

    def __init__(
        self,
        shards: Shards,
        nodes: int,
        given: torch.dtype,
        wanted: torch.dtype,
        device: torch.device,
        mean: bool,
        reduces: bool,
        gathers: bool,
    ) -> None:
        """Selects plans: ``given`` elements are reduced or gathered, or both, to ``wanted``."""
        self.shards, self.codes, width = shards, shards.codes, shards.width
        self.given, self.wanted, self.device = given, wanted, device
        self.mean, self.reduces = mean, reduces
        self.nodes, self.devices = nodes, shards.ranks // nodes
        codes, devices = self.codes, self.devices
        self.message = Message(codes, width)
        self._first = Message(codes, nodes * width)  # to a device: a part for every node
        self._encode = self._encoder(width)
        self._between = self._reducer(nodes * width, devices, codes.dtype) if nodes > 1 else None
        last = nodes if nodes > 1 else devices
        self._last = self._reducer(width, last, codes.dtype if gathers else wanted)
        self._decode = self._decoder(wanted)
        self._own = self._decoder(torch.float32)
        self._pieces = self._book()

    # --- Plans

    def _select(self, desc: Descriptor) -> Plan:
        return Plan.select(current_stream(self.device), desc)

    def _fields(self) -> dict[str, Any]:
        return {"group_size": self.codes.group_size, "mode": self.codes.mode}

    def _encoder(self, width: int) -> Plan:
        """Of what this rank gives: a row for each rank, or its own part."""
        fields = self._fields() | {"input_dtype": self.given, "output_dtype": self.codes.dtype}
        if not self.reduces:
            return self._select(GroupQuantizeDescriptor(shape=(width,), **fields))
        shape = (self.shards.ranks * width,)
        if self.nodes == 1:
            return self._select(GroupQuantizeDescriptor(shape=shape, **fields))
        fields |= {"nodes": self.nodes, "devices_per_node": self.devices}
        return self._select(SwizzledQuantizeDescriptor(shape=shape, **fields))

    def _reducer(self, elements: int, ranks: int, wanted: Any) -> Plan | None:
        if not self.reduces:
            return None
        desc = DequantizeReduceDescriptor(
            shape=(elements,),
            ranks=ranks,
            input_dtype=self.codes.dtype,
            output_dtype=wanted,
            mean=self.mean,
            **self._fields(),
        )
        return self._select(desc)

    def _decoder(self, wanted: torch.dtype) -> Plan:
        """Of the rows of all ranks."""
        desc = GroupDequantizeDescriptor(
            shape=(self.shards.ranks * self.shards.width,),
            input_dtype=self.codes.dtype,
            output_dtype=wanted,
            **self._fields(),
        )
        return self._select(desc)

    def _run(self, plan: Plan | None, memory: torch.Tensor, args: Any) -> None:
        assert plan is not None
        scratch = self._piece(memory, "scratch") if plan.workspace_size() else None
        plan.run(current_stream(self.device), scratch, args)

    # --- Memory

    def _book(self) -> dict[str, tuple[int, int]]:
        """Where each piece begins, and its bytes."""
        elements = self.shards.ranks * self.shards.width
        rows = self.shards.ranks * self.message.size
        unmoved = self.shards.exact and self.given == self.wanted
        plans = (self._encode, self._between, self._last, self._decode, self._own)
        sizes = {
            "rows": 0 if unmoved else elements * max(self.given.itemsize, self.wanted.itemsize),
            "codes": self.codes.bytes_of(elements),
            "parameters": 4 * self.codes.columns * self.codes.groups_of(elements),
            "sent": max(rows, self.devices * self._first.size),
            "received": max(rows, self.devices * self._first.size),
            "scratch": max(plan.workspace_size() for plan in plans if plan is not None),
        }
        places, first = {}, 0
        for name, size in sizes.items():
            places[name] = (first, size)
            first += -(-size // _core.WORKSPACE_ALIGNMENT) * _core.WORKSPACE_ALIGNMENT
        return places

    @property
    def workspace_size(self) -> int:
        """Bytes of all pieces."""
        first, size = self._pieces["scratch"]
        return first + size

    def memory(self, workspace: torch.Tensor | None) -> torch.Tensor:
        """The caller's, or torch's.

        Raises:
            WorkspaceError: The caller's does not do.
        """
        needed, alignment = self.workspace_size, _core.WORKSPACE_ALIGNMENT
        if workspace is None:
            found = room(needed, self.device)
            return torch.empty(0, dtype=torch.uint8) if found is None else found
        faults = {
            "it is no contiguous torch.uint8 tensor of one axis": workspace.dtype != torch.uint8
            or workspace.dim() != 1
            or not workspace.is_contiguous(),
            f"the tensors are on {self.device}": workspace.device != self.device,
            "it is too small": workspace.numel() < needed,
            "it is not aligned": workspace.data_ptr() % alignment != 0,
        }
        problem = next((fault for fault, is_so in faults.items() if is_so), None)
        if problem is not None:
            got = workspace.numel() * workspace.itemsize
            raise WorkspaceError(needed, got, alignment, problem)
        return workspace

    def _piece(
        self,
        memory: torch.Tensor,
        name: str,
        shape: tuple[int, ...] | None = None,
        dtype: torch.dtype = torch.uint8,
    ) -> torch.Tensor:
        first, size = self._pieces[name]
        if shape is None:
            return memory[first : first + size]
        size = math.prod(shape) * dtype.itemsize
        return memory[first : first + size].view(dtype).view(shape)

    def _quantized(self, memory: torch.Tensor, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes and parameters of whole groups, without a message around them."""
        codes = (self.codes.bytes_of(elements),)
        parameters = (self.codes.groups_of(elements), self.codes.columns)
        return (
            self._piece(memory, "codes", codes, self.codes.storage),
            self._piece(memory, "parameters", parameters, torch.float32),
        )

    # --- Steps

    def encode(self, memory: torch.Tensor, elements: torch.Tensor) -> None:
        """Makes codes of what this rank gives; of two levels in the order of the first."""
        codes, parameters = self._quantized(memory, elements.numel())
        make = SwizzledQuantizeArgs if self.nodes > 1 and self.reduces else GroupQuantizeArgs
        args = make(input=elements.view(-1), output=codes, parameters=parameters)
        self._run(self._encode, memory, args)

    def decoded(self, memory: torch.Tensor) -> torch.Tensor:
        """What :meth:`encode` made, as others see it: float32 rows of the ranks."""
        width, ranks = self.shards.width, self.shards.ranks
        codes, parameters = self._quantized(memory, ranks * width)
        found = torch.empty(ranks * width, dtype=torch.float32, device=self.device)
        args = GroupDequantizeArgs(input=codes, parameters=parameters, output=found)
        self._run(self._own, memory, args)
        ordered = found.view(self.devices, self.nodes, width).transpose(0, 1)
        return ordered.reshape(ranks, width)

    def scatter(self, memory: torch.Tensor, levels: Levels) -> None:
        """Sends every rank its part, through the devices of a node first if there are several."""
        self._scatter_to(memory, levels.devices, self._first)
        if self._between is None or levels.nodes is None:
            return
        self._add(memory, self._between, self.devices, self._first, None)
        self._scatter_to(memory, levels.nodes, self.message)

    def _scatter_to(self, memory: torch.Tensor, group: dist.ProcessGroup, message: Message) -> None:
        """Sends equal parts of codes and parameters to the ranks of a group."""
        ranks = group.size()
        sent = self._piece(memory, "sent", (ranks, message.size))
        codes, parameters = self._quantized(memory, ranks * message.elements)
        message.codes_in(sent).copy_(codes.view(ranks, -1))
        places = message.parameters_in(sent)
        places.copy_(parameters.view(places.shape))
        received = self._piece(memory, "received", (ranks, message.size))
        dist.all_to_all_single(received, sent, group=group)

    def reduce(self, memory: torch.Tensor, output: torch.Tensor | None) -> None:
        """Adds what was scattered: to elements, or to the codes that :meth:`gather` sends."""
        ranks = self.devices if self._between is None else self.nodes
        self._add(memory, self._last, ranks, self.message, output)

    def _add(
        self,
        memory: torch.Tensor,
        plan: Plan | None,
        ranks: int,
        message: Message,
        output: torch.Tensor | None,
    ) -> None:
        received = self._piece(memory, "received", (ranks, message.size))
        codes, parameters = self._quantized(memory, message.elements)
        args = DequantizeReduceArgs(
            input=message.codes_in(received),
            parameters=message.parameters_in(received),
            output=codes if output is None else output,
            output_parameters=parameters if output is None else None,
        )
        self._run(plan, memory, args)

    def gather(self, memory: torch.Tensor, levels: Levels) -> None:
        """Sends the codes of one row to every rank, between nodes first."""
        message, width = self.message, self.message.elements
        codes, parameters = self._quantized(memory, width)
        held = self._piece(memory, "sent", (1, message.size))
        message.codes_in(held)[0].copy_(codes)
        message.parameters_in(held)[0].copy_(parameters)
        target = "received"
        for group in (levels.nodes, levels.devices):
            if group is not None:
                found = self._piece(memory, target, (group.size() * len(held), message.size))
                _all_gather(found, held, group=group)
                held, target = found, "sent"
        ordered = held.view(self.devices, self.nodes, message.size).transpose(0, 1)
        codes, parameters = self._quantized(memory, self.shards.ranks * width)
        for whole, each in (
            (codes, message.codes_in(ordered)),
            (parameters, message.parameters_in(ordered)),
        ):
            whole.view(each.shape).copy_(each)

    def decode(self, memory: torch.Tensor, rows: torch.Tensor) -> None:
        """Makes elements of what was gathered."""
        codes, parameters = self._quantized(memory, rows.numel())
        args = GroupDequantizeArgs(input=codes, parameters=parameters, output=rows.view(-1))
        self._run(self._decode, memory, args)

    # --- From tensors, and to tensors

    def arranged(self, memory: torch.Tensor, given: Sequence[torch.Tensor]) -> torch.Tensor:
        """A row for every rank; the tensor itself where it is that."""
        shape = (self.shards.ranks, self.shards.width)
        if self.shards.exact and given[0].dtype == self.given:
            return given[0].view(shape)
        rows = self._piece(memory, "rows", shape, self.given)
        self.shards.fill(rows, given)
        return rows

    def part(self, memory: torch.Tensor, given: Sequence[torch.Tensor], rank: int) -> torch.Tensor:
        """The row of a rank, of the parts that it has; the tensor itself where it is that."""
        if self.shards.exact:
            return given[0]
        row = self._piece(memory, "rows", (self.shards.width,), self.given).zero_()
        for place, each in zip(self.shards.parts(row, rank), given, strict=True):
            place.copy_(each.view(-1))
        return row

    def reduce_to(self, memory: torch.Tensor, outs: Sequence[torch.Tensor], rank: int) -> None:
        """Adds what was scattered, into the parts of tensors that are a rank's."""
        if self.shards.exact:
            self.reduce(memory, outs[0].view(-1))
            return
        row = self._piece(memory, "rows", (self.shards.width,), self.wanted)
        self.reduce(memory, row)
        for each, part in zip(outs, self.shards.parts(row, rank), strict=True):
            each.view(-1).copy_(part)

    def gather_to(self, memory: torch.Tensor, outs: Sequence[torch.Tensor], levels: Levels) -> None:
        """Gathers one row of codes of every rank, and makes tensors of them."""
        self.gather(memory, levels)
        if self.shards.exact:
            self.decode(memory, outs[0].view(-1))
            return
        shape = (self.shards.ranks, self.shards.width)
        rows = self._piece(memory, "rows", shape, self.wanted)
        self.decode(memory, rows)
        self.shards.read(rows, outs)


def exchange_of(
    tensors: Sequence[torch.Tensor],
    levels: Levels,
    codes: Codes,
    *,
    mean: bool,
    reduces: bool,
    gathers: bool,
    given: torch.dtype | None = None,
) -> Exchange:
    """The exchange for tensors; ``given`` is the type of what is encoded, if another."""
    shards = Shards(tuple(each.numel() for each in tensors), levels.ranks, codes)
    dtype, device = tensors[0].dtype, tensors[0].device
    return _kept(shards, levels.node_count, given or dtype, dtype, device, mean, reduces, gathers)


@functools.lru_cache(maxsize=_KEPT)
def _kept(*args: Any) -> Exchange:
    return Exchange(*args)
