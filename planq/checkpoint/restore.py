"""Restoring a checkpoint file: the work of ``planq dequantize``, without what it prints."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import planq
from planq.checkpoint.digests import CONTENT, INPUT, content_digest
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import (
    CheckpointReader,
    CheckpointWriter,
    TensorEntry,
    check_paths,
    copy_tensor,
)
from planq.checkpoint.quality import count_non_finite
from planq.checkpoint.reports import FileReport, TensorReport
from planq.checkpoint.schemes import FLOATING, FORMAT_NAME
from planq.checkpoint.stored import (
    METADATA_PREFIX,
    StoredWeight,
    has_digests,
    read_weights,
    restore,
)
from planq.executors import plan_selector

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from planq.checkpoint.job import Progress
    from planq.executors import Executor


@dataclass(frozen=True, slots=True)
class RestoreJob:
    """One file to restore.

    Attributes:
        source: The file that ``planq quantize`` or bitsandbytes wrote.
        target: The safetensors file to make.
        dtype: The type of the restored weights; None gives each the type it had.
        overwrite: Whether `target` may exist and be replaced.
        damaged_too: Whether to go on with a file that does not match its own digests.
    """

    source: Path
    target: Path
    dtype: planq.DType | None = None
    overwrite: bool = False
    damaged_too: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport(FileReport):
    """What became of a file: the digests of its weights are over their restored values.

    Attributes:
        input_digest: Digest of the content of the input.
        verified: Whether the input holds digests, and matches them.
        damaged: Whether the input holds digests, and does not match them.
    """

    input_digest: str
    verified: bool
    damaged: bool


def restore_file(job: RestoreJob, executor: Executor, progress: Progress) -> RestoreReport:
    """Dequantizes the weights of a file, copies the rest, and only then gives the output its name.

    Args:
        job: What to do.
        executor: Where to run the plans.
        progress: Called before each tensor of the output with its name, its size and the size of
            all.

    Returns:
        The report, which counts the values that are not finite; the output file is complete and
        durable.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    check_paths(job.source, job.target, overwrite=job.overwrite)
    with closing(CheckpointReader(job.source)) as reader:
        weights = _select(job, reader, executor)
        entries = _entries(reader, weights)
        metadata = {
            key: value
            for key, value in reader.metadata.items()
            if not key.startswith(METADATA_PREFIX)
        }
        making = CheckpointWriter(job.target, entries, metadata, overwrite=job.overwrite)
        with closing(making) as writer:
            total = sum(entry.nbytes for entry in entries)
            tensors = []
            for entry in entries:
                progress(entry.name, entry.nbytes, total)
                if entry.name in weights:
                    tensors.append(_restore(weights[entry.name], executor, reader, writer))
                else:
                    copy_tensor(reader.by_name[entry.name], reader, writer)
            reader.check_unchanged()
            read = reader.digests.of(reader.entries)
            stored = content_digest(reader.entries, read, reader.metadata)
            sound = reader.metadata.get(CONTENT) == stored
            made = content_digest(entries, writer.digests(entries), metadata | {INPUT: stored})
            writer.commit()
    copied = [entry for entry in entries if entry.name not in weights]
    return RestoreReport(
        input_digest=stored,
        verified=has_digests(reader) and sound,
        damaged=has_digests(reader) and not sound,
        digest=made,
        source=job.source,
        target=job.target,
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
    """A weight to restore: how it is stored, what dequantizes it, and what it becomes."""

    stored: StoredWeight
    plan: planq.Plan
    entry: TensorEntry


def _select(job: RestoreJob, reader: CheckpointReader, executor: Executor) -> dict[str, _Weight]:
    select = plan_selector(executor)
    weights = {}
    for name, stored in read_weights(reader, compare=not job.damaged_too).items():
        try:
            desc = stored.restoring(job.dtype)
        except planq.DescriptorError as error:
            raise CheckpointError(f"{job.source}: {name!r}: {error}") from error
        entry = replace(
            stored.original,
            dtype=FORMAT_NAME[desc.output_dtype],
            nbytes=desc.operands()["output"].nbytes,
        )
        weights[name] = _Weight(stored, select(desc), entry)
    return weights


def _entries(reader: CheckpointReader, weights: Mapping[str, _Weight]) -> list[TensorEntry]:
    """Returns the tensors of the output, without scales, zero points and the like."""
    parts = [list(weight.stored.parts.values()) for weight in weights.values()]
    spent = {part.name for each in parts for part in each}
    # A weight takes the place of its codes, which may have another name.
    made = {
        each[0].name: weight.entry for each, weight in zip(parts, weights.values(), strict=True)
    }
    return [
        made.get(entry.name, entry)
        for entry in reader.entries
        if entry.name in made or entry.name not in spent
    ]


def _restore(
    weight: _Weight, executor: Executor, reader: CheckpointReader, writer: CheckpointWriter
) -> TensorReport:
    entry, stored, plan = weight.entry, weight.stored, weight.plan
    ran = restore(stored, plan, reader, executor)
    values = ran.outputs["output"]
    writer.write(entry.name, values.data)
    return TensorReport(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        sku=plan.sku,
        guarantee=plan.precision_guarantee(),
        bytes_before=stored.nbytes,
        bytes_after=entry.nbytes,
        digest=writer.digests([entry])[entry.name],
        non_finite=count_non_finite(values, FLOATING[entry.dtype]),
        seconds=ran.seconds,
    )
