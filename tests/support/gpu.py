"""A GPU as a place to run, on PyTorch's memory and streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from planq.audit.reference.formats import Array

# torch.cuda is not annotated throughout.
cuda: Any = torch.cuda


class CudaMemory:
    """Device bytes, aligned to 256."""

    def __init__(self, nbytes: int, device: str) -> None:
        """Allocates without writing."""
        self.bytes = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self.pointer = self.bytes.data_ptr()
        assert self.pointer % 256 == 0
        self._device = device

    def upload(self, image: Array) -> None:
        """Overwrites the bytes, and waits."""
        self.bytes.copy_(torch.from_numpy(image))
        torch.cuda.synchronize(self._device)

    def download(self) -> Array:
        """A copy of the bytes, after everything that was enqueued."""
        torch.cuda.synchronize(self._device)
        copied: Array = self.bytes.cpu().numpy()
        return copied


@dataclass(frozen=True)
class Cuda:
    """A CUDA device; runs go to a stream that is not the default one."""

    index: int = 0
    own_stream: Any = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """As planq and torch name it."""
        return f"cuda:{self.index}"

    def allocate(self, nbytes: int) -> CudaMemory:
        """Aligned memory."""
        return CudaMemory(nbytes, self.name)

    def stream(self) -> Any:
        """A stream of this device."""
        return self.own_stream or new_stream(self.name)

    def synchronize(self) -> None:
        """Waits for the whole device."""
        torch.cuda.synchronize(self.name)


def new_stream(device: str = "cuda:0") -> Any:
    """A torch stream that is not the default one."""
    return cuda.Stream(device)


def on_gpu(values: Array, device: str = "cuda:0") -> torch.Tensor:
    """An array of any dtype, ml_dtypes' too, as a CUDA tensor of the same bits."""
    wanted = getattr(torch, values.dtype.name)
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return torch.from_numpy(flat).to(device).view(wanted).reshape(values.shape)
