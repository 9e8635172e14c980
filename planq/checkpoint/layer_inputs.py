"""The inputs of layers that ``planq quantize --layer-inputs`` reads.

The file is a safetensors file. Under the name of a weight, it has the rows that the layer was fed
when the model read some text: a matrix of float16, bfloat16 or float32, as wide as the weight.

**The sums.** ``H = X^T X`` is made of pieces of 2048 rows, from the first on. In a piece, each
column is rounded to integers, ``N = rne(x * 2^(21 - e))``: e is the least integer for which all
magnitudes of the column are below ``2^e``, and 0 if all are 0. Products of these integers, and sums
of 2048 of them, are at most 2^53. So float64 holds each of them exactly, and no order of additions
changes one. ``G_ij = 2^(e_i + e_j - 42) * (N^T N)_ij`` is exact, too. H is the first G; each
further one is added in float64.

The mean magnitude of a column is the sum of its ``|x|``, rounded once to float64, divided by the
number of rows.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planq.checkpoint.failure import TensorError
from planq.checkpoint.files import CheckpointReader
from planq.checkpoint.gptq import Hessian
from planq.checkpoint.quality import decoded
from planq.checkpoint.schemes import FLOATING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from planq.checkpoint.files import TensorEntry
    from planq.executors import Bytes

Float64 = npt.NDArray[np.float64]

_DTYPES = ("F16", "BF16", "F32")
_BITS = 21
_PIECE = 2048  # 2^11 products of 2 * 21 bits
# Queries, keys and values have one input, and stand near each other in a file.
_KEPT = 3


class LayerInputs:
    """An open file of inputs.

    Args:
        reader: The file, which the caller closes.

    Attributes:
        path: The file.
        sha256: Its digest.
    """

    def __init__(self, reader: CheckpointReader) -> None:
        self.path = reader.path
        with reader.path.open("rb") as file:
            self.sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        self._reader = reader
        self._kept: dict[bytes, Hessian] = {}

    def check(self, weights: Iterable[TensorEntry]) -> None:
        """Refuses a file without fitting inputs for each of these weights.

        Fewer rows than columns leave directions in which a weight could be anything.

        Raises:
            TensorError: Inputs are missing, or of another type or shape.
        """
        for weight in weights:
            columns = weight.shape[1]
            expected = f"F16, BF16 or F32 [{columns} or more, {columns}]"
            found = self._reader.by_name.get(weight.name)
            if found is None:
                raise TensorError(self.path, weight.name, expected, None)
            fits = found.dtype in _DTYPES and len(found.shape) == 2
            if not fits or found.shape[1] != columns or found.shape[0] < columns:
                raise TensorError(self.path, weight.name, expected, found.words)

    def hessian(self, name: str) -> Hessian:
        """Returns the Hessian of the layer with this weight, which `check` has seen.

        Raises:
            TensorError: Inputs are not finite, or all 0.
            CheckpointError: The file changed.
        """
        entry, payload, key = self._read(name)
        if key not in self._kept:
            inputs = self._decoded(entry, payload)
            while len(self._kept) >= _KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = Hessian(gram(inputs))
        return self._kept[key]

    def means(self, names: Sequence[str]) -> Float64:
        """Returns the mean magnitude of each column of the input that these weights share.

        Args:
            names: The weights, which `check` has seen.

        Raises:
            TensorError: Inputs are not finite, or all 0, or those of one weight are others than
                those of the first.
            CheckpointError: The file changed.
        """
        entry, payload, key = self._read(names[0])
        for name in names[1:]:
            if self._read(name)[2] != key:
                expected = f"the rows of {names[0]!r}, which has the same input"
                raise TensorError(self.path, name, expected, "others")
        inputs = self._decoded(entry, payload)
        return np.array([math.fsum(column.tolist()) for column in np.abs(inputs).T]) / len(inputs)

    def _read(self, name: str) -> tuple[TensorEntry, Bytes, bytes]:
        """The inputs of a weight, as they stand in the file, and a digest of them."""
        entry = self._reader.by_name[name]
        payload = self._reader.tensor(entry)
        self._reader.check_unchanged()
        key = hashlib.sha256(payload.data).digest() + repr((entry.dtype, entry.shape)).encode()
        return entry, payload, key

    def _decoded(self, entry: TensorEntry, payload: Bytes) -> Float64:
        """The inputs as float64; refuses those that tell nothing."""
        inputs = decoded(payload, FLOATING[entry.dtype], entry.shape[0])
        if not np.isfinite(inputs).all():
            raise TensorError(self.path, entry.name, "finite values", "a NaN or an infinity")
        if inputs.size and not inputs.any():
            raise TensorError(self.path, entry.name, "values that are not all 0", "zeros")
        return inputs


@contextmanager
def open_inputs(path: Path) -> Iterator[LayerInputs]:
    """Opens a file of inputs for a ``with`` block.

    Raises:
        CheckpointError: It is no valid safetensors file.
        OSError: It cannot be read.
    """
    with closing(CheckpointReader(path)) as reader:
        yield LayerInputs(reader)


def gram(inputs: Float64) -> Float64:
    """Returns ``X^T X`` of finite numbers of float32, the same bits on every machine."""
    total: Float64 | None = None
    for start in range(0, len(inputs), _PIECE):
        piece = inputs[start : start + _PIECE]
        _, exponents = np.frexp(np.abs(piece).max(axis=0))
        integers = np.rint(np.ldexp(piece, _BITS - exponents))
        exact = integers.T @ integers  # the largest arrays of a request, so changed in place
        np.ldexp(exact, exponents[:, None] + exponents - 2 * _BITS, out=exact)
        if total is None:
            total = exact
        else:
            total += exact
    return np.zeros((inputs.shape[1],) * 2) if total is None else total
