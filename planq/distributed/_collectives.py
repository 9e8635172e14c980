"""The collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, Unpack, overload

import torch
import torch.distributed as dist

from planq.distributed._codes import Codes, Options
from planq.distributed._exchange import Exchange, exchange
from planq.distributed._levels import Group, Levels
from planq.errors import ArgumentError, shown
from planq.torch._calls import gradient_error

Op: TypeAlias = "dist.ReduceOp | dist.ReduceOp.RedOpType"
Tensors: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"

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
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        Elements ``[rank * length, (rank + 1) * length)`` of the sum in C order, with
        ``length = ceil(n / ranks)``: fewer, or none, where there are no more. Of a list: of each.

    Raises:
        ArgumentError: An argument is not what it has to be. Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks has no meaning; likewise.
        WorkspaceError: The workspace does not do; likewise.
    """
    given, levels = _checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    made = _exchange("reduce_scatter", given, levels, op, options)
    counts = made.shards.own(levels.rank)
    outs = _outputs(out, tensors, given, [(count,) for count in counts])
    memory = made.memory(workspace)
    with torch.no_grad():
        if made.shards.width:
            made.encode(memory, rows_of(made, memory, given))
            made.scatter(memory, levels)
            reduce_to(made, memory, outs, levels.rank)
    return outs if _is_list(tensors) else outs[0]


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
            as :func:`quantized_reduce_scatter` cuts it: ``tensors`` is this rank's part.
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        What every rank has, one rank after another. Of a list: of each tensor.

    Raises:
        ArgumentError: An argument is not what it has to be. Nothing was sent.
        DescriptorError: An option or a dtype has no meaning; likewise.
        WorkspaceError: The workspace does not do; likewise.
    """
    given, levels = _checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    outs = _outputs(
        out, tensors, given, [(levels.ranks, *each.shape) for each in given], exact=False
    )
    made = _exchange("all_gather", outs, levels, SUM, options)
    for place, (part, count) in enumerate(zip(given, made.shards.own(levels.rank), strict=True)):
        if part.numel() != count:
            expected = f"{count} elements, this rank's part of {tuple(outs[place].shape)}"
            raise ArgumentError(_name("tensors", tensors, place), expected, str(part.numel()))
    memory = made.memory(workspace)
    with torch.no_grad():
        if made.shards.width:
            made.encode(memory, _row(made, memory, given, levels.rank))
            gather_to(made, memory, outs, levels)
    return outs if _is_list(tensors) else outs[0]


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
        out: Where the sums go, which may be the input; None: new tensors.
        workspace: Bytes, as many as :func:`workspace_size` says; None: from torch's allocator.
        **options: How elements become codes: :class:`Options`.

    Returns:
        The sum, in the input's shape and dtype. Of a list: of each tensor.

    Raises:
        ArgumentError: An argument is not what it has to be. Nothing was sent.
        DescriptorError: An option, a dtype or a number of ranks has no meaning; likewise.
        WorkspaceError: The workspace does not do; likewise.
    """
    given, levels = _checked("tensors", tensors), Levels.of(group)
    if not given:
        return []
    made = _exchange("all_reduce", given, levels, op, options)
    outs = _outputs(out, tensors, given, [tuple(each.shape) for each in given])
    memory = made.memory(workspace)
    with torch.no_grad():
        if made.shards.width:
            made.encode(memory, rows_of(made, memory, given))
            made.scatter(memory, levels)
            made.reduce(memory, None)
            gather_to(made, memory, outs, levels)
    return outs if _is_list(tensors) else outs[0]


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
    given = _checked("tensors", tensors)
    if not given:
        return 0
    return _exchange(collective, given, Levels.of(group), SUM, options).workspace_size


# --- Steps that the hooks share


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
    counts = tuple(each.numel() for each in tensors)
    dtype, device = tensors[0].dtype, tensors[0].device
    nodes, devices = levels.node_count, levels.device_count
    return exchange(
        counts, given or dtype, dtype, codes, nodes, devices, device, mean, reduces, gathers
    )


def rows_of(made: Exchange, memory: torch.Tensor, given: Sequence[torch.Tensor]) -> torch.Tensor:
    """A row for every rank; the tensor itself where it is that."""
    if made.shards.exact and given[0].dtype == made.given:
        return given[0].view(made.shards.ranks, -1)
    rows = made.rows(memory, made.given)
    made.shards.fill(rows, given)
    return rows


def reduce_to(
    made: Exchange, memory: torch.Tensor, outs: Sequence[torch.Tensor], rank: int
) -> None:
    """Adds what was scattered, into the parts of tensors that are a rank's."""
    if made.shards.exact:
        made.reduce(memory, outs[0].view(-1))
        return
    row = made.row(memory, made.wanted)
    made.reduce(memory, row)
    for each, part in zip(outs, made.shards.parts(row, rank), strict=True):
        each.view(-1).copy_(part)


def gather_to(
    made: Exchange, memory: torch.Tensor, outs: Sequence[torch.Tensor], levels: Levels
) -> None:
    """Gathers one row of codes of every rank, and makes tensors of them."""
    made.gather(memory, levels)
    if made.shards.exact:
        made.decode(memory, outs[0].view(-1))
        return
    rows = made.rows(memory, made.wanted)
    made.decode(memory, rows)
    made.shards.read(rows, outs)


def is_mean(op: Op) -> bool:
    """Whether the sum is divided by the number of ranks.

    Raises:
        ArgumentError: The operation is another than SUM and AVG.
    """
    for known, mean in ((dist.ReduceOp.SUM, False), (dist.ReduceOp.AVG, True)):
        if op == known:
            return mean
    raise ArgumentError("op", "ReduceOp.SUM or ReduceOp.AVG", shown(op))


# --- Checks


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


def _row(
    made: Exchange, memory: torch.Tensor, given: Sequence[torch.Tensor], rank: int
) -> torch.Tensor:
    """This rank's row of parts that it has."""
    if made.shards.exact:
        return given[0]
    row = made.row(memory, made.given).zero_()
    for part, each in zip(made.shards.parts(row, rank), given, strict=True):
        part.copy_(each.view(-1))
    return row


def _is_list(tensors: Tensors) -> bool:
    return not isinstance(tensors, torch.Tensor)


def _name(name: str, tensors: Tensors, place: int) -> str:
    return f"{name}[{place}]" if _is_list(tensors) else name


def _checked(name: str, tensors: Any) -> list[torch.Tensor]:
    """A list of tensors that belong together.

    Raises:
        ArgumentError: One is no tensor, requires a gradient, is not contiguous or differs from the
            first in dtype or device.
    """
    one = isinstance(tensors, torch.Tensor)
    if not one and not isinstance(tensors, (list, tuple)):
        raise ArgumentError(name, "a tensor, or a list of tensors", shown(tensors))
    found = [tensors] if one else list(tensors)
    for place, each in enumerate(found):
        where = name if one else f"{name}[{place}]"
        if not isinstance(each, torch.Tensor):
            raise ArgumentError(where, "a tensor", shown(each))
        if each.device.type not in ("cpu", "cuda"):
            raise ArgumentError(where, "a tensor on cpu or cuda", f"one on {each.device}")
        if (each.dtype, each.device) != (found[0].dtype, found[0].device):
            expected = f"{found[0].dtype} on {found[0].device}, as the first"
            raise ArgumentError(where, expected, f"{each.dtype} on {each.device}")
        if not each.is_contiguous():
            raise ArgumentError(where, "a contiguous tensor", f"strides {each.stride()}")
        if each.requires_grad and torch.is_grad_enabled():
            raise gradient_error(where)
    return found


def _outputs(
    out: Tensors | None,
    tensors: Tensors,
    given: list[torch.Tensor],
    shapes: Sequence[tuple[int, ...]],
    *,
    exact: bool = True,
) -> list[torch.Tensor]:
    """The caller's, or new ones; ``exact``: with as many elements as the shapes have.

    Raises:
        ArgumentError: The caller's are not what they have to be.
    """
    if out is None:
        return [each.new_empty(shape) for each, shape in zip(given, shapes, strict=True)]
    found = _checked("out", out)
    if _is_list(out) != _is_list(tensors) or len(found) != len(given):
        expected = f"a list of {len(given)} tensors" if _is_list(tensors) else "a tensor"
        raise ArgumentError("out", expected, f"{len(found)} tensors" if _is_list(out) else "one")
    for place, (each, shape, from_) in enumerate(zip(found, shapes, given, strict=True)):
        if (each.dtype, each.device) != (from_.dtype, from_.device):
            expected = f"{from_.dtype} on {from_.device}, as what is given"
            actual = f"{each.dtype} on {each.device}"
            raise ArgumentError(_name("out", out, place), expected, actual)
        count = torch.Size(shape).numel()
        if exact and each.numel() != count:
            raise ArgumentError(_name("out", out, place), f"{count} elements", str(each.numel()))
    return found
