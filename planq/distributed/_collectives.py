"""The collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack, overload

import torch
import torch.distributed as dist

from planq.distributed._checks import Op, Tensors, checked, is_list, is_mean, name_of, outputs
from planq.distributed._codes import Codes, Options
from planq.distributed._exchange import Calls, Exchange, exchange_of
from planq.distributed._levels import Group, Levels
from planq.distributed._memory import Room
from planq.distributed._overlaps import Operands
from planq.errors import ArgumentError, shown

SUM: Final = dist.ReduceOp.SUM


@overload
def quantized_reduce_scatter(
    tensors: torch.Tensor,
    *,
    group: Group = None,
    op: Op = SUM,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> torch.Tensor: ...


@overload
def quantized_reduce_scatter(
    tensors: Sequence[torch.Tensor],
    *,
    group: Group = None,
    op: Op = SUM,
    out: Sequence[torch.Tensor] | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> list[torch.Tensor]: ...


def quantized_reduce_scatter(
    tensors: Tensors,
    *,
    group: Group = None,
    op: Op = SUM,
    out: Tensors | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> Any:
    """Sums what all ranks have, by codes, and gives each rank its part.

    Args:
        tensors: float16, bfloat16 or float32, contiguous; or a list, whose tensors have one dtype
            and device. On every rank the same shapes.
        group: A process group; None: of all ranks. A DeviceMesh of two dimensions, of nodes and of
            devices in them, has two levels.
        op: ``ReduceOp.SUM`` or ``AVG``.
        out: Where the parts go, of any shape with as many elements; None: new tensors of one axis.
            Memory of its own, or that of this rank's part of the input.
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        Elements ``[rank * length, (rank + 1) * length)`` of the sum in C order, with
        ``length = ceil(n / ranks)``: fewer, or none, where there are no more. Of a list: of each.

    Raises:
        ArgumentError: An argument is not what it has to be, or an output shares memory that it may
            not. Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks has no meaning; likewise.
        WorkspaceError: The workspace does not do, or shares memory; likewise.
    """
    return _call("reduce_scatter", tensors, group, op, out, workspace, options)


@overload
def quantized_all_gather(
    tensors: torch.Tensor,
    *,
    group: Group = None,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> torch.Tensor: ...


@overload
def quantized_all_gather(
    tensors: Sequence[torch.Tensor],
    *,
    group: Group = None,
    out: Sequence[torch.Tensor] | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> list[torch.Tensor]: ...


def quantized_all_gather(
    tensors: Tensors,
    *,
    group: Group = None,
    out: Tensors | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> Any:
    """Gives every rank what all ranks have, by codes: the same bits on each.

    Args:
        tensors: float16, bfloat16 or float32, contiguous; or a list, whose tensors have one dtype
            and device. On every rank the same shapes, unless ``out`` says otherwise.
        group: A process group; None: of all ranks. A DeviceMesh of two dimensions sends codes
            between nodes first, then inside of them: the bits are those of one level.
        out: Where everything goes; None: a new tensor ``(ranks, *shape)``. One of n elements is cut
            as :func:`quantized_reduce_scatter` cuts it: ``tensors`` is this rank's part. Memory of
            its own, but that this part of it may be the input.
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        What every rank has, one rank after another. Of a list: of each tensor.

    Raises:
        ArgumentError: An argument is not what it has to be, or an output shares memory that it may
            not. Nothing was sent.
        DescriptorError: An option or a dtype has no meaning; likewise.
        WorkspaceError: The workspace does not do, or shares memory; likewise.
    """
    return _call("all_gather", tensors, group, SUM, out, workspace, options)


@overload
def quantized_all_reduce(
    tensors: torch.Tensor,
    *,
    group: Group = None,
    op: Op = SUM,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> torch.Tensor: ...


@overload
def quantized_all_reduce(
    tensors: Sequence[torch.Tensor],
    *,
    group: Group = None,
    op: Op = SUM,
    out: Sequence[torch.Tensor] | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> list[torch.Tensor]: ...


def quantized_all_reduce(
    tensors: Tensors,
    *,
    group: Group = None,
    op: Op = SUM,
    out: Tensors | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> Any:
    """Sums what all ranks have, by codes, for all of them: the same bits on each.

    A reduce-scatter whose float32 sums become codes again, and an all-gather of those.

    Args:
        tensors: float16, bfloat16 or float32, contiguous; or a list, whose tensors have one dtype
            and device. On every rank the same shapes.
        group: A process group; None: of all ranks. A DeviceMesh of two dimensions, of nodes and of
            devices in them, has two levels.
        op: ``ReduceOp.SUM`` or ``AVG``.
        out: Where the sums go; None: new tensors. Memory of its own, or the input's.
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        The sum, in the input's shape and dtype. Of a list: of each tensor.

    Raises:
        ArgumentError: An argument is not what it has to be, or an output shares memory that it may
            not. Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks has no meaning; likewise.
        WorkspaceError: The workspace does not do, or shares memory; likewise.
    """
    return _call("all_reduce", tensors, group, op, out, workspace, options)


class BoundCollective:
    """A collective whose tensors stay where they are: :func:`bind` makes it.

    ``bound()`` enqueues it on torch's current stream, without a check, and allocates nothing.

    Attributes:
        out: The results: a tensor, or a list as the input is one.
    """

    __slots__ = ("_calls", "_held", "out")

    def __init__(self, calls: Calls | None, out: Any, *held: Any) -> None:
        self.out, self._calls, self._held = out, calls, held

    def __call__(self) -> None:
        """Takes what the inputs hold now, and writes :attr:`out`."""
        if self._calls is not None:
            self._calls.run()


def bind(
    collective: str,
    tensors: Tensors,
    *,
    group: Group = None,
    op: Op = SUM,
    out: Tensors | None = None,
    workspace: torch.Tensor | None = None,
    **options: Unpack[Options],
) -> BoundCollective:
    """Checks a collective once, for tensors that stay where they are.

    Every call of what comes back is the collective of what the tensors hold by then. It keeps them,
    the outputs and the workspace alive, and keeps to their memory.

    Args:
        collective: ``"reduce_scatter"``, ``"all_gather"`` or ``"all_reduce"``.
        tensors: As the collective takes them, and so is all that follows.
        group: Likewise.
        op: Likewise; of ``all_gather`` SUM alone.
        out: Likewise.
        workspace: Likewise.
        **options: Likewise.

    Raises:
        ArgumentError: What the collective would raise it for, or there is none of that name.
        DescriptorError: Likewise.
        WorkspaceError: Likewise.
    """
    _known(collective)
    if collective == "all_gather" and is_mean(op):
        raise ArgumentError("op", "ReduceOp.SUM, as an all_gather adds nothing", shown(op))
    calls, outs, room = _ready(collective, tensors, group, op, out, workspace, options)
    found = outs if is_list(tensors) else outs[0]
    given = tuple(tensors) if is_list(tensors) else tensors
    return BoundCollective(calls, found, given, tuple(outs), workspace, room)


def workspace_size(
    collective: str,
    tensors: Tensors,
    *,
    group: Group = None,
    **options: Unpack[Options],
) -> int:
    """Bytes that a collective needs beside its tensors, aligned to ``WORKSPACE_ALIGNMENT``.

    Args:
        collective: ``"reduce_scatter"``, ``"all_gather"`` or ``"all_reduce"``.
        tensors: Those of the call; of ``all_gather`` all that is gathered: its ``out``.
        group: That of the call.
        **options: Likewise.

    Raises:
        ArgumentError: An argument is not what it has to be.
        DescriptorError: An option, a dtype or a number of ranks has no meaning.
    """
    _known(collective)
    given = checked("tensors", tensors)
    if not given:
        return 0
    return _exchange(collective, given, Levels.of(group), SUM, options).workspace_size


_COLLECTIVES: Final = {
    "reduce_scatter": (True, False),
    "all_gather": (False, True),
    "all_reduce": (True, True),
}


def _known(collective: str) -> None:
    if collective not in _COLLECTIVES:
        raise ArgumentError("collective", f"one of {', '.join(_COLLECTIVES)}", shown(collective))


def _call(
    collective: str,
    tensors: Tensors,
    group: Group,
    op: Op,
    out: Tensors | None,
    workspace: torch.Tensor | None,
    options: Options,
) -> Any:
    """Results, as a list or not."""
    calls, outs, _ = _ready(collective, tensors, group, op, out, workspace, options)
    if calls is not None:
        calls.run()
    return outs if is_list(tensors) else outs[0]


def _ready(
    collective: str,
    tensors: Tensors,
    group: Group,
    op: Op,
    out: Tensors | None,
    workspace: torch.Tensor | None,
    options: Options,
) -> tuple[Calls | None, list[torch.Tensor], Room | None]:
    """What to run, after all checks, where results go, and the memory between."""
    given, levels = checked("tensors", tensors), Levels.of(group)
    if not given:
        return None, [], None
    gathered = collective == "all_gather"
    if gathered:
        shapes = [(levels.ranks, *each.shape) for each in given]
        outs = outputs(out, tensors, given, shapes, exact=False)
        made = _exchange(collective, outs, levels, op, options)
        _check_parts(tensors, given, outs, made)
    else:
        made = _exchange(collective, given, levels, op, options)
        reduced = collective == "all_reduce"
        shapes = [each.shape for each in given] if reduced else [(count,) for count in made.own]
        outs = outputs(out, tensors, given, shapes)
    room = made.room(given[0], workspace)
    if out is not None or workspace is not None:
        places = made.places
        if collective == "all_reduce":
            places = [(0, each.numel()) for each in given]
        operands = Operands(tensors, given, outs, places, gathers=gathered)
        operands.check(workspace, made.workspace_size)
    calls = made.calls(room, levels, given, outs) if made.shards.width else None
    return calls, outs, room


def _check_parts(
    tensors: Tensors,
    given: Sequence[torch.Tensor],
    outs: Sequence[torch.Tensor],
    made: Exchange,
) -> None:
    """Each has as many elements as its output has room for, of this rank."""
    for place, (part, count) in enumerate(zip(given, made.own, strict=True)):
        if part.numel() != count:
            expected = f"{count} elements, this rank's part of {tuple(outs[place].shape)}"
            raise ArgumentError(name_of("tensors", tensors, place), expected, str(part.numel()))


def _exchange(
    collective: str, tensors: Sequence[torch.Tensor], levels: Levels, op: Op, options: Options
) -> Exchange:
    reduces, gathers = _COLLECTIVES[collective]
    codes, mean = Codes.of(options), is_mean(op)
    return exchange_of(tensors, levels, codes, mean=mean, reduces=reduces, gathers=gathers)
