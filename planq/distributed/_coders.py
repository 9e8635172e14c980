"""How the rows of an exchange become messages, and messages rows."""

from __future__ import annotations

from typing import NamedTuple

import torch

from planq import _core
from planq.distributed._codes import Message
from planq.distributed._layout import Piece
from planq.distributed._memory import Room, view_of
from planq.distributed._plans import Place, Plans, Received
from planq.plan import Plan

Launches = list[_core.Launch]


class Addresses(NamedTuple):
    """Of what a call reads and writes."""

    source: int
    target: int
    sent: int
    received: int
    flat: int


class RowCoder:
    """A launch for each row, from its elements to its message, and back.

    Nothing is copied in between, and rows can be cut into pieces; as many launches as ranks.
    Each step has a method that binds its launches to addresses.
    """

    copies: bool = False

    def __init__(
        self, plans: Plans, ranks: tuple[int, int, int], width: int, wanted: torch.dtype
    ) -> None:
        """``ranks``: the nodes, the devices of each, and this rank."""
        self.plans, self.codes = plans, plans.codes
        self.nodes, self.devices, self.rank = ranks
        self.ranks, self.width, self.wanted = self.nodes * self.devices, width, wanted
        self.last = self.nodes if self.nodes > 1 else self.devices
        self._known: dict[tuple[str, int], Plan] = {}

    def plan(self, step: str, elements: int) -> Plan:
        """That of a step, for pieces of so many elements of a row.

        Raises:
            DescriptorError: A dtype or the number of ranks has no meaning.
        """
        found = self._known.get((step, elements))
        if found is None:
            found = self._known[step, elements] = self._select(step, elements)
        return found

    def _select(self, step: str, elements: int) -> Plan:
        plans = self.plans
        match step:
            case "encode" | "encode_own":
                return plans.encoder(elements)
            case "between":
                return plans.adder(elements, self.devices, self.codes.dtype)
            case "reduce":
                return plans.adder(elements, self.last, self.wanted)
            case "reduce_own":
                return plans.adder(elements, self.last, self.codes.dtype)
            case "decode":
                return plans.decoder(elements, self.wanted)
            case _:
                return plans.decoder(elements, torch.float32)

    def encode(self, piece: Piece, at: Addresses) -> Launches:
        """Of the rows of all ranks, to bundles."""
        plan, size = self.plan("encode", piece.elements), self.plans.given.itemsize
        return [
            self.plans.encode(plan, self._in_row(at.source, rank, piece, size), place)
            for rank, place in self._bundles(piece, at.sent)
        ]

    def encode_own(self, piece: Piece, at: Addresses) -> Launches:
        """Of this rank's row, to the message that others gather."""
        source = self._in_row(at.source, 0, piece, self.plans.given.itemsize)
        plan = self.plan("encode_own", piece.elements)
        return [self.plans.encode(plan, source, self._own(piece, at))]

    def between(self, piece: Piece, at: Addresses) -> Launches:
        """Adds what devices sent, to messages for the nodes."""
        plan = self.plan("between", piece.elements)
        found = [piece.in_bundle(at.received, node * self.devices) for node in range(self.nodes)]
        return [
            self.plans.add(
                plan,
                Received(place, self.devices, piece.bundle.size),
                piece.in_message(at.sent, node),
            )
            for node, place in enumerate(found)
        ]

    def reduce(self, piece: Piece, at: Addresses) -> Launches:
        """Adds what came last, to this rank's row of elements."""
        target = self._in_row(at.target, 0, piece, self.wanted.itemsize)
        return [self.plans.add(self.plan("reduce", piece.elements), self._came(piece, at), target)]

    def reduce_own(self, piece: Piece, at: Addresses) -> Launches:
        """The same, to the message that others gather."""
        plan = self.plan("reduce_own", piece.elements)
        return [self.plans.add(plan, self._came(piece, at), self._own(piece, at))]

    def decode(self, piece: Piece, at: Addresses) -> Launches:
        """Of the messages of all ranks, to their rows."""
        plan, size = self.plan("decode", piece.elements), self.wanted.itemsize
        return [
            self.plans.decode(
                plan,
                piece.in_message(at.sent, piece.slot(rank)),
                self._in_row(at.target, rank, piece, size),
            )
            for rank in range(self.ranks)
        ]

    def decode_sent(self, piece: Piece, at: Addresses) -> Launches:
        """What :meth:`encode` made, as others see it: float32 rows."""
        plan = self.plan("decode_sent", piece.elements)
        return [
            self.plans.decode(plan, place, self._in_row(at.target, rank, piece, 4))
            for rank, place in self._bundles(piece, at.sent)
        ]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """What :meth:`decode_sent` made, by ranks."""
        return rows

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches read, if they read none of the messages."""

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches wrote, if they wrote none of the messages."""

    def _in_row(self, first: int, row: int, piece: Piece, size: int) -> int:
        return first + (row * self.width + piece.first) * size

    def _bundles(self, piece: Piece, area: int) -> list[tuple[int, Place]]:
        return [(rank, piece.in_bundle(area, rank)) for rank in range(self.ranks)]

    def _own(self, piece: Piece, at: Addresses) -> Place:
        return piece.in_message(at.sent, piece.slot(self.rank))

    def _came(self, piece: Piece, at: Addresses) -> Received:
        return Received(piece.in_message(at.received, 0), self.last, piece.message.size)


class BulkCoder(RowCoder):
    """One launch for all rows, and two copies from codes to messages, or back: for many ranks."""

    copies = True

    @property
    def whole(self) -> Message:
        """How codes and parameters of all rows lie in the order of the elements."""
        return Message(self.codes, self.ranks * self.width)

    def _select(self, step: str, elements: int) -> Plan:
        plans, all_ = self.plans, self.ranks * self.width
        match step:
            case "encode":
                return plans.encoder(all_, self.nodes, self.devices)
            case "between":
                return plans.adder(self.nodes * self.width, self.devices, self.codes.dtype)
            case "decode":
                return plans.decoder(all_, self.wanted)
            case "decode_sent":
                return plans.decoder(all_, torch.float32)
            case _:
                return super()._select(step, elements)

    def encode(self, piece: Piece, at: Addresses) -> Launches:
        """Of all rows; of two levels in the order of the devices."""
        plan = self.plan("encode", piece.elements)
        return [self.plans.encode(plan, at.source, self._flat(at))]

    def between(self, piece: Piece, at: Addresses) -> Launches:
        """Adds what devices sent, for all nodes."""
        found = Received(piece.in_bundle(at.received, 0), self.devices, piece.bundle.size)
        return [self.plans.add(self.plan("between", piece.elements), found, self._flat(at))]

    def decode(self, piece: Piece, at: Addresses) -> Launches:
        """Of all rows."""
        plan = self.plan("decode", piece.elements)
        return [self.plans.decode(plan, self._flat(at), at.target)]

    def decode_sent(self, piece: Piece, at: Addresses) -> Launches:
        """What :meth:`encode` made, in its order."""
        plan = self.plan("decode_sent", piece.elements)
        return [self.plans.decode(plan, self._flat(at), at.target)]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """By nodes and their devices."""
        by_devices = rows.view(self.devices, self.nodes, self.width)
        return by_devices.transpose(0, 1).reshape(self.ranks, self.width)

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what was gathered, in the order of the ranks."""
        if step != "decode":
            return
        shape = (self.devices, self.nodes, piece.message.size)
        gathered = view_of(room.sent, piece.offset, self.ranks, piece.message.size)
        self._copy(room, piece.message, gathered.view(shape).transpose(0, 1), back=True)

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies codes and parameters to what is sent: a bundle for each device, or to nodes."""
        if step == "encode":
            size = piece.bundle.size
            bundles = view_of(room.sent, piece.offset, self.devices, size)
            self._copy(room, piece.bundle, bundles)
        if step == "between":
            messages = view_of(room.sent, piece.offset, self.nodes, piece.message.size)
            self._copy(room, piece.message, messages)

    def _copy(
        self, room: Room, message: Message, messages: torch.Tensor, *, back: bool = False
    ) -> None:
        """Between messages, which lie along the last axis, and what is flat."""
        assert room.flat is not None
        whole, flat = self.whole, room.flat
        for held, first in (
            (message.codes_in(messages), 0),
            (message.parameters_in(messages), whole.offset),
        ):
            size = held.numel() * held.itemsize
            plain = flat[first : first + size].view(held.dtype).view(held.shape)
            if back:
                plain.copy_(held)
            else:
                held.copy_(plain)

    def _flat(self, at: Addresses) -> Place:
        return Place(at.flat, at.flat + self.whole.offset)
