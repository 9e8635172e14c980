"""Floating products of a device, compared bit by bit with those of the host."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import planq
from planq.audit import numbers
from planq.checkpoint.devices import HostExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from planq.checkpoint.devices import Executor

CLASSES: Final = tuple(numbers.CLASSES)
"""The classes of numbers that are multiplied."""

# One step; chains of a few; a whole slice; slices with a tail; many of them.
TERMS: Final = (16, 64, 128, 200, 1000)
SIDE: Final = 512  # rows of either side: a product has SIDE * SIDE results
DTYPES: Final = (planq.DType.FLOAT16, planq.DType.BFLOAT16)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one class of numbers showed.

    Attributes:
        kernel: The SKU of the device's kernel.
        input_dtype: Element type of both sides.
        numbers: The class of numbers, one of :data:`CLASSES`.
        results: How many were compared.
        differing: How many of them have other bits than the model's.
        example: Of the first of these, the terms, the bits of the device and those of the model.
    """

    kernel: str
    input_dtype: planq.DType
    numbers: str
    results: int
    differing: int
    example: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a device's tensor cores were found to compute.

    Attributes:
        device: The device, as planq names it.
        build: The build of planq that compared.
        findings: One for each element type and class of numbers.
    """

    device: str
    build: str
    findings: tuple[Finding, ...]

    @property
    def confirmed(self) -> bool:
        """Whether every result had the bits of the model."""
        return not any(finding.differing for finding in self.findings)

    def results(self, kernel: str) -> int:
        """How many results of a kernel were compared."""
        return sum(finding.results for finding in self.findings if finding.kernel == kernel)


def probe(executor: Executor, results: int = 10_000_000, seed: int = 0) -> Probe:
    """Multiplies numbers of every class on a device, and compares the results with the model.

    The device runs the kernel that is chosen there for ``Accumulation.TENSOR_SM90``; the host
    computes the model of docs/tensor-cores.md. Nothing is sampled: every result is compared.

    Args:
        executor: The device, from :func:`planq.checkpoint.devices.open_device`.
        results: At least as many for each kernel and element type; more than a few
            million take seconds.
        seed: Of the random numbers.

    Returns:
        What was found. Selection never asks for it: a kernel's promise is that of the build.

    Raises:
        CheckpointError: The device refuses.
        NoKernelError: No kernel of this build runs there.
    """
    host = HostExecutor()
    rounds = -(-results // (SIDE * SIDE * len(TERMS) * len(CLASSES)))
    findings = tuple(
        _finding(executor, host, dtype, name, rounds, seed)
        for dtype, name in itertools.product(DTYPES, CLASSES)
    )
    return Probe(executor.name, planq.build_info().build_id, findings)


def _finding(
    executor: Executor, host: Executor, dtype: planq.DType, name: str, rounds: int, seed: int
) -> Finding:
    compared = differing = 0
    kernel, example = "", None
    for terms, sides in _products(dtype, name, rounds, seed):
        desc = planq.MatmulDescriptor(
            input_shape=(SIDE, terms),
            weight_shape=(SIDE, terms),
            input_dtype=dtype,
            output_dtype=planq.DType.FLOAT32,
        )
        plans = [planq.Plan.select(each.stream, desc) for each in (executor, host)]
        found, model = (
            each.run(plan, sides).outputs["output"].view(np.uint32)
            for each, plan in zip((executor, host), plans, strict=True)
        )
        kernel = plans[0].sku
        wrong = np.flatnonzero(found != model)
        compared += found.size
        differing += wrong.size
        if wrong.size and example is None:
            example = terms, int(found[wrong[0]]), int(model[wrong[0]])
    return Finding(kernel, dtype, name, compared, differing, example)


def _products(
    dtype: planq.DType, name: str, rounds: int, seed: int
) -> Iterator[tuple[int, dict[str, npt.NDArray[np.uint8]]]]:
    """Both sides of each product, as bytes."""
    format_ = numbers.format_of(dtype)
    make = numbers.CLASSES[name]
    key = [seed, DTYPES.index(dtype), CLASSES.index(name)]
    rng: Any = np.random.default_rng(key)
    for _, terms in itertools.product(range(rounds), TERMS):
        sides = (make(rng, (SIDE, terms), format_) for _ in range(2))
        given = (np.ascontiguousarray(side).view(np.uint8).reshape(-1) for side in sides)
        yield terms, dict(zip(("input", "weight"), given, strict=True))
