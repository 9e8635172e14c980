"""What a guarantee claims, and how each claim is held to a kernel.

A claim is checked on the fixed cases of :mod:`planq.audit.ops`. Their inputs have special values,
ties and subnormals among them, and their shapes are odd as well as even. Every run begins with
poisoned outputs and workspace between guards, and every byte that lies around an operand is
compared after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import planq
from planq.audit import digests, dims, kernels, places
from planq.audit.every_input import check_every_input, functions_of
from planq.audit.memory import Device
from planq.audit.operators import name_of

# Of how many cases; None: of all where a claim is about all, else of as many as tests take.
Most = int | None
Check = Callable[[Device, str, planq.KernelInfo, Most], int]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a kernel promises.

    Attributes:
        name: A word or two.
        says: The claim, as a sentence about the kernel.
        check: Holds a kernel of an operator to it on a device, and returns in how many runs.
        excludes: Why the kernel does not claim it there; empty where it does.
    """

    name: str
    says: str
    check: Check
    excludes: Callable[[planq.KernelInfo], str] = lambda _: ""


# Cases of a claim that is not about every case, where all are asked for.
FULL: Final = 16


def _of_all(check: Callable[..., int]) -> Check:
    """A check of all cases that a kernel takes."""

    def held(device: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
        return check(device, operator, name_of(kernel), most)

    return held


def _of_some(check: Callable[..., int]) -> Check:
    """A check that runs each of its cases many times or in many places."""

    def held(device: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
        return check(device, operator, name_of(kernel), FULL if most is None else most)

    return held


def _new_inputs(device: Device, operator: str, kernel: planq.KernelInfo, _: Most) -> int:
    return kernels.check_new_inputs(device, operator, name_of(kernel))


def _threads(_: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
    if most is None:
        return kernels.check_threads(operator, name_of(kernel))
    return kernels.check_threads(operator, name_of(kernel), most=0, threads=(3,))


def _shared(device: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
    name = name_of(kernel)
    if most is None:
        return kernels.check_shared(device, operator, name)
    return kernels.check_shared(device, operator, name, most, places=2)


def _dims(device: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
    name = name_of(kernel)
    if not dims.admits(operator, name):
        return 0
    return dims.check_dims(device, operator, name, *(() if most is None else (most,)))


def _guarantee(device: Device, operator: str, kernel: planq.KernelInfo, _: Most) -> int:
    return kernels.check_guarantee(device, operator, kernel)


def _instruction_sets(_: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
    return places.check_instruction_sets(operator, name_of(kernel), FULL if most is None else most)


def _every_input(device: Device, operator: str, kernel: planq.KernelInfo, most: Most) -> int:
    return check_every_input(device, operator, name_of(kernel), most)


def _is_the_hosts(kernel: planq.KernelInfo) -> str:
    return "" if kernel.backend is planq.Backend.CUDA else "the host has neither graphs nor streams"


def _is_the_host(kernel: planq.KernelInfo) -> str:
    return _promises_a_bound(kernel) if kernel.backend is planq.Backend.CUDA else "it is the host's"


def _has_no_other_device(kernel: planq.KernelInfo) -> str:
    if kernel.backend is planq.Backend.HOST:
        return "it is the host's"
    return "" if len(planq.devices()) > 1 else "the machine has no other device"


def _has_one_instruction_set(kernel: planq.KernelInfo) -> str:
    if kernel.backend is planq.Backend.CUDA:
        return "a GPU has one instruction set"
    return "" if places.narrower() else "the processor has one instruction set"


def _is_a_gpus(kernel: planq.KernelInfo) -> str:
    return "" if kernel.backend is planq.Backend.HOST else "a GPU has no number of threads"


def _depends_on_the_batch(kernel: planq.KernelInfo) -> str:
    return "" if kernel.guarantee.batch_invariant else "it does not promise batch invariance"


def _has_no_function(kernel: planq.KernelInfo) -> str:
    operator = kernel.sku.partition("/")[0].partition(".")[0]
    return "" if functions_of(operator) else "it has no elementary function of one number"


def _promises_a_bound(kernel: planq.KernelInfo) -> str:
    exact = kernel.guarantee.determinism is planq.Determinism.BIT_EXACT
    return "" if exact else "it promises a bound, not bits"


CLAIMS: Final = (
    Claim(
        "reference",
        "The outputs have the bits of a reference in NumPy that shares no code with the kernel, "
        "or lie within the bound that it promises; nothing else is written.",
        _of_all(kernels.check_bits),
    ),
    Claim(
        "recorded",
        "The outputs have the digests that GPUs gave; planq/audit/golden has them.",
        _of_all(digests.check_recorded),
        _promises_a_bound,
    ),
    Claim(
        "again",
        "Ten runs on the same operands have the same bits, whatever outputs and workspace held.",
        _of_some(kernels.check_ten_runs),
    ),
    Claim(
        "rows alone",
        "What a row, a segment or a batch has among others it has alone.",
        _of_some(kernels.check_batch),
        _depends_on_the_batch,
    ),
    Claim(
        "misaligned",
        "Pointers off by one element change no bit.",
        _of_some(kernels.check_misaligned),
    ),
    Claim(
        "strided",
        "Gaps between rows and planes change no bit, and are not written.",
        _of_some(kernels.check_strided),
    ),
    Claim(
        "shared rows",
        "Rows that repeat, overlap or run backwards are read as their strides say.",
        _shared,
    ),
    Claim(
        "oversized",
        "A group or a block that is larger than the tensor is the tensor.",
        _of_some(kernels.check_oversized),
    ),
    Claim("empty", "Tensors without elements succeed.", _of_all(kernels.check_empty)),
    Claim("new inputs", "A plan keeps nothing of its last run.", _new_inputs),
    Claim("extents", "A plan of a Dim has the bits of a plan of that very extent.", _dims),
    Claim("threads", "The number of threads changes no bit.", _threads, _is_a_gpus),
    Claim(
        "instruction sets",
        "A process that is limited to a narrower instruction set of the processor has the same "
        "bits.",
        _instruction_sets,
        _has_one_instruction_set,
    ),
    Claim("host", "The host backend has the same bits.", _of_all(places.check_host), _is_the_host),
    Claim(
        "graph",
        "A run that is captured in a CUDA graph has, at each replay, the bits of what it then "
        "finds.",
        _of_some(places.check_captured),
        _is_the_hosts,
    ),
    Claim(
        "busy device",
        "Other work on the device, on another stream, changes no bit.",
        _of_some(places.check_busy),
        _is_the_hosts,
    ),
    Claim(
        "stream order",
        "A run reads what its stream has written before it, and what follows waits for it.",
        _of_some(places.check_order),
        _is_the_hosts,
    ),
    Claim(
        "other device",
        "Every other GPU of the machine has the same bits.",
        _of_some(places.check_devices),
        _has_no_other_device,
    ),
    Claim(
        "every input",
        "Each elementary function of it has the recorded digest of its results for all 2^32 "
        "inputs; a quick audit takes every 4099th.",
        _every_input,
        _has_no_function,
    ),
    Claim("guarantee", "Each plan promises what its kernel does.", _guarantee),
)
