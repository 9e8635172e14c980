"""The communication hook of DistributedDataParallel."""

# Annotations are no text here: torch compares those of a hook with its classes.

import contextlib
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch._C._distributed_c10d import GradBucket

from planq.distributed._codes import Codes, Options
from planq.distributed._exchange import Calls, Exchange, exchange_of
from planq.distributed._levels import Group, Levels
from planq.errors import ArgumentError, shown


class QuantizedAllReduceState:
    """What :func:`quantized_all_reduce_hook` keeps between steps.

    Args:
        module: The model, in ``DistributedDataParallel`` or not: it names the parameters.
        group: A process group, or a DeviceMesh of two dimensions; None: that of the model, or all
            ranks.
        error_feedback: Whether what codes lose of a gradient is added to that of the next step.
        beta: How much of an error before stays in the next one, ``0 <= beta < 1``.
        **options: How gradients become codes: :class:`Options`.

    Attributes:
        errors: float32, by the name of the parameter: what its codes have lost on this rank. None
            before the first step, and without error feedback.

    Raises:
        ArgumentError: An argument is not what it has to be.
        DescriptorError: An option has no meaning.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        group: Group = None,
        error_feedback: bool = False,
        beta: float = 0.0,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise ArgumentError("module", "a torch.nn.Module", shown(module))
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            group = module.process_group if group is None else group
            module = module.module
        if not 0 <= beta < 1:
            raise ArgumentError("beta", "a number of at least 0 and less than 1", shown(beta))
        self.error_feedback, self.beta = error_feedback, beta
        self.errors: dict[str, torch.Tensor] = {}
        self._codes, self._levels = Codes.of(options), Levels.of(group)
        self._names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in module.named_parameters()
        }
        self._streams: dict[torch.device, Any] = {}
        self._held: dict[torch.device, torch.Tensor] = {}
        # By the number of a bucket: its memory, and what is enqueued for it.
        self._buckets: dict[int, tuple[torch.Tensor, Calls]] = {}

    def state_dict(self) -> dict[str, Any]:
        """The errors, which are this rank's own: save those of every rank."""
        return {"errors": {name: error.clone() for name, error in self.errors.items()}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes the errors that :meth:`state_dict` of the same rank gave.

        Raises:
            ArgumentError: There is no such parameter, or it has another shape.
        """
        shapes = {name: parameter.shape for parameter, name in self._names.items()}
        for name, error in state_dict["errors"].items():
            if error.shape != shapes.get(name):
                expected = f"shape {tuple(shapes[name])}" if name in shapes else "no such parameter"
                raise ArgumentError(f"errors[{name!r}]", expected, f"shape {tuple(error.shape)}")
        devices = {name: parameter.device for parameter, name in self._names.items()}
        self.errors = {
            name: error.to(devices[name], torch.float32, copy=True)
            for name, error in state_dict["errors"].items()
        }

    @torch.no_grad()
    def reduce(self, bucket: GradBucket) -> None:
        """Makes the mean over all ranks of the gradients of a bucket, in place."""
        buffer, calls = self._buckets.get(bucket.index(), (None, None))
        # Held, a buffer shares its address with no other: this bucket has not been built anew.
        if calls is not None and buffer is not None and _same(buffer, bucket.buffer()):
            calls.run()
            return
        grads = _flat(bucket)
        made = exchange_of(
            grads,
            self._levels,
            self._codes,
            mean=True,
            reduces=True,
            gathers=True,
            rows=torch.float32 if self.error_feedback else None,
        )
        if made.shards.width == 0:
            return
        room = made.room(bucket.buffer(), self._memory(made))
        if not self.error_feedback:
            calls = made.calls(room, self._levels, grads, grads)
            self._buckets[bucket.index()] = bucket.buffer(), calls
            calls.run()
            return
        parameters = bucket.parameters()
        errors = [self._error(parameter).view(-1) for parameter in parameters]
        before = torch.empty(
            (made.shards.ranks, made.shards.width), dtype=torch.float32, device=made.device
        )
        made.shards.filling(before, errors).run()
        wanted = made.all_rows(room, grads) + before

        def keep() -> None:
            """What codes lose of gradients and errors together."""
            lost = feedback(wanted, before, made.decoded(room), self.beta)
            made.shards.reading(lost, errors).run()

        made.from_rows(room, self._levels, wanted, grads).run(keep)

    def _memory(self, made: Exchange) -> torch.Tensor:
        """One for all buckets, which follow each other on one stream: fresh pages cost much."""
        held = self._held.get(made.device)
        if held is None or held.numel() < made.workspace_size:
            held = self._held[made.device] = made.memory()
        return held

    def _error(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter's, +0 at first; DDP moves parameters to other buckets between steps."""
        name = self._names.get(parameter)
        if name is None:
            raise ArgumentError("module", "the model whose gradients are reduced", "another")
        found = self.errors.get(name)
        if found is None:
            found = torch.zeros(parameter.shape, dtype=torch.float32, device=parameter.device)
            self.errors[name] = found
        return found

    def aside(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        """A stream of a GPU beside that of the backward pass, which goes on meanwhile."""
        if device.type != "cuda":
            return contextlib.nullcontext()
        make: Any = torch.cuda.Stream
        if device not in self._streams:
            self._streams[device] = make(device)
        stream = self._streams[device]
        stream.wait_stream(torch.cuda.current_stream(device))
        return torch.cuda.stream(stream)


def quantized_all_reduce_hook(
    state: QuantizedAllReduceState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """The mean of gradients by :func:`quantized_all_reduce`, for ``register_comm_hook``.

    Each parameter has groups of its own, so that the bits depend on no bucket. On a GPU everything
    runs on a stream beside the current one.
    """
    buffer = bucket.buffer()
    future: torch.futures.Future[torch.Tensor]
    future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
    with state.aside(buffer.device):
        state.reduce(bucket)
        future.set_result(buffer)
    return future


def feedback(
    wanted: torch.Tensor, error: torch.Tensor, decoded: torch.Tensor, beta: float
) -> torch.Tensor:
    """``err' = fl(fl(beta * err) + fl(fl(1 - beta) * fl(h - d)))`` in float32; +0 if not finite.

    A gradient that is not finite, which loss scaling skips, so leaves no trace in later ones.
    """
    share = torch.tensor(beta, dtype=torch.float32)
    kept, lost = error * share, (wanted - decoded) * (1 - share)
    return torch.nan_to_num_(kept + lost, nan=0.0, posinf=0.0, neginf=0.0)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two buffers are one memory of one dtype."""
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.numel() == b.numel()


def _flat(bucket: GradBucket) -> list[torch.Tensor]:
    """The gradients of a bucket as they lie in its buffer, whatever their strides."""
    buffer = bucket.buffer()
    firsts = [each.storage_offset() - buffer.storage_offset() for each in bucket.gradients()]
    return [
        buffer[first : first + each.numel()]
        for first, each in zip(firsts, bucket.gradients(), strict=True)
    ]
