"""A step: its launches for so many rows, bound once, and its inputs.

What changes from step to step is in tensors that the host fills: tokens, positions, slots of the
cache, lengths and block tables. All else is fixed. So a GPU captures the launches in one graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from planq.networks.gemma3.launches import INPUTS, SETTINGS, Inputs, Launches, inputs_of
from planq.networks.gemma3.texts import GREEDY, Sampling
from planq.networks.places import workspace_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from planq.networks.gemma3.launches import Extents, Launch
    from planq.networks.gemma3.network import Gemma3
    from planq.networks.gemma3.texts import Part

Array = np.ndarray[Any, Any]


class Step:
    """The launches for some extents.

    Attributes:
        at: The rows of each tensor that the step uses, and its inputs.
        host: Its inputs on the host, which are to be filled.
        launches: All of them, in order.
        bound: What runs each of them on a stream.
        run: Runs them.
    """

    def __init__(self, network: Gemma3, extents: Extents) -> None:
        self.network, self.extents = network, extents
        table = network.limits.table
        made = Launches(network.sizes, table, network.memory, extents)
        own = [
            np.zeros(len(each), kind)
            for each, kind in zip(made.inputs, INPUTS.values(), strict=True)
        ]
        self._copies = [pair for pair in zip(made.inputs, own, strict=True) if len(pair[1])]
        self.host = inputs_of(Inputs(*own), extents, table)
        self._placed: list[Array | None] = [None] * extents.batch
        self._settled: list[Sampling | None] = [None] * extents.drawn
        self.at, self.launches = made.at, made.listed()
        self.bound = [self._bind(launch) for launch in self.launches]
        self.run = network.machine.captured(self._run)

    def _bind(self, launch: Launch) -> Any:
        plan = self.network.plans[launch.name]
        room = self.network.memory[workspace_name(plan)] if plan.workspace_size() else None
        return plan.bind(room, launch.args)

    def fill(self) -> None:
        """Brings the inputs to the device."""
        for there, own in self._copies:
            self.network.machine.fill(there, own)

    def place(self, pages: Sequence[Array]) -> None:
        """Writes block tables. Most texts have the pages that they had in the step before."""
        for i, own in enumerate(pages):
            if self._placed[i] is not own:
                self._placed[i] = own
                self.host["block table"][i, : len(own)] = own

    def settle(self, parts: Iterable[Part]) -> None:
        """Writes how each asked row chooses; rows that fill the step up take the likeliest token.

        The counter of a token's random number is the place in its text that it will have, from 0.
        """
        settings, places = list[Sampling](), list[int]()
        for part in parts:
            settings += [part.text.sampling] * part.asked
            end = part.text.length + part.size + 1
            places += range(end - part.asked, end)
        more = self.extents.drawn - len(places)
        self.host["drawn position"][:] = places + [0] * more
        for row, own in enumerate(settings + [GREEDY] * more):
            if self._settled[row] is not own:
                self._settled[row] = own
                for name in SETTINGS:
                    self.host[name][row] = getattr(own, name)

    def watched(self, watch: Callable[[Launch], None]) -> None:
        """Runs the launches without a graph, and tells of each."""
        for launch, bound in zip(self.launches, self.bound, strict=True):
            bound(self.network.machine.stream)
            watch(launch)

    def _run(self) -> None:
        stream = self.network.machine.stream
        for bound in self.bound:
            bound(stream)
