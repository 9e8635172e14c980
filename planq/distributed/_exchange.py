"""Collectives that are prepared once: what each call enqueues, and what torch sends between."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from planq import _core
from planq.distributed import _transport
from planq.distributed._coders import BulkCoder, RowCoder
from planq.distributed._codes import Codes
from planq.distributed._layout import MOST_PIECES, Piece, pieces
from planq.distributed._levels import Levels
from planq.distributed._memory import Room, Sizes, view_of
from planq.distributed._plans import Plans
from planq.distributed._segments import Segments, directly, whole_rows
from planq.distributed._shards import Shards
from planq.stream import host_stream
from planq.torch._running import room

FEW = 8
"""Up to as many ranks each row is coded by a launch of its own."""
_KEPT: Final = 256
"""Kinds of calls that stay prepared."""
_ADDRESSES: Final = 64
"""Sets of addresses that the launches of each kind stay bound to, where those are few."""
_LAUNCHES: Final = 1024
"""Launches of each kind that stay bound, at most."""

Send: TypeAlias = "Callable[[Room, Piece, Levels, bool], Any]"


class Exchange:
    """A collective of tensors of given sizes on one device, for one rank of some.

    Plans are selected, and messages have their places. What can be refused without tensors is
    refused here. A call brings addresses: launches are bound to them, and kept for the next calls
    with the same ones. Nothing here holds memory or a process group.
    """

    def __init__(
        self,
        shards: Shards,
        nodes: int,
        rank: int,
        rows: torch.dtype | None,
        wanted: torch.dtype,
        device: torch.device,
        mean: bool,
        reduces: bool,
        gathers: bool,
    ) -> None:
        """Tensors of ``wanted`` are reduced or gathered, or both.

        ``rows``: what becomes codes are no tensors, but rows of this dtype, one after another.

        Raises:
            DescriptorError: A dtype or the number of ranks has no meaning.
        """
        self.shards, self.codes, width = shards, shards.codes, shards.width
        self.own, self.places = shards.own(rank), shards.places(rank)
        self.given, self.wanted, self.device = rows or wanted, wanted, device
        self.in_rows = rows is not None
        ranks = nodes, shards.ranks // nodes, rank
        few = shards.ranks <= FEW
        self.pieces = pieces(self.codes, *ranks[:2], width, MOST_PIECES if few else 1)
        self.segments = Segments(shards, directly(shards) if few or shards.exact else [])
        self._copied_width = self.segments.rows.width
        in_tensors = self.segments.runs
        self.coder = (RowCoder if few else BulkCoder)(
            Plans(self.codes, self.given, device, mean),
            ranks,
            width,
            wanted,
            functools.partial(whole_rows, width=width) if self.in_rows else in_tensors,
            in_tensors,
            1 if self.in_rows else 1 + len(self.segments.direct),
        )
        self._stages = _stages(nodes > 1, reduces, gathers)
        for step, _ in self._stages:
            for piece in self.pieces if step else ():
                self.coder.prepare(step, piece)
        self._recipes = [
            [getattr(self.coder, step)(piece) if step and width else [] for piece in self.pieces]
            for step, _ in self._stages
        ]
        self._decoders = [
            recipe
            for piece in self.pieces
            for recipe in (self.coder.decode_sent(piece) if self.in_rows else ())
        ]
        self.sizes = self._sizes()
        self._messages = self._shape()
        # Of this object, and dropped with it.
        launches = sum(len(piece) for stage in self._recipes for piece in stage)
        kept = max(1, min(_ADDRESSES, _LAUNCHES // max(1, launches)))
        self._bound = functools.lru_cache(maxsize=kept)(self._bind)
        self._bound_decoders = functools.lru_cache(maxsize=kept)(self._bind_decoders)

    # --- Memory

    def _sizes(self) -> Sizes:
        area = sum(piece.size for piece in self.pieces)
        held = self.shards if self.in_rows else self.segments.rows
        size = max(self.given.itemsize, self.wanted.itemsize)
        rows = held.ranks * held.width * size
        flat = self.coder.whole.size if isinstance(self.coder, BulkCoder) else 0
        return Sizes(area, area, rows, flat)

    def _shape(self) -> tuple[int, ...]:
        """Of an area that is nothing but the messages of one transfer, so that it is sent as is."""
        [first, *others] = self.pieces
        messages = (self.coder.devices, first.bundle.size)
        return (self.sizes.sent,) if others or self.coder.nodes > 1 else messages

    @property
    def workspace_size(self) -> int:
        """Bytes of all areas."""
        return self.sizes.total

    def memory(self) -> torch.Tensor:
        """Bytes of torch's allocator, for several calls."""
        found = room(self.workspace_size, self.device)
        return torch.empty(0, dtype=torch.uint8, device=self.device) if found is None else found

    def room(self, like: torch.Tensor, workspace: torch.Tensor | None) -> Room:
        """The areas of a call.

        Raises:
            WorkspaceError: The caller's memory does not do.
        """
        if workspace is None:
            return self.sizes.allocated(like, self._messages)
        self.sizes.check(workspace, self.device)
        return self.sizes.cut(workspace, self._messages)

    # --- Launches

    def _areas(self, room: Room) -> tuple[int, int, int]:
        """The addresses of the memories that come first."""
        flat = 0 if room.flat is None else room.flat.data_ptr()
        return room.sent.data_ptr(), room.received.data_ptr(), flat

    def _bind(self, *memories: int) -> list[list[list[_core.Launch]]]:
        """By stages and pieces."""
        return [
            [[recipe.bind(memories) for recipe in piece] for piece in stage]
            for stage in self._recipes
        ]

    def _bind_decoders(self, *memories: int) -> list[_core.Launch]:
        return [recipe.bind(memories) for recipe in self._decoders]

    def _stream(self) -> Any:
        """Torch's current one, as launches read it fastest."""
        if self.device.type == "cuda":
            index = self.device.index
            return (torch._C._cuda_getCurrentRawStream(index), index)
        return _host(torch.get_num_threads())

    # --- From tensors, and to tensors

    def reduce_scatter(
        self,
        room: Room,
        levels: Levels,
        given: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
    ) -> None:
        """Adds what ranks give, into this rank's part of each tensor."""
        rows = self._rows(room, 1, self.wanted)
        self.run(room, levels, self.filled(room, given), self._memories(rows, outs))
        if rows is not None:
            self.segments.rows.read_part(rows[0], levels.rank, self._copied(outs))

    def all_gather(
        self,
        room: Room,
        levels: Levels,
        given: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
    ) -> None:
        """Gathers the parts of ranks."""
        row = self._rows(room, 1, self.given)
        if row is not None:
            self.segments.rows.fill_part(row[0], levels.rank, self._copied(given))
        self.to_all(room, levels, self._memories(row, given), outs)

    def filled(self, room: Room, given: Sequence[torch.Tensor]) -> tuple[int, ...]:
        """Where the elements of all rows lie, after copies of what has to be copied."""
        rows = self._rows(room, self.shards.ranks, self.given)
        if rows is not None:
            self.segments.rows.fill(rows, self._copied(given))
        return self._memories(rows, given)

    def all_rows(self, room: Room, given: Sequence[torch.Tensor]) -> torch.Tensor:
        """A row for every rank, of copies, in the dtype of what becomes codes."""
        assert room.rows is not None
        shape = (self.shards.ranks, self.shards.width)
        size = math.prod(shape) * self.given.itemsize
        rows = room.rows[:size].view(self.given).view(shape)
        self.shards.fill(rows, given)
        return rows

    def to_all(
        self,
        room: Room,
        levels: Levels,
        source: tuple[int, ...],
        outs: Sequence[torch.Tensor],
        seen: Callable[[], None] | None = None,
    ) -> None:
        """What every rank gets whole, of rows of elements."""
        rows = self._rows(room, self.shards.ranks, self.wanted)
        self.run(room, levels, source, self._memories(rows, outs), seen)
        if rows is not None:
            self.segments.rows.read(rows, self._copied(outs))

    def _rows(self, room: Room, ranks: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Those of what is copied; None: nothing is."""
        width = self._copied_width
        if width == 0:
            return None
        assert room.rows is not None
        return room.rows[: ranks * width * dtype.itemsize].view(dtype).view(ranks, width)

    def _memories(
        self, rows: torch.Tensor | None, tensors: Sequence[torch.Tensor]
    ) -> tuple[int, ...]:
        """The addresses that segments count from."""
        first = 0 if rows is None else rows.data_ptr()
        return (first, *[tensors[i].data_ptr() for i in self.segments.direct])

    def _copied(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensors[i] for i in self.segments.copied]

    # --- Steps

    def run(
        self,
        room: Room,
        levels: Levels,
        source: tuple[int, ...],
        target: tuple[int, ...],
        seen: Callable[[], None] | None = None,
    ) -> None:
        """Everything between elements at two places; ``seen``: called when all have become codes.

        A piece is on its way while others are coded: what it needs next waits for it, on the
        stream alone.
        """
        bound, stream = self._bound(*self._areas(room), *source, *target), self._stream()
        several = len(self.pieces) > 1
        if seen is not None:
            for piece, launches in zip(self.pieces, bound[0], strict=True):
                self._launch("encode", piece, room, launches, stream)
            seen()
        under_way: list[Any] = [None] * len(self.pieces)
        for (step, send), of_pieces in zip(self._stages, bound, strict=True):
            for place, piece in enumerate(self.pieces):
                if under_way[place] is not None:
                    under_way[place].wait()
                if seen is None or step != "encode":
                    self._launch(step, piece, room, of_pieces[place], stream)
                if send is not None:
                    work = send(room, piece, levels, several)
                    under_way[place] = work if several else None

    def _launch(
        self, step: str, piece: Piece, room: Room, launches: Sequence[_core.Launch], stream: Any
    ) -> None:
        copies = self.coder.copies
        if copies:
            self.coder.before(step, piece, room)
        for launch in launches:
            launch(stream)
        if copies:
            self.coder.after(step, piece, room)

    def decoded(self, room: Room) -> torch.Tensor:
        """What rows became, as others see it: float32 rows of the ranks."""
        shape = (self.shards.ranks, self.shards.width)
        found = room.sent.new_empty(shape, dtype=torch.float32)
        stream = self._stream()
        for launch in self._bound_decoders(*self._areas(room), found.data_ptr()):
            launch(stream)
        return self.coder.ordered(found)


# --- What torch sends


def _to_devices(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Any:
    """A bundle to each device of the first level."""
    ranks, size = piece.devices, piece.bundle.size
    sent = view_of(room.sent, piece.offset, ranks, size)
    received = view_of(room.received, piece.offset, ranks, size)
    return _transport.scatter(received, sent, levels.devices, under_way)


def _to_nodes(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Any:
    """A message to each node of the second."""
    ranks, size = piece.nodes, piece.message.size
    sent = view_of(room.sent, piece.offset, ranks, size)
    received = view_of(room.received, piece.offset, ranks, size)
    assert levels.nodes is not None
    return _transport.scatter(received, sent, levels.nodes, under_way)


def _from_nodes(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Any:
    """The message of each node, in place."""
    size, first = piece.message.size, levels.device * piece.nodes
    whole = view_of(room.sent, piece.offset + first * size, piece.nodes, size)
    own = view_of(room.sent, piece.offset + (first + levels.node) * size, 1, size)
    assert levels.nodes is not None
    return _transport.gather(whole, own, levels.nodes, under_way)


def _from_devices(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Any:
    """The messages that each device has, in place."""
    size, nodes = piece.message.size, piece.nodes
    whole = view_of(room.sent, piece.offset, piece.devices * nodes, size)
    own = view_of(room.sent, piece.offset + levels.device * piece.nodes * size, nodes, size)
    return _transport.gather(whole, own, levels.devices, under_way)


def _stages(two_levels: bool, reduces: bool, gathers: bool) -> list[tuple[str, Send | None]]:
    """The steps of a collective, by their names in a coder, and what is sent behind each."""
    found: list[tuple[str, Send | None]] = []
    if reduces:
        found.append(("encode", _to_devices))
        if two_levels:
            found.append(("between", _to_nodes))
    if not gathers:
        return [*found, ("reduce", None)]
    own = "reduce_own" if reduces else "encode_own"
    if two_levels:
        return [*found, (own, _from_nodes), ("", _from_devices), ("decode", None)]
    return [*found, (own, _from_devices), ("decode", None)]


# --- What is kept


def exchange_of(
    tensors: Sequence[torch.Tensor],
    levels: Levels,
    codes: Codes,
    *,
    mean: bool,
    reduces: bool,
    gathers: bool,
    rows: torch.dtype | None = None,
) -> Exchange:
    """The exchange for tensors; ``rows``: what becomes codes are rows of this dtype instead."""
    first = tensors[0]
    counts = tuple([each.numel() for each in tensors])
    dtype, device, nodes = first.dtype, first.device, levels.node_count
    about = (nodes, levels.rank, rows, dtype, device, mean, reduces, gathers)
    return _kept(counts, levels.ranks, codes, *about)


@functools.lru_cache(maxsize=_KEPT)
def _kept(counts: tuple[int, ...], ranks: int, codes: Codes, *about: Any) -> Exchange:
    return Exchange(Shards(counts, ranks, codes), *about)


def forget() -> None:
    """Drops everything that is kept."""
    _kept.cache_clear()


@functools.lru_cache(maxsize=64)
def _host(threads: int) -> _core.HostStream:
    return host_stream(threads)
