"""What programs that measure beside one another on the host share: turns, processes, facts."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.native.native import processor_name
from planq.machine import instruction_sets

LIBRARIES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def best_of(
    contenders: Mapping[str, Sequence[Callable[[], object]]], turns: int, least: float
) -> dict[str, float]:
    """The least seconds of a run of each, of turns that alternate between them.

    Args:
        contenders: The runs of each, which take turns, too.
        turns: How many count. One more comes before: it finds caches and clocks as others left
            them.
        least: Seconds of a turn.
    """
    best = dict.fromkeys(contenders, float("inf"))
    rotated = {name: itertools.cycle(runs) for name, runs in contenders.items()}
    for turn in range(turns + 1):
        for name, runs in rotated.items():
            count, begin, spent = 0, time.perf_counter(), 0.0
            while count == 0 or spent < least:
                next(runs)()
                count += 1
                spent = time.perf_counter() - begin
            if turn:
                best[name] = min(best[name], spent / count)
    return best


def in_process(file: str, words: Sequence[str], threads: int) -> Any:
    """What a program prints as JSON, in a process where libraries have so many threads."""
    done = subprocess.run(
        [sys.executable, file, *words],
        env={**os.environ, **dict.fromkeys(LIBRARIES, str(threads))},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def host_facts() -> dict[str, Any]:
    """The host as records tell of it."""
    return {
        "name": "host",
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "instructions": instruction_sets(),
    }
