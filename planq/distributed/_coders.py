"""The launches that turn rows of elements into messages of codes, and messages into rows."""

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
"""Indices of a call's memory areas: messages that are sent, messages that are received, flat codes,
and from here on the tensors that are read, followed by those that are written."""


class RowCoder:
    """Encodes and decodes each run of elements by a launch of its own.

    Launches write into messages and read from them directly, so nothing is copied. Rows can be cut
    into pieces. A tensor takes as many launches as there are ranks. Each step of the exchange has a
    method that returns the launches of a piece.
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
        """Keeps what the launches need.

        ``ranks`` has the number of nodes, the number of devices of each, and this rank. ``sources``
        and ``targets`` return the runs of a piece that are encoded, and those that are written.
        ``read`` is the number of tensors that are read. ``wanted`` is the dtype of results.
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
            DescriptorError: No plan takes this dtype or this number of ranks.
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
        """The plan of a step for this many elements, selected once."""
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
        """Encodes the rows of all ranks into the bundles that are sent."""
        runs = self.sources(piece)
        return [
            launch
            for rank in range(self.ranks)
            for launch in self._coded("encode", runs, rank, piece.in_bundle(SENT, rank))
        ]

    def encode_own(self, piece: Piece) -> list[Recipe]:
        """Encodes this rank's row into the message that others gather."""
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
        """Sums what the devices of the node sent, into messages for the nodes."""
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
        """Sums the messages of the last exchange into this rank's row of elements."""
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
        """Sums the same into the message that others gather, as codes."""
        plan = self.plan("reduce_own", piece.elements)
        return [self.plans.add(plan, self._came(piece), self._own(piece))]

    def decode(self, piece: Piece) -> list[Recipe]:
        """Decodes the messages of all ranks into their rows."""
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
        """Decodes what :meth:`encode` made into float32 rows, as receivers see it."""
        plan, [rows] = self.plan("decode_sent", piece.elements), whole_rows(piece, self.width)
        return [
            self.plans.decode(plan, piece.in_bundle(SENT, rank), rows.spot(ELEMENTS, rank, 4))
            for rank in range(self.ranks)
        ]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows of :meth:`decode_sent` in the order of the ranks."""
        return rows

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies messages to where a step's launches read, if they do not read messages."""

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies what a step's launches wrote into messages, if they do not write messages."""

    def _own(self, piece: Piece) -> Place:
        return piece.in_message(SENT, piece.slot(self.rank))

    def _came(self, piece: Piece) -> Received:
        return Received(piece.in_message(RECEIVED, 0), self.last, piece.message.size)


class BulkCoder(RowCoder):
    """Encodes and decodes all rows in one launch, which is faster for many ranks.

    Codes and parameters of all rows then lie flat, and are copied to messages or back. Rows have to
    lie one after another in one tensor.
    """

    copies = True

    @property
    def whole(self) -> Message:
        """The flat area: codes of all rows in the order of the elements, then parameters."""
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
        """Encodes all rows; with two levels, they are ordered by device, then by node."""
        [run] = self.sources(piece)
        source = run.spot(ELEMENTS, 0, self.plans.given.itemsize)
        return [self.plans.encode(self.plan("encode", piece.elements), source, self._flat())]

    def between(self, piece: Piece) -> list[Recipe]:
        """Sums what the devices of the node sent, for all nodes."""
        found = Received(piece.in_bundle(RECEIVED, 0), self.devices, piece.bundle.size)
        return [self.plans.add(self.plan("between", piece.elements), found, self._flat())]

    def decode(self, piece: Piece) -> list[Recipe]:
        """Decodes all rows."""
        [run] = self.targets(piece)
        target = run.spot(self.written, 0, self.wanted.itemsize)
        return [self.plans.decode(self.plan("decode", piece.elements), self._flat(), target)]

    def decode_sent(self, piece: Piece) -> list[Recipe]:
        """Decodes what :meth:`encode` made, in its order."""
        plan = self.plan("decode_sent", piece.elements)
        return [self.plans.decode(plan, self._flat(), Spot(ELEMENTS, 0))]

    def ordered(self, rows: torch.Tensor) -> torch.Tensor:
        """Reorders rows from device-major to node-major, which is the order of the ranks."""
        by_devices = rows.view(self.devices, self.nodes, self.width)
        return by_devices.transpose(0, 1).reshape(self.ranks, self.width)

    def before(self, step: str, piece: Piece, room: Room) -> None:
        """Copies the gathered messages to the flat area, in the order of the ranks."""
        if step != "decode":
            return
        shape = (self.devices, self.nodes, piece.message.size)
        gathered = view_of(room.sent, piece.offset, self.ranks, piece.message.size)
        self._copy(room, piece.message, gathered.view(shape).transpose(0, 1), back=True)

    def after(self, step: str, piece: Piece, room: Room) -> None:
        """Copies codes and parameters into bundles for devices, or into messages for nodes."""
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
        """Copies from the flat area to messages (along the last axis), or back."""
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
