"""Streams that the caller owns. planq has no current stream and makes none."""

from __future__ import annotations

from typing import Final

from planq import _core


def host_stream(threads: int) -> _core.HostStream:
    """A host stream that computes inline on this many threads, the calling one included.

    The bits do not depend on the number.

    Raises:
        StreamError: ``threads`` is not between 1 and 1024.
    """
    return _core.HostStream(threads)


def cuda_stream(handle: int, device: int) -> _core.CudaStream:
    """A CUDA stream by its raw handle (``cudaStream_t`` as an integer) and device ordinal."""
    return _core.CudaStream(handle, device)


HOST: Final = host_stream(threads=_core.hardware_threads())
"""The host stream on all processors of this machine."""
