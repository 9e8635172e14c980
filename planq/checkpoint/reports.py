"""Reports of a file and of each of its weights, for quantizing and for restoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import planq


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReport:
    """What became of one weight.

    Attributes:
        name: Its name in both files.
        dtype: The type of the floating weight, as the file format names it.
        shape: Its shape.
        sku: The SKU of the kernel that made it.
        guarantee: What that kernel promises.
        bytes_before: Its size in the input; a quantized weight counts with its scales.
        bytes_after: Its size in the output, likewise.
        digest: Digest of what was written for it; subclasses say of what.
        non_finite: How much of it is not finite; subclasses say what is counted.
        seconds: Time of the kernel.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    sku: str
    guarantee: planq.PrecisionGuarantee
    bytes_before: int
    bytes_after: int
    digest: str
    non_finite: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What became of a file.

    Attributes:
        source: The input file.
        target: The output file.
        digest: One SHA-256 over all that was written and over the digest of the input.
        device: Where the plans ran.
        tensors: The weights, in the order of the file.
        copied_tensors: How many tensors were copied unchanged.
        copied_bytes: Their size in bytes.
        source_bytes: Size of the input file in bytes.
        target_bytes: Size of the output file in bytes.
        seconds: Time from opening the input to the output's final name.
    """

    source: Path
    target: Path
    digest: str
    device: str
    tensors: tuple[TensorReport, ...]
    copied_tensors: int
    copied_bytes: int
    source_bytes: int
    target_bytes: int
    seconds: float

    @property
    def marked(self) -> tuple[TensorReport, ...]:
        """The weights with a value that is not finite."""
        return tuple(tensor for tensor in self.tensors if tensor.non_finite)

    @property
    def kernel_seconds(self) -> float:
        """The time of all kernels."""
        return sum(tensor.seconds for tensor in self.tensors)
