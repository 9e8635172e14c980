"""Managed memory, which the host and a GPU see at one address, is an operand of either."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.reference.formats import Array

STEP: Any = importlib.import_module("operators.step14")
CPU, CUDA, CUDA_MANAGED, ROCM = 1, 2, 13, 10
# Where a capsule's tensor says its device: after its data pointer, and in a versioned one after
# version, context, deleter and flags.
DEVICE_AT = {b"dltensor": 8, b"dltensor_versioned": 8 + 8 + 8 + 8 + 8}


class Elsewhere:
    """Host memory that says it is on another device."""

    def __init__(self, array: Array, device: int, index: int = 0) -> None:
        """`device` is DLPack's number."""
        self.array, self.device = array, (device, index)

    def __dlpack_device__(self) -> tuple[int, int]:
        """As the capsule has it."""
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        """NumPy's capsule with another device."""
        known = {"max_version": options["max_version"]} if "max_version" in options else {}
        capsule = self.array.__dlpack__(**known)
        api = ctypes.pythonapi
        api.PyCapsule_GetName.restype = ctypes.c_char_p
        api.PyCapsule_GetName.argtypes = [ctypes.py_object]
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        name = api.PyCapsule_GetName(capsule)
        place = api.PyCapsule_GetPointer(capsule, name) + DEVICE_AT[name]
        (ctypes.c_int32 * 2).from_address(place)[:] = self.device
        return capsule


def make_args(device: int) -> tuple[Any, dict[str, Array], Array]:
    """Every tensor of a step and its counter elsewhere."""
    names = ("parameter", "gradient", "average", "square")
    tensors = {name: np.ones((3, 5), np.float32) for name in names}
    step = np.array(0)
    args = STEP.Step14Args(
        **{name: Elsewhere(tensor, device) for name, tensor in tensors.items()},
        **dict.fromkeys(("rate", "beta1", "beta2"), 0.5),
        epsilon=Elsewhere(np.array(1e-3), device),
        step=Elsewhere(step, device),
    )
    return args, tensors, step


def test_a_host_plan_takes_managed_memory() -> None:
    """Read, updated in place, and as scalars; by run and by a bound launch."""
    plan = planq.Plan.select(planq.HOST, STEP.Step14Descriptor(shape=(3, 5)))
    args, tensors, step = make_args(CUDA_MANAGED)
    assert plan.can_implement(args)
    plan.run(planq.HOST, None, args)
    after = np.float32(1 - 0.5 / (1 + 1e-3))
    assert (tensors["parameter"] == after).all()
    plan.bind(None, args)(planq.HOST)
    assert (tensors["parameter"] < after).all()
    assert step == 2


@pytest.mark.parametrize(
    ("device", "place"), [(CUDA, "on cuda:0"), (ROCM, "on other memory")], ids=["cuda", "rocm"]
)
def test_memory_that_the_host_does_not_see_is_refused(device: int, place: str) -> None:
    """By the first operand."""
    plan = planq.Plan.select(planq.HOST, STEP.Step14Descriptor(shape=(3, 5)))
    status = plan.can_implement(make_args(device)[0])
    assert (status.operand, status.reason) == (
        "parameter",
        f"parameter: expected shape (3, 5) float32 on host, got (3, 5) float32 {place}",
    )


def test_messages_say_managed() -> None:
    """Of a tensor that is wrong in another way."""
    plan = planq.Plan.select(planq.HOST, STEP.Step14Descriptor(shape=(3, 5)))
    args, _, _ = make_args(CUDA_MANAGED)
    args.gradient = Elsewhere(np.ones((3, 4), np.float32), CUDA_MANAGED)
    assert plan.can_implement(args).reason == (
        "gradient: expected shape (3, 5) float32 on host, got (3, 4) float32 in managed memory"
    )
