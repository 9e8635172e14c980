"""The ranges that ``planq quantize --calibrate`` reads, and the scales that they give.

The file is a JSON object. Under the name of each weight it has ``{"low": L, "high": H}``, the ends
of the range that codes cover, or ``{"absmax": A}``, which means ``-A`` and ``A``. Each is one
number for the whole weight, or nested lists in the shape of the scheme's scales.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from planq.checkpoint.schemes import Scaling
    from planq.executors import Bytes

Float64 = npt.NDArray[np.float64]

# Scales of a weight have at most two axes.
_DEEPEST = 2

_FORMS = '{"low": ..., "high": ...} or {"absmax": ...}'


@dataclass(frozen=True, slots=True)
class Ranges:
    """A file of ranges, its values not yet checked.

    Attributes:
        path: The file.
        values: What it holds for each name.
        sha256: Digest of the file.
    """

    path: Path
    values: Mapping[str, object]
    sha256: str

    def check_names(self, needed: Collection[str], known: Collection[str]) -> None:
        """Refuses ranges that were made for another checkpoint.

        Args:
            needed: Weights that are to be quantized.
            known: Names that the file may hold.

        Raises:
            CheckpointError: A weight has no range, or a range no weight.
        """
        for name in needed:
            if name not in self.values:
                raise CheckpointError(f"{self.path}: no range for {name!r}")
        for name in self.values:
            if name not in known:
                raise CheckpointError(f"{self.path}: {name!r} is no weight of the input")

    def parameters(self, name: str, desc: Scaling) -> dict[str, Bytes]:
        """Returns the bytes of the scales and zero points of one weight, by operand.

        Raises:
            CheckpointError: The file has no valid range for it, or one of another shape than its
                scales.
        """
        where = f"{self.path}: {name!r}"
        shape = desc.operands()["scale"].extents
        low, high = (_checked(where, end, shape, desc.scale_dtype) for end in self._ends(name))
        if (low > high).any():
            raise CheckpointError(f"{where}: low is above high")
        found = planq.qparams(
            low,
            high,
            input_dtype=desc.input_dtype,
            output_dtype=desc.output_dtype,
            mode=desc.mode,
            q_min=desc.q_min,
            q_max=desc.q_max,
            scale_dtype=desc.scale_dtype,
        )
        operands = found._asdict().items()
        return {
            operand: np.ravel(values).view(np.uint8)
            for operand, values in operands
            if values is not None
        }

    def _ends(self, name: str) -> tuple[Float64, Float64]:
        where = f"{self.path}: {name!r}"
        match self.values[name]:
            case {"low": low, "high": high, **rest} if not rest:
                return _numbers(where, "low", low), _numbers(where, "high", high)
            case {"absmax": absmax, **rest} if not rest:
                largest = _numbers(where, "absmax", absmax)
                if (largest < 0).any():
                    raise CheckpointError(f"{where}: absmax is negative")
                return -largest, largest
        raise CheckpointError(f"{where}: expected {_FORMS}")


def read_ranges(path: Path) -> Ranges:
    """Reads a file of ranges.

    Raises:
        CheckpointError: It is not a JSON object with unique names.
        OSError: It cannot be read.
    """
    content = path.read_bytes()
    try:
        values = parse(content)
    except ValueError as error:
        raise CheckpointError(f"{path}: not a JSON file of ranges: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object with {_FORMS} for each weight")
    return Ranges(path, values, hashlib.sha256(content).hexdigest())


def _numbers(where: str, key: str, values: object) -> Float64:
    """Returns one number, or nested lists of numbers, as an array."""
    try:
        array = np.asarray(values if _depth(values) <= _DEEPEST else None, dtype=object)
        if all(type(value) in (int, float) for value in array.flat):
            return array.astype(np.float64)
    except (ValueError, OverflowError):  # lists that differ in depth; a number beyond float64
        pass
    raise CheckpointError(f"{where}: {key}: expected a number, or lists of numbers of one length")


def _depth(values: object) -> int:
    """How deep lists are nested around the first number."""
    depth = 0
    while isinstance(values, list):
        depth += 1
        values = values[0] if values else None
    return depth


def _checked(where: str, end: Float64, shape: tuple[int, ...], dtype: planq.DType) -> Float64:
    """Broadcasts one end of a range to the shape of the scales, and checks it."""
    if end.shape not in ((), shape):
        expected = f"one number or the shape {list(shape)}"
        raise CheckpointError(f"{where}: expected {expected}, got the shape {list(end.shape)}")
    largest = np.finfo(np.dtype(dtype.value)).max
    if not (np.abs(end) <= largest).all():
        raise CheckpointError(f"{where}: a value is beyond {dtype.value}")
    return np.broadcast_to(end, shape)
