"""How the rows of an exchange become messages, and messages rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from planq import _core
from planq.distributed._codes import Message
from planq.distributed._layout import Piece
from planq.distributed._memory import Room, view_of
from planq.distributed._plans import Place, Plans, Received
from planq.distributed._segments import Run, whole_rows
from planq.plan import Plan

Launches = list[_core.Launch]


class Addresses(NamedTuple):
    """Of what a call reads and writes: elements, by the memory of a :class:`Run`; messages."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    sent: int
    received: int
    flat: int


class RowCoder:
    """A launch for each run of elements, to its place in a message, and back.

    Nothing is copied in between, and rows can be cut into pieces; as many launches as ranks, for a
    tensor. Each step has a method that binds its launches to addresses.
    """

    copies: bool = False

    def __init__(
        self,
        plans: Plans,
        ranks: tuple[int, int, int],
        width: int,
        wanted: torch.dtype,
        sources: Callable[[Piece], list[Run]],
        targets: Callable[[Piece], list[Run]],
    ) -> None:
        """``ranks``: the nodes, the devices of each, and this rank.

        ``sources`` and ``targets``: where the elements of a piece lie that become codes, and those
        that are made of them.
        """
        self.plans, self.codes = plans, plans.codes
        self.nodes, self.devices, self.rank = ranks
        self.ranks, self.width, self.wanted = self.nodes * self.devices, width, wanted
        self.last = self.nodes if self.nodes > 1 else self.devices
        self.sources, self.targets = sources, targets
        self._known: dict[tuple[str, int], Plan] = {}

    def prepare(self, step: str, piece: Piece) -> None:
        """Selects the plans of a step.

        Raises:
            DescriptorError: A dtype or the number of ranks has no meaning.
        """
        runs = {
            "encode": self.sources,
            "encode_own": self.sources,
            "reduce": self.targets,
            "decode": self.targets,
        }
        found = runs[step](piece) if step in runs else []
        for elements in {run.elements for run in found} or {piece.elements}:
            self.plan(step, elements)

    def plan(self, step: str, elements: int) -> Plan:
        """That of a step, for so many elements."""
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
        runs = self.sources(piece)
        return [
            launch
            for rank in range(self.ranks)
            for launch in self._coded("encode", runs, at, rank, piece.in_bundle(at.sent, rank))
        ]

    def encode_own(self, piece: Piece, at: Addresses) -> Launches:
        """Of this rank's row, to the message that others gather."""
        return self._coded("encode_own", self.sources(piece), at, 0, self._own(piece, at))

    def _coded(
        self, step: str, runs: list[Run], at: Addresses, rank: int, place: Place
    ) -> Launches:
        size = self.plans.given.itemsize
        return [
            self.plans.encode(
                self.plan(step, run.elements),
                run.address(at.source, rank, size),
                place.behind(run.offset, self.codes),
            )
            for run in runs
        ]

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
        came, size = self._came(piece, at), self.wanted.itemsize
        return [
            self.plans.add(
                self.plan("reduce", run.elements),
                came._replace(first=came.first.behind(run.offset, self.codes)),
                run.address(at.target, 0, size),
            )
            for run in self.targets(piece)
        ]

    def reduce_own(self, piece: Piece, at: Addresses) -> Launches:
        """The same, to the message that others gather."""
        plan = self.plan("reduce_own", piece.elements)
        return [self.plans.add(plan, self._came(piece, at), self._own(piece, at))]

    def decode(self, piece: Piece, at: Addresses) -> Launches:
        """Of the messages of all ranks, to their rows."""
        runs, size = self.targets(piece), self.wanted.itemsize
        return [
            self.plans.decode(
                self.plan("decode", run.elements),
                piece.in_message(at.sent, piece.slot(rank)).behind(run.offset, self.codes),
                run.address(at.target, rank, size),
            )
            for rank in range(self.ranks)
            for run in runs
        ]

    def decode_sent(self, piece: Piece, at: Addresses) -> Launches:
        """What :meth:`encode` made, as others see it: float32 rows."""
        plan, [rows] = self.plan("decode_sent", piece.elements), whole_rows(piece, self.width)
        return [
            self.plans.decode(
                plan, piece.in_bundle(at.sent, rank), rows.address(at.target, rank, 4)
            )
            for rank in range(self.ranks)
        ]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """What :meth:`decode_sent` made, by ranks."""
        return rows

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches read, if they read none of the messages."""

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches wrote, if they wrote none of the messages."""

    def _own(self, piece: Piece, at: Addresses) -> Place:
        return piece.in_message(at.sent, piece.slot(self.rank))

    def _came(self, piece: Piece, at: Addresses) -> Received:
        return Received(piece.in_message(at.received, 0), self.last, piece.message.size)


class BulkCoder(RowCoder):
    """One launch for all rows, and two copies from codes to messages, or back: for many ranks.

    Rows lie one after another, in one memory.
    """

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
        [run] = self.sources(piece)
        source = run.address(at.source, 0, self.plans.given.itemsize)
        return [self.plans.encode(self.plan("encode", piece.elements), source, self._flat(at))]

    def between(self, piece: Piece, at: Addresses) -> Launches:
        """Adds what devices sent, for all nodes."""
        found = Received(piece.in_bundle(at.received, 0), self.devices, piece.bundle.size)
        return [self.plans.add(self.plan("between", piece.elements), found, self._flat(at))]

    def decode(self, piece: Piece, at: Addresses) -> Launches:
        """Of all rows."""
        [run] = self.targets(piece)
        target = run.address(at.target, 0, self.wanted.itemsize)
        return [self.plans.decode(self.plan("decode", piece.elements), self._flat(at), target)]

    def decode_sent(self, piece: Piece, at: Addresses) -> Launches:
        """What :meth:`encode` made, in its order."""
        plan = self.plan("decode_sent", piece.elements)
        return [self.plans.decode(plan, self._flat(at), at.target[0])]

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
