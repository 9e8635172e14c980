"""Takes samples of runs: native code calls it before one run in so many of each plan."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planq.dtypes import Backend, Role
from planq.errors import PlanqError
from planq.recording.copies import Copies, CudaCopies, HostCopies, is_capturing
from planq.recording.operands import Tensor
from planq.recording.ring import Bytes, Piece, Ring, rounded_up
from planq.recording.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from planq.descriptor import Descriptor
    from planq.plan import Plan
    from planq.recording.settings import Settings


@dataclass(slots=True)
class Sample:
    """One run.

    Attributes:
        plan: Its plan.
        number: Which run of the plan it is; the first is 0.
        time: When it began, in seconds since 1970.
        copies: How operands get to the host.
        piece: Where they are there.
        tensors: Its operands.
        before: What the run reads, with the memory for its copy.
        after: The same for what it writes.
        complete: Whether the run and all copies succeeded.
    """

    plan: Plan
    number: int
    time: float
    copies: Copies
    piece: Piece
    tensors: list[Tensor]
    before: list[tuple[Bytes, Tensor]] = field(default_factory=list)
    after: list[tuple[Bytes, Tensor]] = field(default_factory=list)
    complete: bool = False


class Recorder:
    """Samples of runs, from native code to files."""

    def __init__(self, settings: Settings) -> None:
        """Reserves the ring; no file is touched before the first sample.

        Raises:
            PlanqError: The system has no addresses for the ring.
        """
        self.settings = settings
        try:
            self._ring = Ring(settings.mebibytes << 20)
        except OSError as error:
            words = f"no {settings.mebibytes} MiB of memory: {error.strerror}"
            raise PlanqError(f"PLANQ_RECORD_MIB: {words}") from error
        self._writer = Writer(settings, self._ring)
        self.flush, self.close = self._writer.flush, self._writer.close

    def begin(
        self, plan: Plan, number: int, stream: int | None, operands: list[tuple[Any, ...]]
    ) -> Callable[[bool], None] | None:
        """Copies what a run is about to read.

        Args:
            plan: Its plan.
            number: Which run of the plan it is.
            stream: The handle of its CUDA stream; None on the host.
            operands: The fields of each :class:`Tensor`.

        Returns:
            What has to be called after the run with whether it succeeded; None: it is no sample.
        """
        try:
            return self._begin(plan, number, stream, [Tensor(*each) for each in operands])
        except Exception as error:  # whatever it is, the run goes on
            self._writer.fail(error)
            return None

    def _begin(
        self, plan: Plan, number: int, stream: int | None, tensors: list[Tensor]
    ) -> Callable[[bool], None] | None:
        pattern = self.settings.operators
        if not (pattern.search(plan.descriptor.operator) or pattern.search(plan.sku)):
            return None
        device = plan._device
        if stream is not None and is_capturing(device.index, stream):
            self._writer.count("captured")
            return None
        on_host = Backend(device.backend) is Backend.HOST
        copies = HostCopies() if on_host else CudaCopies(device.index, stream or 0, self._ring)
        sample = self._room(plan, number, copies, tensors)
        if sample is None:
            self._writer.count("dropped")
            return None
        try:
            copies.begin(sample.before)
        except Exception:
            self._end(sample, succeeded=False)  # some copies may be under way
            raise
        return functools.partial(self._end, sample)

    def _room(
        self, plan: Plan, number: int, copies: Copies, tensors: list[Tensor]
    ) -> Sample | None:
        """A sample with memory for all copies; None if the ring has no room now."""
        roles = _roles(plan.descriptor)
        read = [each for each in tensors if roles[each.name] is not Role.OUTPUT]
        read = [each for each in read if each.bits is None]
        written = [each for each in tensors if roles[each.name] is not Role.INPUT]
        piece = self._ring.take(sum(rounded_up(each.nbytes) for each in read + written))
        if piece is None:
            return None
        sample = Sample(plan, number, time.time(), copies, piece, tensors)
        start = 0
        for pairs, group in ((sample.before, read), (sample.after, written)):
            for tensor in group:
                pairs.append((piece.memory[start : start + tensor.nbytes], tensor))
                start += rounded_up(tensor.nbytes)
        return sample

    def _end(self, sample: Sample, succeeded: bool) -> None:
        """Copies what the run has written, and hands the sample over."""
        try:
            sample.copies.end(sample.after if succeeded else [])
            sample.complete = succeeded
        except Exception as error:
            self._writer.fail(error)
        self._writer.put(sample)


@functools.lru_cache(1024)
def _roles(desc: Descriptor) -> dict[str, Role]:
    return {name: spec.role for name, spec in desc.operands().items()}
