"""Guarded operands for a plan that is run through C, on the host or on a GPU."""

from __future__ import annotations

import json
from typing import Any

import planq
from planq.audit.runner import Bench
from support import c_library as c


def stream_of(stream: Any) -> c.Stream:
    """A stream of Python's as C has it."""
    if stream is planq.HOST:
        return c.host()
    return c.Stream(c.CUDA, stream.device_index, 0, 0, stream.cuda_stream)


class CBench(Bench):
    """A plan with guarded operands that is run through C."""

    def select(self) -> c.Plan:
        """The same plan once more."""
        pref = self.plan.preference.to_dict()
        return c.Plan.select(self.plan.descriptor.to_json(), json.dumps(pref), self.c_stream)

    @property
    def c_stream(self) -> c.Stream:
        """The bench's stream."""
        return stream_of(self.stream)

    def run(self) -> None:
        """Selects the same once more, runs that, and waits."""
        made, tensors = self.select(), self.tensors()
        assert made.workspace_size() == self.plan.workspace_size()
        made.can_implement(tensors)
        made.run(tensors, self.workspace.argument or (None, 0), self.c_stream)
        self.device.synchronize()


class CLaunchBench(CBench):
    """The same, bound and launched; operands come in another order."""

    def run(self) -> None:
        """Binds, lets go of the plan, launches, and waits."""
        backwards = dict(reversed(self.tensors().items()))
        made = self.select()
        launch = made.bind(backwards, self.workspace.argument or (None, 0))
        del made
        launch(self.c_stream)
        self.device.synchronize()
