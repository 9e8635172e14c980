"""The collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Unpack, overload

import torch
import torch.distributed as dist

from planq.distributed._checks import Op, Tensors, checked, is_list, is_mean, name_of, outputs
from planq.distributed._codes import Codes, Options
from planq.distributed._exchange import Exchange, exchange_of
from planq.distributed._levels import Group, Levels
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
    given, levels = checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    made = _exchange("reduce_scatter", given, levels, op, options)
    outs = outputs(out, tensors, given, [(count,) for count in made.own])
    room = made.room(given[0], workspace)
    if out is not None or workspace is not None:
        Operands(tensors, given, outs, made.places, gathers=False).check(
            workspace, made.workspace_size
        )
    if made.shards.width:
        made.reduce_scatter(room, levels, given, outs)
    return outs if is_list(tensors) else outs[0]


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
    given, levels = checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    outs = outputs(
        out, tensors, given, [(levels.ranks, *each.shape) for each in given], exact=False
    )
    made = _exchange("all_gather", outs, levels, SUM, options)
    for place, (part, count) in enumerate(zip(given, made.own, strict=True)):
        if part.numel() != count:
            expected = f"{count} elements, this rank's part of {tuple(outs[place].shape)}"
            raise ArgumentError(name_of("tensors", tensors, place), expected, str(part.numel()))
    room = made.room(given[0], workspace)
    if out is not None or workspace is not None:
        Operands(tensors, given, outs, made.places, gathers=True).check(
            workspace, made.workspace_size
        )
    if made.shards.width:
        made.all_gather(room, levels, given, outs)
    return outs if is_list(tensors) else outs[0]


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
    given, levels = checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    made = _exchange("all_reduce", given, levels, op, options)
    outs = outputs(out, tensors, given, [each.shape for each in given])
    room = made.room(given[0], workspace)
    if out is not None or workspace is not None:
        places = [(0, each.numel()) for each in given]
        operands = Operands(tensors, given, outs, places, gathers=False)
        operands.check(workspace, made.workspace_size)
    if made.shards.width:
        made.to_all(room, levels, made.filled(room, given), outs)
    return outs if is_list(tensors) else outs[0]


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
    if collective not in _COLLECTIVES:
        raise ArgumentError("collective", f"one of {', '.join(_COLLECTIVES)}", shown(collective))
    given = checked("tensors", tensors)
    if not given:
        return 0
    return _exchange(collective, given, Levels.of(group), SUM, options).workspace_size


_COLLECTIVES: Final = {
    "reduce_scatter": (True, False),
    "all_gather": (False, True),
    "all_reduce": (True, True),
}


def _exchange(
    collective: str, tensors: Sequence[torch.Tensor], levels: Levels, op: Op, options: Options
) -> Exchange:
    reduces, gathers = _COLLECTIVES[collective]
    codes, mean = Codes.of(options), is_mean(op)
    return exchange_of(tensors, levels, codes, mean=mean, reduces=reduces, gathers=gathers)
