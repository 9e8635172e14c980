"""Collectives that are prepared once: the launches of each call, and torch's transfers between."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from planq import _core
from planq._policy import in_force
from planq.distributed import _transport
from planq.distributed._coders import BulkCoder, RowCoder
from planq.distributed._codes import Codes
from planq.distributed._layout import MOST_PIECES, Piece, pieces
from planq.distributed._levels import Levels
from planq.distributed._memory import Room, Sizes, view_of
from planq.distributed._plans import Plans
from planq.distributed._segments import Segments, directly, whole_rows
from planq.distributed._shards import Copy, Shards
from planq.distributed._transport import Transfer, finish
from planq.preference import PlanPreference
from planq.stream import host_stream
from planq.torch._running import room

FEW = 8
"""Up to this many ranks, each row is quantized by a launch of its own."""
_KEPT: Final = 256
"""How many kinds of calls (sizes, options, ranks) stay prepared."""
_ADDRESSES: Final = 64
"""For how many sets of addresses the launches of one kind stay bound, at most."""
_LAUNCHES: Final = 1024
"""How many launches of one kind stay bound, at most."""

Send: TypeAlias = "Callable[[Room, Piece, Levels, bool], Transfer]"


class Exchange:
    """A prepared collective: tensors of given sizes, one device, one rank of a given number.

    It has selected its plans and laid out its messages. It refuses what can be refused without
    tensors. A call brings addresses: launches are bound to them, and kept for later calls with the
    same addresses. An exchange holds neither memory nor a process group.
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
        """Prepares to reduce or gather tensors of dtype ``wanted``, or both.

        With ``rows``, the inputs are not the tensors but rows of this dtype, one after another.

        Raises:
            DescriptorError: No plan takes a dtype or the number of ranks.
        """
        self.shards, self.codes, width = shards, shards.codes, shards.width
        self.own, self.places = shards.own(rank), shards.places(rank)
        self.given, self.wanted, self.device = rows or wanted, wanted, device
        self.in_rows = rows is not None
        ranks = nodes, shards.ranks // nodes, rank
        few = shards.ranks <= FEW
        self.pieces = pieces(self.codes, *ranks[:2], width, MOST_PIECES if few else 1)
        self.segments = Segments(shards, directly(shards) if few or shards.exact else [])
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
        self._reduces, self._gathers = reduces, gathers
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
        # Caches of this object, freed with it.
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
        """The shape of the areas of messages.

        If an area holds the messages of a single transfer, it has a row for each, and is sent as
        it is.
        """
        [first, *others] = self.pieces
        messages = (self.coder.devices, first.bundle.size)
        return (self.sizes.sent,) if others or self.coder.nodes > 1 else messages

    @property
    def workspace_size(self) -> int:
        """Bytes of all memory areas."""
        return self.sizes.total

    def memory(self) -> torch.Tensor:
        """A workspace from torch's allocator, for several calls."""
        found = room(self.workspace_size, self.device)
        return torch.empty(0, dtype=torch.uint8, device=self.device) if found is None else found

    def room(self, like: torch.Tensor, workspace: torch.Tensor | None) -> Room:
        """The memory areas of a call, in the caller's workspace or from torch's allocator.

        Raises:
            WorkspaceError: The caller's workspace is refused, see :meth:`Sizes.check`.
        """
        if workspace is None:
            return self.sizes.allocated(like, self._messages)
        self.sizes.check(workspace, self.device)
        return self.sizes.cut(workspace, self._messages)

    # --- Launches

    def _areas(self, room: Room) -> tuple[int, int, int]:
        """The addresses of the areas that come first in `Recipe.bind`: sent, received, flat."""
        flat = 0 if room.flat is None else room.flat.data_ptr()
        return room.sent.data_ptr(), room.received.data_ptr(), flat

    def _bind(self, *memories: int) -> list[list[list[_core.Launch]]]:
        """The launches at these addresses, by stage and piece."""
        return [
            [[recipe.bind(memories) for recipe in piece] for piece in stage]
            for stage in self._recipes
        ]

    def _bind_decoders(self, *memories: int) -> list[_core.Launch]:
        return [recipe.bind(memories) for recipe in self._decoders]

    def stream(self) -> Any:
        """The current stream of torch, in the form that launches read fastest."""
        if self.device.type == "cuda":
            index = self.device.index
            return (torch._C._cuda_getCurrentRawStream(index), index)
        return _host(torch.get_num_threads())

    # --- From tensors, and to tensors

    def calls(
        self,
        room: Room,
        levels: Levels,
        given: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
    ) -> Calls:
        """The calls that reduce or gather ``given`` into ``outs``."""
        rows, copied = self.segments.rows, self.segments.copied
        if not copied:
            source, target = self._memories(None, given), self._memories(None, outs)
            return self.steps(room, levels, source, target)
        ins, to = [given[i] for i in copied], [outs[i] for i in copied]
        own = levels.rank
        if self._reduces:
            from_ = self._rows(room, self.shards.ranks, self.given)
            before = rows.filling(from_, ins)
        else:
            from_ = self._rows(room, 1, self.given)
            before = rows.filling_part(from_[0], own, ins)
        if self._gathers:
            into = self._rows(room, self.shards.ranks, self.wanted)
            after = rows.reading(into, to)
        else:
            into = self._rows(room, 1, self.wanted)
            after = rows.reading_part(into[0], own, to)
        source, target = self._memories(from_, given), self._memories(into, outs)
        return self.steps(room, levels, source, target, before, after)

    def from_rows(
        self,
        room: Room,
        levels: Levels,
        rows: torch.Tensor,
        outs: Sequence[torch.Tensor],
    ) -> Calls:
        """The same for rows of all ranks, one after another; every rank gets the whole result."""
        after, into = None, None
        if self.segments.copied:
            into = self._rows(room, self.shards.ranks, self.wanted)
            after = self.segments.rows.reading(into, [outs[i] for i in self.segments.copied])
        target = self._memories(into, outs)
        return self.steps(room, levels, (rows.data_ptr(),), target, None, after)

    def all_rows(self, room: Room, given: Sequence[torch.Tensor]) -> torch.Tensor:
        """Copies the tensors into a row for each rank, in the dtype that plans quantize."""
        assert room.rows is not None
        shape = (self.shards.ranks, self.shards.width)
        size = math.prod(shape) * self.given.itemsize
        rows = room.rows[:size].view(self.given).view(shape)
        self.shards.filling(rows, given).run()
        return rows

    def _rows(self, room: Room, ranks: int, dtype: torch.dtype) -> torch.Tensor:
        """The rows of the tensors that are copied."""
        assert room.rows is not None
        width = self.segments.rows.width
        return room.rows[: ranks * width * dtype.itemsize].view(dtype).view(ranks, width)

    def _memories(
        self, rows: torch.Tensor | None, tensors: Sequence[torch.Tensor]
    ) -> tuple[int, ...]:
        """The addresses that `Segment.memory` numbers: copied rows, then tensors used directly."""
        first = 0 if rows is None else rows.data_ptr()
        return (first, *[tensors[i].data_ptr() for i in self.segments.direct])

    # --- Steps

    def steps(
        self,
        room: Room,
        levels: Levels,
        source: tuple[int, ...],
        target: tuple[int, ...],
        before: Copy | None = None,
        after: Copy | None = None,
    ) -> Calls:
        """The calls from elements at ``source`` to ``target``, with copies before and after."""
        bound, several = self._bound(*self._areas(room), *source, *target), len(self.pieces) > 1
        stages: list[list[Step]] = []
        for (name, send), launches in zip(self._stages, bound, strict=True):
            stages.append(
                [
                    (
                        name,
                        piece,
                        launches[place],
                        None if send is None else send(room, piece, levels, several),
                    )
                    for place, piece in enumerate(self.pieces)
                ]
            )
        return Calls(self, room, stages, before, after)

    def decoded(self, room: Room) -> torch.Tensor:
        """The rows after quantization, as receivers see them: float32, in the order of ranks."""
        shape = (self.shards.ranks, self.shards.width)
        found = room.sent.new_empty(shape, dtype=torch.float32)
        stream = self.stream()
        for launch in self._bound_decoders(*self._areas(room), found.data_ptr()):
            launch(stream)
        return self.coder.ordered(found)


Step: TypeAlias = "tuple[str, Piece, Sequence[_core.Launch], Transfer | None]"
"""A step of a piece: its name in the coder, the piece, its launches, and the transfer after."""


class Calls:
    """The launches, copies and transfers of one collective, bound to addresses."""

    __slots__ = ("_after", "_before", "_exchange", "_room", "_stages")

    def __init__(
        self,
        exchange: Exchange,
        room: Room,
        stages: list[list[Step]],
        before: Copy | None,
        after: Copy | None,
    ) -> None:
        self._exchange, self._room, self._stages = exchange, room, stages
        self._before, self._after = before, after

    def run(self, seen: Callable[[], None] | None = None) -> None:
        """Enqueues everything on torch's current stream.

        ``seen`` is called when everything is quantized and nothing is sent yet.
        """
        if self._before is not None:
            self._before.run()
        stream, stages = self._exchange.stream(), self._stages
        if seen is not None:
            for name, piece, launches, _ in stages[0]:
                self._launch(name, piece, launches, stream)
            seen()
            sent: list[Step] = [("", piece, (), send) for _, piece, _, send in stages[0]]
            stages = [sent, *stages[1:]]
        if len(stages[0]) == 1:
            for [(name, piece, launches, send)] in stages:
                self._launch(name, piece, launches, stream)
                if send is not None:
                    finish(send())
        else:
            self._run_pieces(stages, stream)
        if self._after is not None:
            self._after.run()

    def _run_pieces(self, stages: list[list[Step]], stream: Any) -> None:
        """Overlaps transfers with launches: one piece is sent while another is quantized.

        The next step of a piece waits for its transfer, on the stream and not on the host.
        """
        under_way: list[Any] = [None] * len(stages[0])
        for stage in stages:
            for place, (name, piece, launches, send) in enumerate(stage):
                if under_way[place] is not None:
                    under_way[place].wait()
                self._launch(name, piece, launches, stream)
                under_way[place] = None if send is None else send()

    def _launch(
        self, name: str, piece: Piece, launches: Sequence[_core.Launch], stream: Any
    ) -> None:
        coder = self._exchange.coder
        if not coder.copies:
            for launch in launches:
                launch(stream)
        elif name:
            coder.before(name, piece, self._room)
            for launch in launches:
                launch(stream)
            coder.after(name, piece, self._room)


# --- What torch sends


def _to_devices(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Transfer:
    """Sends a bundle to each device of the first level."""
    ranks, size = piece.devices, piece.bundle.size
    sent = view_of(room.sent, piece.offset, ranks, size)
    received = view_of(room.received, piece.offset, ranks, size)
    return _transport.scatter(received, sent, levels.devices, under_way)


def _to_nodes(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Transfer:
    """Sends a message to each node of the second level."""
    ranks, size = piece.nodes, piece.message.size
    sent = view_of(room.sent, piece.offset, ranks, size)
    received = view_of(room.received, piece.offset, ranks, size)
    assert levels.nodes is not None
    return _transport.scatter(received, sent, levels.nodes, under_way)


def _from_nodes(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Transfer:
    """Gathers the message of each node, in place."""
    size, first = piece.message.size, levels.device * piece.nodes
    whole = view_of(room.sent, piece.offset + first * size, piece.nodes, size)
    own = view_of(room.sent, piece.offset + (first + levels.node) * size, 1, size)
    assert levels.nodes is not None
    return _transport.gather(whole, own, levels.nodes, under_way)


def _from_devices(room: Room, piece: Piece, levels: Levels, under_way: bool) -> Transfer:
    """Gathers the messages that each device has, in place."""
    size, nodes = piece.message.size, piece.nodes
    whole = view_of(room.sent, piece.offset, piece.devices * nodes, size)
    own = view_of(room.sent, piece.offset + levels.device * piece.nodes * size, nodes, size)
    return _transport.gather(whole, own, levels.devices, under_way)


def _stages(two_levels: bool, reduces: bool, gathers: bool) -> list[tuple[str, Send | None]]:
    """The steps of a collective: their names in a coder, and the transfer after each, if any."""
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
    """The prepared exchange for tensors; with ``rows``, for rows of this dtype as inputs."""
    first = tensors[0]
    counts = tuple([each.numel() for each in tensors])
    dtype, device, nodes = first.dtype, first.device, levels.node_count
    about = (nodes, levels.rank, rows, dtype, device, mean, reduces, gathers)
    return _kept(in_force(), counts, levels.ranks, codes, *about)


@functools.lru_cache(maxsize=_KEPT)
def _kept(
    _: PlanPreference | None, counts: tuple[int, ...], ranks: int, codes: Codes, *about: Any
) -> Exchange:
    """An exchange under a policy, or under none."""
    return Exchange(Shards(counts, ranks, codes), *about)


def forget() -> None:
    """Drops all prepared exchanges."""
    _kept.cache_clear()


@functools.lru_cache(maxsize=64)
def _host(threads: int) -> _core.HostStream:
    return host_stream(threads)
