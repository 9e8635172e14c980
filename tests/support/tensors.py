"""Host arrays as torch tensors and back, for dtypes that NumPy itself does not have."""

from __future__ import annotations

import numpy as np
import torch

from planq.audit.reference.formats import STORAGE, Array


def as_torch(values: Array) -> torch.Tensor:
    """A copy of an array of any dtype, ml_dtypes' too, as a tensor of the same bits."""
    dtype = getattr(torch, values.dtype.name)
    if values.size == 0:
        return torch.empty(values.shape, dtype=dtype)
    flat = torch.from_numpy(np.ascontiguousarray(values).reshape(-1).view(np.uint8).copy())
    return flat.view(dtype).reshape(values.shape)


def from_torch(tensor: torch.Tensor) -> Array:
    """The tensor's bits as an array of the dtype with the same name."""
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() == 0:
        return np.empty(tuple(tensor.shape), STORAGE[name])
    flat: Array = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    values: Array = flat.view(STORAGE[name])
    return values.reshape(tuple(tensor.shape))
