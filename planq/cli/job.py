"""Quantizing a checkpoint file: the work of ``planq quantize``, without its words."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import planq
from planq.cli.checkpoint import CheckpointReader, CheckpointWriter, TensorEntry, check_target
from planq.cli.failure import CommandError
from planq.cli.quality import count_nan, signal_to_noise_db
from planq.cli.schemes import Scheme, describe, facts, is_weight, stored

if TYPE_CHECKING:
    import re
    from pathlib import Path

    from planq.cli.devices import Executor

# Codes are the same bits on every device only under this rung, and the files promise that.
PREFERENCE = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT)

_METADATA_PREFIX = "planq."

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """One file to quantize.

    Attributes:
        source: The safetensors file to read.
        target: The safetensors file to make.
        scheme: How weights are quantized.
        include: Only weights in whose name this is found; None for all.
        overwrite: Whether `target` may exist and be replaced.
    """

    source: Path
    target: Path
    scheme: Scheme
    include: re.Pattern[str] | None = None
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class TensorReport:
    """What became of one weight.

    Attributes:
        name: Its name in both files.
        dtype: Its type before, as the file format names it.
        shape: Its shape before.
        sku: The kernel that made the codes.
        guarantee: What that kernel promises.
        sqnr_db: Signal-to-quantization-noise ratio; infinite where the codes are exact, NaN where
            there is no signal or a value that is not finite.
        non_finite_segments: Segments with a value that is not finite; they dequantize to NaN.
        bytes_before: Size of the weight.
        bytes_after: Size of its codes and scales.
        sha256: Digest of the codes.
        seconds: Time of the kernel.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    sku: str
    guarantee: planq.PrecisionGuarantee
    sqnr_db: float
    non_finite_segments: int
    bytes_before: int
    bytes_after: int
    sha256: str
    seconds: float


@dataclass(frozen=True, slots=True)
class JobReport:
    """What became of a file.

    Attributes:
        job: The request.
        device: Where the plans ran.
        tensors: The weights, in the order of the file.
        copied_tensors: How many tensors went over unchanged.
        copied_bytes: Their size.
        source_bytes: Size of the input file.
        target_bytes: Size of the output file.
        seconds: Time from opening the input to the output's final name.
    """

    job: Job
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
        return tuple(tensor for tensor in self.tensors if tensor.non_finite_segments)

    @property
    def kernel_seconds(self) -> float:
        """The time of all kernels."""
        return sum(tensor.seconds for tensor in self.tensors)

    @property
    def digest(self) -> str:
        """One SHA-256 over the names and digests of all codes."""
        lines = "".join(f"{tensor.sha256}  {tensor.name}\n" for tensor in self.tensors)
        return hashlib.sha256(lines.encode()).hexdigest()


def quantize_file(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes the weights of a file, copies the rest, and only then gives the output its name.

    Args:
        job: What to do.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report; the output file is complete and durable.

    Raises:
        CommandError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    if job.target.exists() and job.target.samefile(job.source):
        raise CommandError(f"{job.target}: the output is the input")
    check_target(job.target, overwrite=job.overwrite)
    with closing(CheckpointReader(job.source)) as reader:
        weights = _select(job, reader, executor)
        entries = [made for entry in reader.entries for made in _made_from(entry, weights)]
        metadata = _metadata(job, reader, weights)
        making = CheckpointWriter(job.target, entries, metadata, overwrite=job.overwrite)
        with closing(making) as writer:
            total = sum(entry.nbytes for entry in reader.entries)
            tensors = []
            for entry in reader.entries:
                progress(entry.name, entry.nbytes, total)
                if entry.name in weights:
                    weight = weights[entry.name]
                    tensors.append(_quantize(weight, executor, reader, writer))
                else:
                    _copy(entry, reader, writer)
            reader.check_unchanged()
            writer.commit()
    copied = [entry for entry in reader.entries if entry.name not in weights]
    return JobReport(
        job=job,
        device=executor.name,
        tensors=tuple(tensors),
        copied_tensors=len(copied),
        copied_bytes=sum(entry.nbytes for entry in copied),
        source_bytes=reader.size,
        target_bytes=writer.size,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, slots=True)
class _Weight:
    entry: TensorEntry
    desc: planq.DynamicRangeQuantizeDescriptor
    plan: planq.Plan


def _select(job: Job, reader: CheckpointReader, executor: Executor) -> dict[str, _Weight]:
    """Selects a plan for every weight of the request, by name; equal descriptors share one."""
    if any(key.startswith(_METADATA_PREFIX) for key in reader.metadata):
        raise CommandError(f"{job.source}: already quantized by planq")
    plans: dict[planq.DynamicRangeQuantizeDescriptor, planq.Plan] = {}
    weights: dict[str, _Weight] = {}
    for entry in reader.entries:
        if not is_weight(entry) or (job.include and not job.include.search(entry.name)):
            continue
        desc = describe(job.scheme, entry)
        if desc not in plans:
            plans[desc] = planq.Plan.select(executor.stream, desc, PREFERENCE)
        weights[entry.name] = _Weight(entry, desc, plans[desc])
    if not weights:
        which = f" whose name matches {job.include.pattern!r}" if job.include else ""
        raise CommandError(f"{job.source}: no 2-D floating weight{which}, nothing to quantize")
    return weights


def _made_from(entry: TensorEntry, weights: Mapping[str, _Weight]) -> list[TensorEntry]:
    if entry.name not in weights:
        return [entry]
    return list(stored(entry.name, weights[entry.name].desc).values())


def _metadata(job: Job, reader: CheckpointReader, weights: Mapping[str, _Weight]) -> dict[str, str]:
    """Returns the input's own strings and planq's; none depends on the device or on the time."""
    build = planq.build_info()
    originals = {
        name: {"dtype": weight.entry.dtype, "shape": weight.entry.shape}
        for name, weight in weights.items()
    }
    own = {
        "scheme": job.scheme.value,
        "version": build.version,
        "build_id": build.build_id,
        "descriptor": facts(next(iter(weights.values())).desc),
        "tensors": json.dumps(originals, separators=(",", ":")),
    }
    return reader.metadata | {_METADATA_PREFIX + key: value for key, value in own.items()}


def _copy(entry: TensorEntry, reader: CheckpointReader, writer: CheckpointWriter) -> None:
    at = 0
    for piece in reader.chunks(entry):
        writer.write(entry.name, piece, at)
        at += len(piece)


def _quantize(
    weight: _Weight, executor: Executor, reader: CheckpointReader, writer: CheckpointWriter
) -> TensorReport:
    entry, desc, plan = weight.entry, weight.desc, weight.plan
    made = stored(entry.name, desc)
    values = reader.tensor(entry)
    result = executor.quantize(plan, values)
    codes, scale = result.outputs["output"], result.outputs["scale"]
    for operand, data in result.outputs.items():
        writer.write(made[operand].name, data.data)
    return TensorReport(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        sku=plan.sku,
        guarantee=plan.precision_guarantee(),
        sqnr_db=signal_to_noise_db(desc, values, codes, scale),
        non_finite_segments=count_nan(scale, desc.scale_dtype),
        bytes_before=entry.nbytes,
        bytes_after=sum(part.nbytes for part in made.values()),
        sha256=hashlib.sha256(codes.data).hexdigest(),
        seconds=result.seconds,
    )
