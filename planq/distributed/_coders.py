"""How the rows of an exchange become messages, and messages rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from planq.distributed._codes import Message
from planq.distributed._layout import Piece
from planq.distributed._memory import Room, view_of
from planq.distributed._plans import Place, Plans, Received, Recipe, Spot
from planq.distributed._segments import Run, whole_rows
from planq.plan import Plan

SENT: Final = 0
RECEIVED: Final = 1
FLAT: Final = 2
ELEMENTS: Final = 3
"""The memories of a call: areas of messages, then those of the elements that are read, of those
that are written."""


class RowCoder:
    """A launch for each run of elements, to its place in a message, and back.

    Nothing is copied in between, and rows can be cut into pieces; as many launches as ranks, for a
    tensor. Each step has a method, for its launches of a piece.
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
        read: int,
    ) -> None:
        """``ranks``: the nodes, the devices of each, and this rank.

        ``sources`` and ``targets``: where the elements of a piece lie that become codes, and those
        that are made of them. ``read``: in how many memories the former lie.
        """
        self.plans, self.codes = plans, plans.codes
        self.nodes, self.devices, self.rank = ranks
        self.ranks, self.width, self.wanted = self.nodes * self.devices, width, wanted
        self.last = self.nodes if self.nodes > 1 else self.devices
        self.sources, self.targets, self.written = sources, targets, ELEMENTS + read
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

    def encode(self, piece: Piece) -> list[Recipe]:
        """Of the rows of all ranks, to bundles."""
        runs = self.sources(piece)
        return [
            launch
            for rank in range(self.ranks)
            for launch in self._coded("encode", runs, rank, piece.in_bundle(SENT, rank))
        ]

    def encode_own(self, piece: Piece) -> list[Recipe]:
        """Of this rank's row, to the message that others gather."""
        return self._coded("encode_own", self.sources(piece), 0, self._own(piece))

    def _coded(self, step: str, runs: list[Run], rank: int, place: Place) -> list[Recipe]:
        size = self.plans.given.itemsize
        return [
            self.plans.encode(
                self.plan(step, run.elements),
                run.spot(ELEMENTS, rank, size),
                place.behind(run.offset, self.codes),
            )
            for run in runs
        ]

    def between(self, piece: Piece) -> list[Recipe]:
        """Adds what devices sent, to messages for the nodes."""
        plan = self.plan("between", piece.elements)
        found = [piece.in_bundle(RECEIVED, node * self.devices) for node in range(self.nodes)]
        return [
            self.plans.add(
                plan,
                Received(place, self.devices, piece.bundle.size),
                piece.in_message(SENT, node),
            )
            for node, place in enumerate(found)
        ]

    def reduce(self, piece: Piece) -> list[Recipe]:
        """Adds what came last, to this rank's row of elements."""
        came, size = self._came(piece), self.wanted.itemsize
        return [
            self.plans.add(
                self.plan("reduce", run.elements),
                came._replace(first=came.first.behind(run.offset, self.codes)),
                run.spot(self.written, 0, size),
            )
            for run in self.targets(piece)
        ]

    def reduce_own(self, piece: Piece) -> list[Recipe]:
        """The same, to the message that others gather."""
        plan = self.plan("reduce_own", piece.elements)
        return [self.plans.add(plan, self._came(piece), self._own(piece))]

    def decode(self, piece: Piece) -> list[Recipe]:
        """Of the messages of all ranks, to their rows."""
        runs, size = self.targets(piece), self.wanted.itemsize
        return [
            self.plans.decode(
                self.plan("decode", run.elements),
                piece.in_message(SENT, piece.slot(rank)).behind(run.offset, self.codes),
                run.spot(self.written, rank, size),
            )
            for rank in range(self.ranks)
            for run in runs
        ]

    def decode_sent(self, piece: Piece) -> list[Recipe]:
        """What :meth:`encode` made, as others see it: float32 rows."""
        plan, [rows] = self.plan("decode_sent", piece.elements), whole_rows(piece, self.width)
        return [
            self.plans.decode(plan, piece.in_bundle(SENT, rank), rows.spot(ELEMENTS, rank, 4))
            for rank in range(self.ranks)
        ]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """What :meth:`decode_sent` made, by ranks."""
        return rows

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches read, if they read none of the messages."""

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches wrote, if they wrote none of the messages."""

    def _own(self, piece: Piece) -> Place:
        return piece.in_message(SENT, piece.slot(self.rank))

    def _came(self, piece: Piece) -> Received:
        return Received(piece.in_message(RECEIVED, 0), self.last, piece.message.size)


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

    def encode(self, piece: Piece) -> list[Recipe]:
        """Of all rows; of two levels in the order of the devices."""
        [run] = self.sources(piece)
        source = run.spot(ELEMENTS, 0, self.plans.given.itemsize)
        return [self.plans.encode(self.plan("encode", piece.elements), source, self._flat())]

    def between(self, piece: Piece) -> list[Recipe]:
        """Adds what devices sent, for all nodes."""
        found = Received(piece.in_bundle(RECEIVED, 0), self.devices, piece.bundle.size)
        return [self.plans.add(self.plan("between", piece.elements), found, self._flat())]

    def decode(self, piece: Piece) -> list[Recipe]:
        """Of all rows."""
        [run] = self.targets(piece)
        target = run.spot(self.written, 0, self.wanted.itemsize)
        return [self.plans.decode(self.plan("decode", piece.elements), self._flat(), target)]

    def decode_sent(self, piece: Piece) -> list[Recipe]:
        """What :meth:`encode` made, in its order."""
        plan = self.plan("decode_sent", piece.elements)
        return [self.plans.decode(plan, self._flat(), Spot(ELEMENTS, 0))]

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

    def _flat(self) -> Place:
        return Place(FLAT, 0, self.whole.offset)
