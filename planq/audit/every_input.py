"""The elementary functions that a kernel computes, by their results for every float32.

`functions.json` has of each function the SHA-256 of its results for the inputs with the bits 0 to
2^32 - 1, in this order, little-endian; and that of every :data:`STEP`-th of them. The canonical
NaN counts as :data:`DIGESTED_NAN`, the pattern that these digests were defined with. That pattern,
which is a GPU's own NaN, counts as the canonical one: a NaN left as it is gives another digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planq.audit.kernels import accepts, pinned
from planq.audit.memory import Device
from planq.audit.operators import ADAPTERS
from planq.audit.runner import Bench

Words = npt.NDArray[np.uint32]

RECORDED: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("functions.json").read_text()
)
EVERY: Final = 2**32
STEP: Final = 4099  # a prime: the inputs have every exponent, and all kinds of last bits
CANONICAL_NAN: Final = np.uint32(0x7FC00000)
DIGESTED_NAN: Final = np.uint32(0x7FFFFFFF)
_PART: Final = 2**24  # inputs of a run


def parts(step: int, size: int) -> Iterator[Words]:
    """The bits of every `step`-th input, in ascending order, `size` at a time."""
    for first in range(0, EVERY, step * size):
        last = min(first + step * size, EVERY)
        yield np.arange(first, last, step, dtype=np.uint64).astype(np.uint32)


def digest(apply: Callable[[Words], Words], step: int = 1, size: int = 2**18) -> str:
    """SHA-256 of the results that a function has for every `step`-th input.

    Args:
        apply: Gives the bits of results for the bits of inputs; it may write over them.
        step: 1 for all inputs.
        size: How many inputs it is given at a time.
    """
    sha = hashlib.sha256()
    for words in parts(step, size):
        results = apply(words)
        canonical, foreign = results == CANONICAL_NAN, results == DIGESTED_NAN
        results[canonical], results[foreign] = DIGESTED_NAN, CANONICAL_NAN
        sha.update(results.astype("<u4", copy=False).data)
    return sha.hexdigest()


def functions_of(operator: str) -> Mapping[str, Callable[[int], Hashable]]:
    """The functions of an operator that takes one float32 and gives one, by their names.

    Each has what makes a problem of so many numbers. The operator's adapter says them.
    """
    return getattr(ADAPTERS[operator], "functions", {})


def check_every_input(device: Device, operator: str, name: str, most: int | None) -> int:
    """Each function that the kernel computes has its digest: of all inputs, or of every 4099th.

    Returns how many functions the kernel has.
    """
    step, what = (1, "sha256") if most is None else (STEP, "sampled")
    size = min(_PART, -(-EVERY // step))
    held = 0
    for function, problem in functions_of(operator).items():
        if not accepts(operator, name, problem(size), device.name):
            continue
        runs = _Runs(device, operator, name, problem)
        found = digest(runs.apply, step, size)
        assert found == RECORDED[function][what], f"{name}: {function} has the digest {found}"
        held += 1
    return held


class _Runs:
    """Runs a pinned kernel on numbers, with one bench for each number of them."""

    def __init__(
        self, device: Device, operator: str, name: str, problem: Callable[[int], Hashable]
    ) -> None:
        self._device, self._operator, self._name, self._problem = device, operator, name, problem
        self._benches: dict[int, Bench] = {}

    def apply(self, words: Words) -> Words:
        """The bits of results for bits of inputs."""
        bench = self._benches.get(words.size) or self._bench(words.size)
        bench.load({"input": words.view(np.float32)})
        bench.run()
        return bench.outputs()["output"].view(np.uint32)

    def _bench(self, count: int) -> Bench:
        desc = ADAPTERS[self._operator].descriptor(self._problem(count))
        made = Bench(self._device, desc, pref=pinned(self._name))
        self._benches[count] = made
        return made
