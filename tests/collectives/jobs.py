"""What ranks do together. Arrays come and go as bytes with a dtype, so that bfloat16 passes."""

from __future__ import annotations

import functools
import io
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import planq
import planq.distributed as pd
from planq.audit.reference.formats import Array

COLLECTIVES: dict[str, Any] = {
    "reduce_scatter": pd.quantized_reduce_scatter,
    "all_gather": pd.quantized_all_gather,
    "all_reduce": pd.quantized_all_reduce,
}


DEVICE = torch.device("cpu")
"""Where tensors of these jobs are; a team of GPUs gives each rank its own."""


def tensor(array: Array) -> torch.Tensor:
    """The same bits, writable."""
    dtype = getattr(torch, array.dtype.name)
    if array.size == 0:
        return torch.empty(array.shape, dtype=dtype, device=DEVICE)
    held = torch.frombuffer(bytearray(array.tobytes()), dtype=dtype)
    return held.view(array.shape).to(DEVICE)


def bits(found: torch.Tensor) -> bytes:
    """Those of a tensor."""
    return found.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


@functools.cache
def group_of(levels: tuple[int, ...]) -> Any:
    """The first ranks, or a mesh; all ranks have to ask."""
    if len(levels) == 1:
        return dist.new_group(list(range(levels[0])))
    return init_device_mesh(DEVICE.type, levels)


def collective(
    name: str,
    levels: tuple[int, ...],
    given: Sequence[Any],
    options: dict[str, Any],
    mean: bool = False,
    outs: Any = None,
    late: Sequence[int] = (),
) -> Any:
    """What a collective gives this rank, as bits.

    ``given`` has an array, or a list of them, for each rank; ``outs`` shapes; ranks that are late
    come in the order of the list.
    """
    group = group_of(levels)
    rank = dist.get_rank()
    if not 0 <= rank < len(given):
        return None
    mine = given[rank]
    tensors = [tensor(x) for x in mine] if isinstance(mine, list) else tensor(mine)
    if rank in late:
        time.sleep(0.02 * (1 + late.index(rank)))
    if mean:
        options = options | {"op": dist.ReduceOp.AVG}
    if outs is not None:
        pairs = zip(tensors, outs, strict=True) if isinstance(tensors, list) else ()
        many = [each.new_empty(shape) for each, shape in pairs]
        options = options | {"out": many or tensors.new_empty(outs)}
    found = COLLECTIVES[name](tensors, group=group, **options)
    return [bits(each) for each in found] if isinstance(found, list) else bits(found)


def otherwise(limits: Sequence[dict[str, int]], job: str, *args: Any, **options: Any) -> Any:
    """A job by other limits than the library's, which may be others on each rank.

    ``FEW``: ranks that have launches of their own. ``PIECE_BYTES``: what a piece sends at least.
    ``DIRECT_ELEMENTS``: of parts in a list that are not copied.
    """
    from planq.distributed import _exchange, _layout, _segments

    homes: list[Any] = [_exchange, _layout, _segments]
    mine = limits[dist.get_rank() % len(limits)]
    before = [
        (home, name, getattr(home, name)) for home in homes for name in mine if name in vars(home)
    ]
    for home, name, _ in before:
        setattr(home, name, mine[name])
    _exchange.forget()
    try:
        return globals()[job](*args, **options)
    finally:
        for home, name, value in before:
            setattr(home, name, value)
        _exchange.forget()


def again(name: str, given: Sequence[Sequence[Array]], options: dict[str, Any]) -> list[bytes]:
    """A collective of other values at the same addresses, then of others at new ones."""
    rank, found, kept = dist.get_rank(), [], []
    x = tensor(given[0][rank])
    for step, each in enumerate(given):
        if step % 3 == 2:
            kept.append(x)
            x = tensor(each[rank])
        else:
            x.copy_(tensor(each[rank]))
        found.append(bits(COLLECTIVES[name](x, **options)))
    return found


def in_place(given: Sequence[Array], options: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """An all-reduce into its input, one in the caller's workspace, and one like any other."""
    x = tensor(given[dist.get_rank()])
    plain = pd.quantized_all_reduce(x, **options)
    size = pd.workspace_size("all_reduce", x, **options)
    held = torch.full((size + 256,), 171, dtype=torch.uint8, device=DEVICE)
    held = held[-held.data_ptr() % 256 :][:size]
    lent = pd.quantized_all_reduce(x, workspace=held, **options)
    assert pd.quantized_all_reduce(x, out=x, **options) is x
    return bits(plain), bits(lent), bits(x)


def bound(
    levels: tuple[int, ...],
    steps: Sequence[Sequence[Array]],
    options: dict[str, Any],
    mean: bool,
    unbound: bool = False,
) -> list[tuple[bytes, bytes, bytes]] | None:
    """A reduce-scatter, an all-reduce and an all-gather of one tensor, in every step.

    ``unbound``: by calls that are prepared anew.
    """
    ranks, rank = functools.reduce(int.__mul__, levels), dist.get_rank()
    group = group_of(levels)
    if rank >= ranks:
        return None
    op: dict[str, Any] = {"op": dist.ReduceOp.AVG if mean else dist.ReduceOp.SUM}
    x = tensor(steps[0][rank])
    calls: list[tuple[str, dict[str, Any]]] = [
        ("reduce_scatter", op),
        ("all_reduce", op),
        ("all_gather", {}),
    ]
    made = [pd.bind(name, x, group=group, **more, **options) for name, more in calls]
    found = []
    for step in steps:
        x.copy_(tensor(step[rank]))
        if unbound:
            results = [COLLECTIVES[name](x, group=group, **more, **options) for name, more in calls]
        else:
            for each in made:
                each()
            results = [each.out for each in made]
        found.append(tuple(map(bits, results)))
    return found


def messages(given: Sequence[Array], options: dict[str, Any]) -> tuple[Array, Array]:
    """The bytes that a reduce-scatter sends and receives."""
    from planq.distributed import _transport

    seen: list[Array] = []
    send = _transport.scatter

    def watched(received: torch.Tensor, sent: torch.Tensor, *others: Any) -> Any:
        def carried() -> None:
            work = send(received, sent, *others)()
            if work is not None:
                work.wait()
            seen.extend(each.cpu().clone().numpy() for each in (sent, received))

        return carried

    _transport.scatter = watched
    try:
        pd.quantized_reduce_scatter(tensor(given[dist.get_rank()]), **options)
    finally:
        _transport.scatter = send
    return seen[0], seen[1]


def refusal(call: Callable[[], Any]) -> str:
    """What the error of a call says."""
    try:
        call()
    except planq.ArgumentError as error:
        return str(error)
    return "nothing was refused"


def left_out(levels: tuple[int, ...]) -> str | None:
    """What those hear who are not in a group."""
    group = group_of(levels)
    if dist.get_rank() < levels[0]:
        return None
    return refusal(lambda: pd.quantized_all_reduce(torch.ones(3), group=group))


# --- On GPUs


def late(given: Sequence[Array], options: dict[str, Any]) -> tuple[bool, list[bytes]]:
    """Collectives right after work that is still going on, on a stream of its own.

    Returns:
        Whether all calls came back before that work had ended, with nothing waiting on the way;
        and their bits.
    """
    x = tensor(given[dist.get_rank()])
    for _ in range(2):  # NCCL connects in the first call
        pd.quantized_all_reduce(x, **options)
        pd.quantized_reduce_scatter(x, **options)
    make: Any = torch.cuda.Stream
    stream = make()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.cuda._sleep(2_000_000_000)
            y = x.clone()
            found = [
                pd.quantized_all_reduce(y, **options),
                pd.quantized_reduce_scatter(y, **options),
            ]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        early = not stream.query()
    torch.cuda.synchronize()
    return early, [bits(each) for each in found]


def captured(
    name: str, given: Sequence[Sequence[Array]], options: dict[str, Any], by_bind: bool
) -> list[tuple[bytes, bytes]]:
    """A collective from a CUDA graph, and by a call, for one input after another.

    ``by_bind``: what is captured was bound before, outside of the graph's memory.
    """
    rank, call = dist.get_rank(), COLLECTIVES[name]
    x = tensor(given[0][rank])
    call(x, **options)  # NCCL connects in the first call
    torch.cuda.synchronize()
    graph: Any = torch.cuda.CUDAGraph()
    bound = pd.bind(name, x, **options) if by_bind else None
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        if bound is None:
            held = call(x, **options)
        else:
            bound()
            held = bound.out
    found = []
    for each in given:
        x.copy_(tensor(each[rank]))
        held.zero_()
        graph.replay()
        torch.cuda.synchronize()
        found.append((bits(held), bits(call(x, **options))))
    graph.reset()
    return found


def dies(rank: int, store: str) -> None:
    """Two ranks of which one ends before a collective; a process of its own for each."""
    from datetime import timedelta

    from collectives.team import join

    join(rank, 2, store, 2, timeout=timedelta(seconds=10))
    x = torch.ones(1 << 20, device=DEVICE)
    pd.quantized_all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        os._exit(3)
    pd.quantized_all_reduce(x)
    torch.cuda.synchronize()


# --- DistributedDataParallel


class Bucket:
    """What a hook reads of a bucket of DDP."""

    def __init__(self, parameters: Sequence[torch.Tensor], gradients: Sequence[Array]) -> None:
        """Gradients one after another."""
        flat = [tensor(each).view(-1) for each in gradients]
        self._buffer, self._parameters = torch.cat(flat), list(parameters)

    def index(self) -> int:
        """It is the first."""
        return 0

    def buffer(self) -> torch.Tensor:
        """All of it."""
        return self._buffer

    def parameters(self) -> list[torch.Tensor]:
        """Whose gradients it has."""
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer."""
        parts = self._buffer.split([each.numel() for each in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]


def hooked(
    levels: tuple[int, ...], given: Sequence[Sequence[Array]], **options: Any
) -> list[tuple[bytes, bytes]] | None:
    """Gradients of one parameter, and its errors, after each of some steps of the hook."""
    group, rank = group_of(levels), dist.get_rank()
    if rank >= len(given[0]):
        return None
    model = torch.nn.Module()
    dtype = getattr(torch, given[0][0].dtype.name)
    model.weight = torch.nn.Parameter(torch.zeros(given[0][0].shape, dtype=dtype, device=DEVICE))
    state = pd.QuantizedAllReduceState(model, group=group, **options)
    made = []
    for step in given:
        bucket: Any = Bucket([model.weight], [step[rank]])
        mean = pd.quantized_all_reduce_hook(state, bucket).wait()
        made.append((bits(mean), bits(state.errors["weight"]) if state.errors else b""))
    return made


def network() -> torch.nn.Module:
    """Regression of sines; two layers, and so more than one bucket where those are small."""
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32), torch.nn.Linear(32, 4)
    )


class Training:
    """Of a network on this rank's data."""

    def __init__(self, ranks: int, bucket_mb: float = 25.0, **options: Any) -> None:
        """No options: DDP's own all-reduce."""
        group = group_of((ranks,))
        self.model = DistributedDataParallel(
            network().to(DEVICE), process_group=group, bucket_cap_mb=bucket_mb
        )
        self.state = None
        if options:
            self.state = pd.QuantizedAllReduceState(self.model, **options)
            self.model.register_comm_hook(self.state, pd.quantized_all_reduce_hook)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def run(self, steps: range) -> float:
        """The mean loss of this rank."""
        losses = []
        for step in steps:
            rng = torch.Generator().manual_seed(100 * step + dist.get_rank())
            x = torch.randn(16, 8, generator=rng).to(DEVICE)
            self.optimizer.zero_grad()
            loss = (self.model(x) - torch.sin(x[:, :4] + x[:, 4:])).square().mean()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return sum(losses) / len(losses)

    def saved(self) -> Any:
        """Everything, through a file's bytes."""
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        if self.state is not None:
            state["hook"] = self.state.state_dict()
        file = io.BytesIO()
        torch.save(state, file)
        return torch.load(io.BytesIO(file.getvalue()))

    def load(self, saved: Any) -> None:
        """Goes on from there."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        if self.state is not None:
            self.state.load_state_dict(saved["hook"])

    def weights(self) -> bytes:
        """Bits of all parameters."""
        return b"".join(bits(each) for each in self.model.parameters())


def trained(
    ranks: int, steps: int, bucket_mb: float = 25.0, **options: Any
) -> tuple[float, bytes] | None:
    """The loss of the last steps, and the weights."""
    group_of((ranks,))
    if dist.get_rank() >= ranks:
        return None
    training = Training(ranks, bucket_mb, **options)
    training.run(range(steps - 10))
    return training.run(range(steps - 10, steps)), training.weights()


def resumed(ranks: int, **options: Any) -> tuple[bytes, bytes] | None:
    """Weights after ten steps, and after five, a checkpoint and five more."""
    group_of((ranks,))
    if dist.get_rank() >= ranks:
        return None
    whole = Training(ranks, **options)
    whole.run(range(5))
    second = Training(ranks, **options)
    second.load(whole.saved())
    whole.run(range(5, 10))
    second.run(range(5, 10))
    return whole.weights(), second.weights()


def example(hook: str, steps: int) -> tuple[list[float], str]:
    """Losses of examples/ddp_training.py, by all ranks, and the digest of the weights."""
    import ddp_training

    options = ddp_training.Options(steps, width=32, layers=1, batch=4, length=32, rate=3e-2)
    result = ddp_training.train(hook, options, DEVICE)
    return result.losses, result.digest


# --- FSDP2


def sharded(levels: tuple[int, ...], **options: Any) -> tuple[list[Array], list[bytes]]:
    """This rank's gradients without FSDP, and its parts of them behind fully_shard."""
    rng = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(16, 8, generator=rng).to(DEVICE)
    plain, model = network().to(DEVICE), network().to(DEVICE)
    plain(x).square().sum().backward()
    fully_shard(model, mesh=init_device_mesh(DEVICE.type, (dist.get_world_size(),)))
    mesh = {"mesh": group_of(levels)} if len(levels) == 2 else {}
    module: Any = model
    module.set_custom_reduce_scatter(pd.QuantizedReduceScatter(**mesh, **options))
    model(x).square().sum().backward()
    whole: list[Any] = [each.grad for each in plain.parameters()]
    parts: list[Any] = [each.grad for each in model.parameters()]
    return [each.cpu().numpy() for each in whole], [bits(each.to_local()) for each in parts]


def refused(levels: tuple[int, ...]) -> str:
    """What is said of a mesh that has not the ranks of the world."""
    x, mesh, world = torch.ones(6), group_of(levels), cast("dist.ProcessGroup", dist.group.WORLD)
    return refusal(lambda: pd.QuantizedReduceScatter(mesh)(x[:1], x, world, dist.ReduceOp.SUM))
