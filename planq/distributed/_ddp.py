"""The communication hook of DistributedDataParallel."""

# No ``from __future__ import annotations`` here: torch compares a hook's annotations with classes.

import contextlib
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch._C._distributed_c10d import GradBucket

from planq._policy import in_force
from planq.distributed._codes import Codes, Options
from planq.distributed._exchange import Calls, Exchange, exchange_of
from planq.distributed._levels import Group, Levels
from planq.errors import ArgumentError, shown


class QuantizedAllReduceState:
    """What :func:`quantized_all_reduce_hook` keeps between steps.

    Args:
        module: The model, in ``DistributedDataParallel`` or not. It gives parameters their names.
        group: A process group, or a DeviceMesh of two dimensions; None for the group of the model,
            or all ranks.
        error_feedback: Whether the quantization error of a gradient is added to the gradient of the
            next step.
        beta: The share of the previous error that stays in the next one, ``0 <= beta < 1``.
        **options: How gradients become codes: :class:`Options`.

    Attributes:
        errors: The quantization errors on this rank, in float32, by the name of the parameter.
            Empty before the first step, and without error feedback.

    Raises:
        ArgumentError: An argument is not as described.
        DescriptorError: An option has a value that is not allowed.
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
        # By the index of a bucket: its buffer, and the calls that are bound to it.
        # By their index and the policy in force.
        self._buckets: dict[tuple[Any, ...], tuple[torch.Tensor, Calls]] = {}

    def state_dict(self) -> dict[str, Any]:
        """The errors. Each rank has its own, so save those of every rank."""
        return {"errors": {name: error.clone() for name, error in self.errors.items()}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the errors that :meth:`state_dict` returned on the same rank.

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
        """Averages the gradients of a bucket over all ranks, in place."""
        place = bucket.index(), in_force()
        buffer, calls = self._buckets.get(place, (None, None))
        # The held buffer keeps its address from being reused: an equal address is the same bucket.
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
            self._buckets[place] = bucket.buffer(), calls
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
            """Stores what quantizing the sums of gradients and errors has lost."""
            lost = feedback(wanted, before, made.decoded(room), self.beta)
            made.shards.reading(lost, errors).run()

        made.from_rows(room, self._levels, wanted, grads).run(keep)

    def _memory(self, made: Exchange) -> torch.Tensor:
        """One workspace for all buckets, which run one after another on one stream."""
        held = self._held.get(made.device)
        if held is None or held.numel() < made.workspace_size:
            held = self._held[made.device] = made.memory()
        return held

    def _error(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter's error, 0 at first. DDP may move parameters to other buckets."""
        name = self._names.get(parameter)
        if name is None:
            raise ArgumentError("module", "the model whose gradients are reduced", "another")
        found = self.errors.get(name)
        if found is None:
            found = torch.zeros(parameter.shape, dtype=torch.float32, device=parameter.device)
            self.errors[name] = found
        return found

    def aside(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        """A context with a side stream of the GPU, beside that of the backward pass."""
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
    """Averages gradients as :func:`quantized_all_reduce` does, for ``register_comm_hook``.

    Each parameter has groups of its own, so the bits do not depend on how DDP forms buckets. On a
    GPU everything runs on a side stream.
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

    ``h`` is ``wanted``, what was quantized, and ``d`` is ``decoded``. Loss scaling skips the step
    of a gradient that is not finite; such a gradient leaves no trace in later errors.
    """
    share = torch.tensor(beta, dtype=torch.float32)
    kept, lost = error * share, (wanted - decoded) * (1 - share)
    return torch.nan_to_num_(kept + lost, nan=0.0, posinf=0.0, neginf=0.0)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two buffers are the same memory with the same dtype and size."""
    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.numel() == b.numel()


def _flat(bucket: GradBucket) -> list[torch.Tensor]:
    """The gradients of a bucket as they lie in its buffer, whatever their strides."""
    buffer = bucket.buffer()
    firsts = [each.storage_offset() - buffer.storage_offset() for each in bucket.gradients()]
    return [
        buffer[first : first + each.numel()]
        for first, each in zip(firsts, bucket.gradients(), strict=True)
    ]
