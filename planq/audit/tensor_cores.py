"""Compares floating-point products of a device bit by bit with the host's model of them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import planq
from planq.audit import numbers
from planq.executors import PREFERENCE, HostExecutor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planq.executors import Bytes, Executor

CLASSES: Final = tuple(numbers.CLASSES)
"""The classes of numbers that are multiplied."""

Pair = tuple[planq.DType, planq.DType]
Product = planq.MatmulDescriptor | planq.LinearFp8Descriptor

_FLOAT8: Final = (planq.DType.FLOAT8_E4M3FN, planq.DType.FLOAT8_E5M2)
PAIRS: Final[tuple[Pair, ...]] = (
    (planq.DType.FLOAT16, planq.DType.FLOAT16),
    (planq.DType.BFLOAT16, planq.DType.BFLOAT16),
    *((x, w) for x in _FLOAT8 for w in _FLOAT8),
)
"""Element types of input and weight: the pairs that tensor cores have instructions for."""

# Lengths K of a dot product: one tensor-core step; a few steps; one slice of K; slices and a
# partial step; many slices. Rows are multiples of 16 bytes, as tensor-core kernels require.
TERMS: Final = (16, 64, 128, 200, 1000)
FLOAT8_TERMS: Final = (32, 96, 128, 208, 1008)
SIDE: Final = 512  # the most rows of the input and of the weight


@dataclass(frozen=True, slots=True)
class Finding:
    """What one class of numbers showed.

    Attributes:
        sku: The SKU of the device's kernel.
        body: The body of that SKU that ran.
        input_dtype: Element type of the input.
        weight_dtype: Element type of the weight.
        numbers: The class of numbers, one of :data:`CLASSES`.
        results: How many results were compared.
        differing: How many of them differ from the model in some bit.
        example: Of the first that differs: its number of terms K, the device's bits and the
            model's bits; None where nothing differs.
    """

    sku: str
    body: str
    input_dtype: planq.DType
    weight_dtype: planq.DType
    numbers: str
    results: int
    differing: int
    example: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a device's tensor cores were found to compute.

    Attributes:
        device: The device, as planq names it.
        build: The build id of the planq that compared.
        findings: One for each kernel, pair of element types and class of numbers.
    """

    device: str
    build: str
    findings: tuple[Finding, ...]

    @property
    def confirmed(self) -> bool:
        """Whether every result had the bits of the model."""
        return not any(finding.differing for finding in self.findings)

    def results(
        self, sku: str, body: str, input_dtype: planq.DType, weight_dtype: planq.DType
    ) -> int:
        """How many results of a kernel were compared, for one pair of element types."""
        asked = sku, body, input_dtype, weight_dtype
        return sum(
            finding.results
            for finding in self.findings
            if (finding.sku, finding.body, finding.input_dtype, finding.weight_dtype) == asked
        )


def probe(executor: Executor, results: int = 10_000_000, seed: int = 0) -> Probe:
    """Multiplies numbers of every class on a device, and compares the results with the model.

    The device runs the kernel that it selects for ``Accumulation.TENSOR_SM90`` under
    ``Determinism.BIT_EXACT``. 16-bit types use ``matmul``. 8-bit types use ``linear_fp8`` with
    scales of 1, whose results are plain sums. The host computes the model of
    docs/tensor-cores.md. Every result is compared, none is sampled.

    Args:
        executor: The device, from :func:`planq.executors.open_device`.
        results: How many results to compare at least, for each kernel and pair of element types;
            more than a few million take seconds.
        seed: Seed of the random numbers.

    Returns:
        What was found. Selection never reads it: what a kernel promises is fixed in the build.

    Raises:
        DeviceError: The device refuses.
        NoKernelError: No kernel of this build runs there.
        ValueError: Less than one result is asked for.
    """
    if results < 1:
        raise ValueError(f"results: expected at least 1, got {results}")
    host = HostExecutor()
    findings = (
        _finding(executor, host, alike, name, results, seed)
        for pair in PAIRS
        for alike in _by_kernel(executor, _descriptors(pair, results))
        for name in CLASSES
    )
    return Probe(executor.name, planq.build_info().build_id, tuple(findings))


def _by_kernel(executor: Executor, descs: Iterable[Product]) -> Iterable[list[Product]]:
    """Groups products by the kernel that computes them on the device."""
    found = defaultdict(list)
    for desc in descs:
        found[_kernel(_plan(executor, desc))].append(desc)
    return found.values()


def _descriptors(pair: Pair, results: int) -> Iterator[Product]:
    """Products of one pair of types, one for each length K; few rows if few results are wanted."""
    of_float8 = pair[0] in _FLOAT8
    lengths = FLOAT8_TERMS if of_float8 else TERMS
    rows = min(SIDE, 1 + math.isqrt((results - 1) // (len(lengths) * len(CLASSES))))
    tensor = planq.Scope.tensor()
    for terms in lengths:
        sides: dict[str, Any] = {
            "input_shape": (rows, terms),
            "weight_shape": (rows, terms),
            "input_dtype": pair[0],
            "weight_dtype": pair[1],
            "output_dtype": planq.DType.FLOAT32,
        }
        if of_float8:
            yield planq.LinearFp8Descriptor(**sides, input_scope=tensor, weight_scope=tensor)
        else:
            yield planq.MatmulDescriptor(**sides)


def _plan(executor: Executor, desc: Product) -> planq.Plan:
    return planq.Plan.select(executor.stream, desc, PREFERENCE)


def _kernel(plan: planq.Plan) -> tuple[str, str]:
    """The SKU and the body that a plan runs."""
    return plan.sku, next(body.name for body in plan.bodies() if body.chosen)


def _finding(
    executor: Executor, host: Executor, alike: list[Product], name: str, results: int, seed: int
) -> Finding:
    pair: Pair = alike[0].input_dtype, alike[0].weight_dtype
    rounds = -(-results // (len(CLASSES) * len(alike) * alike[0].input_shape[0] ** 2))
    rng = np.random.default_rng([seed, PAIRS.index(pair), CLASSES.index(name)])
    compared = differing = 0
    kernel, example = ("", ""), None
    for desc in alike * rounds:
        operands = _operands(desc, name, rng)
        plans = [_plan(each, desc) for each in (executor, host)]
        found, model = (
            each.run(plan, operands).outputs["output"].view(np.uint32)
            for each, plan in zip((executor, host), plans, strict=True)
        )
        kernel = _kernel(plans[0])
        wrong = np.flatnonzero(found != model)
        compared += found.size
        differing += wrong.size
        if wrong.size and example is None:
            example = desc.input_shape[1], int(found[wrong[0]]), int(model[wrong[0]])
    return Finding(*kernel, *pair, name, compared, differing, example)


def _operands(desc: Product, name: str, rng: np.random.Generator) -> dict[str, Bytes]:
    """The bytes of a product's inputs: numbers of a class, and scales of 1."""
    operands = {}
    for operand, spec in desc.operands().items():
        if spec.dtype.value in numbers.FORMATS:
            values = numbers.CLASSES[name](rng, spec.extents, numbers.FORMATS[spec.dtype.value])
            operands[operand] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        elif spec.role is planq.Role.INPUT:
            operands[operand] = np.ones(1, np.float32).view(np.uint8)
    return operands
