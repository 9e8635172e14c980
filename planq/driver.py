"""Calls of the CUDA driver, out of the package ``cuda-python``."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import TYPE_CHECKING, Any

from planq.errors import PlanqError

if TYPE_CHECKING:
    from collections.abc import Iterator


def checked(answer: tuple[Any, ...], what: str = "a copy of operands") -> tuple[Any, ...]:
    """What a call returned beside its error code.

    Args:
        answer: The code, and the values after it.
        what: What failed if the code is an error, for the message.

    Raises:
        PlanqError: The code is an error.
    """
    error, *values = answer
    if int(error) != 0:
        raise PlanqError(f"{what} failed: {error.name}")
    return tuple(values)


@functools.cache
def driver() -> Any:
    """The module that has the calls."""
    return importlib.import_module("cuda.bindings.driver")


@functools.cache
def context(index: int) -> Any:
    """The context that CUDA's runtime uses; it is kept for the life of the process."""
    (device,) = checked(driver().cuDeviceGet(index))
    (found,) = checked(driver().cuDevicePrimaryCtxRetain(device))
    return found


@contextlib.contextmanager
def current(device: int) -> Iterator[Any]:
    """Yields the driver; inside, the device's context is current.

    Another thread may be capturing a graph in the mode that forbids such calls to every thread. It
    means other work than this, so this thread leaves that mode for as long.
    """
    calls = driver()
    relaxed = calls.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(calls.cuCtxPushCurrent(context(device)))
    try:
        (before,) = checked(calls.cuThreadExchangeStreamCaptureMode(relaxed))
        try:
            yield calls
        finally:
            checked(calls.cuThreadExchangeStreamCaptureMode(before))
    finally:
        checked(calls.cuCtxPopCurrent())
