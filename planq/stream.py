"""Streams that the caller owns. planq has no current stream and creates no CUDA stream."""

from __future__ import annotations

from typing import Final

from planq import _core
from planq.errors import StreamError, shown


def host_stream(threads: int) -> _core.HostStream:
    """A host stream: ``run`` computes on this many threads, the calling one included, and waits.

    The bits do not depend on the number of threads.

    Raises:
        StreamError: ``threads`` is not between 1 and 1024.
    """
    try:
        return _core.HostStream(threads)
    except TypeError:
        raise StreamError(_core.threads_text(shown(threads))) from None


def cuda_stream(handle: int, device: int) -> _core.CudaStream:
    """A CUDA stream by its raw handle (``cudaStream_t`` as an integer) and device ordinal.

    Raises:
        StreamError: The arguments are not integers of 64 and 32 bits.
    """
    try:
        return _core.CudaStream(handle, device)
    except TypeError:
        expected = "(handle, device), integers of 64 and 32 bits"
        raise StreamError(f"expected {expected}, got ({shown(handle)}, {shown(device)})") from None


HOST: Final = host_stream(threads=_core.hardware_threads())
"""The host stream with a thread for each processor of this machine."""
