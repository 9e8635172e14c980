"""Keeps sampled runs of plans, so that they can be recomputed elsewhere.

``PLANQ_RECORD=FOLDER`` turns it on when planq is imported; otherwise this package is not imported.
Every so many runs of a plan, one is kept: the plan, the bytes of its operands before the run, and
SHA-256 digests of what it wrote. ``planq replay FOLDER`` recomputes the runs.

A run never waits for the recording. Operands are copied to a ring of host memory of a fixed size;
a thread of its own makes digests and writes files. If the ring has no room, the sample is dropped
and counted.
"""

from __future__ import annotations

import atexit
import os

from planq import _core
from planq.recording.recorder import Recorder
from planq.recording.settings import Settings

__all__ = ["Settings", "flush", "start", "stop"]

_SECONDS_AT_EXIT = 5.0

_recorder: Recorder | None = None


def start(settings: Settings) -> None:
    """Records sampled runs from here on, of bound launches too that are made from here on.

    Args:
        settings: Where to, which plans and how often.
    """
    global _recorder
    _recorder = Recorder(settings)
    _core.set_record_hook(_recorder.begin, settings.every)


def stop() -> None:
    """Ends the recording; what was sampled is still written, as long as the process lives."""
    global _recorder
    _core.set_record_hook(None)
    if _recorder is not None:
        _recorder.close()
    _recorder = None


def flush(seconds: float = _SECONDS_AT_EXIT) -> bool:
    """Waits until everything that was sampled before is written.

    Args:
        seconds: How long to wait at most.

    Returns:
        Whether it is written; True if nothing is recorded.
    """
    return _recorder is None or _recorder.flush(seconds)


def _start_again() -> None:
    """A forked process has neither the thread nor the locks of its parent in a known state."""
    if _recorder is not None:
        start(_recorder.settings)


def install() -> None:
    """Turns on what the environment asks for; called once, by ``import planq``.

    Raises:
        PlanqError: A variable has a value that is not allowed.
    """
    start(Settings.from_environment(os.environ))


atexit.register(flush)
os.register_at_fork(after_in_child=_start_again)
