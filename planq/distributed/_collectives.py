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
    """Sums the tensors of all ranks, sent as codes, and gives each rank its part of the sum.

    Args:
        tensors: A contiguous tensor of float16, bfloat16 or float32, or a list of such tensors of
            one dtype and device. All ranks give the same shapes.
        group: A process group, or None for all ranks. A DeviceMesh of two dimensions, nodes and
            devices of a node, has two levels.
        op: ``ReduceOp.SUM`` or ``AVG``.
        out: Where the parts go, of any shape with the right number of elements; None for new
            tensors of one axis. It may share memory with this rank's part of the input, and with no
            other operand.
        workspace: A uint8 tensor of :func:`workspace_size` bytes, or None to use torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        Elements ``[rank * length, (rank + 1) * length)`` of the sum in C order, with
        ``length = ceil(n / ranks)``. The last ranks may have fewer elements, or none. For a list,
        a list of these.

    Raises:
        ArgumentError: An argument is not as described, or an output overlaps another operand.
            Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks is not supported. Nothing was sent.
        WorkspaceError: The workspace is too small, misaligned, of another device or type, or
            overlaps an operand. Nothing was sent.
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
    """Gathers the tensors of all ranks, sent as codes; every rank gets the same bits.

    Args:
        tensors: A contiguous tensor of float16, bfloat16 or float32, or a list of such tensors of
            one dtype and device. All ranks give the same shapes, unless ``out`` is given.
        group: A process group, or None for all ranks. With a DeviceMesh of two dimensions, codes
            are sent between nodes first, then inside of nodes. The bits are those of one level.
        out: Where everything goes; None for a new tensor of shape ``(ranks, *shape)``. A tensor of
            n elements is cut as by :func:`quantized_reduce_scatter`, and ``tensors`` is this rank's
            part of it. That part may share memory with the input; the rest may not share memory
            with any operand.
        workspace: A uint8 tensor of :func:`workspace_size` bytes, or None to use torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        The tensors of all ranks, one rank after another. For a list, a list of these.

    Raises:
        ArgumentError: An argument is not as described, or an output overlaps another operand.
            Nothing was sent.
        DescriptorError: An option or a dtype is not supported. Nothing was sent.
        WorkspaceError: The workspace is too small, misaligned, of another device or type, or
            overlaps an operand. Nothing was sent.
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
    """Sums the tensors of all ranks, sent as codes; every rank gets the same bits of the sum.

    It is a reduce-scatter whose float32 sums are quantized again, and an all-gather of these codes.

    Args:
        tensors: A contiguous tensor of float16, bfloat16 or float32, or a list of such tensors of
            one dtype and device. All ranks give the same shapes.
        group: A process group, or None for all ranks. A DeviceMesh of two dimensions, nodes and
            devices of a node, has two levels.
        op: ``ReduceOp.SUM`` or ``AVG``.
        out: Where the sums go; None for new tensors. It may be the input itself, and shares memory
            with no other operand.
        workspace: A uint8 tensor of :func:`workspace_size` bytes, or None to use torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        The sum, in the input's shape and dtype. For a list, a list of these.

    Raises:
        ArgumentError: An argument is not as described, or an output overlaps another operand.
            Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks is not supported. Nothing was sent.
        WorkspaceError: The workspace is too small, misaligned, of another device or type, or
            overlaps an operand. Nothing was sent.
    """
    return _call("all_reduce", tensors, group, op, out, workspace, options)


class BoundCollective:
    """A collective whose tensors stay at their addresses; :func:`bind` makes it.

    Calling it enqueues it on torch's current stream, without checks, and allocates nothing.

    Attributes:
        out: The results: a tensor, or a list as the input is one.
    """

    __slots__ = ("_calls", "_held", "out")

    def __init__(self, calls: Calls | None, out: Any, *held: Any) -> None:
        self.out, self._calls, self._held = out, calls, held

    def __call__(self) -> None:
        """Reads what the inputs hold now, and writes :attr:`out`."""
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
    """Checks a collective once, for tensors that stay at their addresses.

    Each call of the result runs the collective on what the tensors then hold. The result keeps the
    tensors, the outputs and the workspace alive.

    Args:
        collective: ``"reduce_scatter"``, ``"all_gather"`` or ``"all_reduce"``.
        tensors: As in the collective.
        group: As in the collective.
        op: As in the collective; SUM for ``all_gather``.
        out: As in the collective.
        workspace: As in the collective.
        **options: As in the collective.

    Raises:
        ArgumentError: As in the collective; or no collective has that name.
        DescriptorError: As in the collective.
        WorkspaceError: As in the collective.
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
    """Bytes of workspace that a collective needs, at an address aligned to `WORKSPACE_ALIGNMENT`.

    Args:
        collective: ``"reduce_scatter"``, ``"all_gather"`` or ``"all_reduce"``.
        tensors: The tensors of the call; for ``all_gather``, those of its ``out``.
        group: The group of the call.
        **options: The options of the call.

    Raises:
        ArgumentError: An argument is not as described.
        DescriptorError: An option, a dtype or a number of ranks is not supported.
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
    """Runs a collective; returns its results as a tensor or a list, like the input."""
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
    """Makes all checks; returns what to run, the outputs, and the memory for messages."""
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
    """Refuses inputs of an all-gather that are not as large as this rank's part of the output."""
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
