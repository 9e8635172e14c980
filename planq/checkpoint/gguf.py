"""GGUF files: Q8_0 and Q4_0 written, and all blocks of `planq.GgufType` read.

The package ``gguf`` writes the container, and is imported only then. planq's plans make the
blocks, with `planq.Convention.GGML`, and restore them, with `gguf_dequantize`. Tensors keep their
names. llama.cpp expects names and keys of its own for each architecture; its conversion scripts
make those.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.digests import CONTENT, INPUT, SOURCE, content_digest, expect_digest
from planq.checkpoint.failure import CheckpointError, TensorError, note_output, outputs
from planq.checkpoint.files import (
    CheckpointReader,
    CheckpointWriter,
    TensorEntry,
    check_paths,
    check_target,
)
from planq.checkpoint.gguf_files import GgufFiles, read_gguf
from planq.checkpoint.header import BITS
from planq.checkpoint.job import (
    Comparison,
    Job,
    JobReport,
    Progress,
    WeightReport,
    chosen_weights,
    difference,
    job_from,
    this_build,
)
from planq.checkpoint.quality import count_non_finite, count_spoiled, signal_to_noise_db
from planq.checkpoint.reports import TensorReport
from planq.checkpoint.restore import RestoreJob, RestoreReport
from planq.checkpoint.schemes import (
    FLOATING,
    FORMAT_NAME,
    GGML_BLOCK,
    Scheme,
    describe,
    is_weight,
)
from planq.checkpoint.stored import METADATA_PREFIX
from planq.executors import plan_selector

if TYPE_CHECKING:
    from planq.executors import Bytes, Executor, Ran

SUFFIX = ".gguf"
_ARCHITECTURE = "planq"
_SCALE_BYTES = 2
# The types of plain numbers, which have the same names in safetensors.
_PLAIN = ("F16", "BF16", "F32", "F64", "I8", "I16", "I32", "I64")
_OPTIONS = METADATA_PREFIX + "options"
_BLOCKS = {kind.value.upper(): kind for kind in planq.GgufType}


def quantize_gguf(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes the weights of a safetensors file into a GGUF file, which is held in memory.

    Args:
        job: What to do; the scheme is Q8_0 or Q4_0.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report; the output is complete and has its name.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    if job.verify:
        raise CheckpointError(
            "--verify: not of a GGUF file; `planq verify` compares every byte of one"
        )
    package = _package()
    check_paths(job.source, job.target, overwrite=job.overwrite)
    partial = job.target.with_name(f".planq-{os.getpid()}-{os.urandom(4).hex()}.partial")
    writer = package.GGUFWriter(partial, _ARCHITECTURE)
    made: list[tuple[TensorEntry, str]] = []
    tensors: list[WeightReport] = []
    with closing(CheckpointReader(job.source, whole=True)) as reader:
        chosen = {entry.name for entry in chosen_weights(job, reader)}
        select = plan_selector(executor)
        total = sum(entry.nbytes for entry in reader.entries)
        for entry in reader.entries:
            progress(entry.name, entry.nbytes, total)
            data = reader.tensor(entry)
            if entry.name in chosen:
                desc = describe(job.scheme, entry, rule=job.form.rule())
                report, blocks = _quantized(job, entry, desc, data, select(desc), executor)
                tensors.append(report)
                kind, data = job.scheme.name, blocks
            else:
                kind = _plain_kind(job.source, entry)
            writer.add_tensor(
                entry.name,
                data.reshape(_row_shape(entry, data)),
                raw_dtype=package.GGMLQuantizationType[kind],
            )
            # The container stores a tensor without axes with one.
            stored = TensorEntry(entry.name, kind, entry.shape or (1,), data.size)
            made.append((stored, hashlib.sha256(data.data).hexdigest()))
        reader.check_unchanged()
        source_digest = reader.sha256()
        copied = [entry for entry in reader.entries if entry.name not in chosen]
        source_bytes = reader.size
    facts = {SOURCE: source_digest, _OPTIONS: json.dumps(job.options, sort_keys=True)}
    digests = {entry.name: digest for entry, digest in made}
    digest = content_digest([entry for entry, _ in made], digests, facts)
    try:
        _write(writer, {**facts, CONTENT: digest})
        size = partial.stat().st_size
        check_target(job.target, overwrite=job.overwrite)
        partial.replace(job.target)
    finally:
        partial.unlink(missing_ok=True)
    note_output(job.target)
    return JobReport(
        job=job,
        digest=digest,
        source_digest=source_digest,
        source=job.source,
        target=job.target,
        device=executor.name,
        tensors=tuple(tensors),
        largest_errors={},
        floating={e.name: job.why_not(e.name) for e in copied if is_weight(e)},
        copied_tensors=len(copied),
        copied_bytes=sum(entry.nbytes for entry in copied),
        source_bytes=source_bytes,
        target_bytes=size,
        seconds=time.perf_counter() - start,
    )


def restore_gguf(job: RestoreJob, executor: Executor, progress: Progress) -> RestoreReport:
    """Restores a GGUF file: blocks as float32 unless told, other tensors as they are.

    Args:
        job: What to do.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report. A file that planq did not write has no digest, and is not verified.

    Raises:
        CheckpointError: The file is no GGUF file, holds blocks of a type that `planq.GgufType` does
            not have, or does not match the digest in its metadata; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    check_paths(job.source, job.target, overwrite=job.overwrite)
    with read_gguf(job.source) as files:
        return _restore(job, files, executor, progress)


def _restore(
    job: RestoreJob, files: GgufFiles, executor: Executor, progress: Progress
) -> RestoreReport:
    start = time.perf_counter()
    facts = _facts(files)
    dtype = job.dtype or planq.DType.FLOAT32
    entries = [_restored_entry(files, entry, dtype) for entry in files.entries]
    plans = {e.name: _restoring(e, dtype) for e in files.entries if e.dtype in _BLOCKS}
    if not plans:
        raise CheckpointError(f"{job.source}: holds no blocks, nothing to restore")
    total = sum(entry.nbytes for entry in entries)
    select = plan_selector(executor)
    reports = []
    with closing(CheckpointWriter(job.target, entries, {}, overwrite=job.overwrite)) as writer:
        for stored, entry in zip(files.entries, entries, strict=True):
            progress(entry.name, entry.nbytes, total)
            data = files.tensor(stored)
            if entry.name not in plans:
                writer.write(entry.name, data.data)
                continue
            plan = select(plans[entry.name])
            ran = executor.run(plan, {"input": data})
            writer.write(entry.name, ran.outputs["output"].data)
            digest = writer.digests([entry])[entry.name]
            reports.append(_restored_report(entry, plan, data.size, digest, ran))
        files.check_unchanged()
        found = content_digest(files.entries, files.digests(), facts)
        if facts and not job.damaged_too:
            expect_digest(job.source, facts, found)
        made = content_digest(entries, writer.digests(entries), {INPUT: found})
        writer.commit()
    copied = [entry for entry in entries if entry.name not in plans]
    return RestoreReport(
        input_digest=found,
        verified=facts.get(CONTENT) == found,
        damaged=bool(facts) and facts.get(CONTENT) != found,
        digest=made,
        source=job.source,
        target=job.target,
        device=executor.name,
        tensors=tuple(reports),
        copied_tensors=len(copied),
        copied_bytes=sum(entry.nbytes for entry in copied),
        source_bytes=files.size,
        target_bytes=writer.size,
        seconds=time.perf_counter() - start,
    )


def to_blocks(codes: Bytes, scale: Bytes, dtype: planq.DType) -> Bytes:
    """Returns the bytes of GGML blocks: a float16 scale, then 32 codes.

    Args:
        codes: int8 codes, or int4 codes packed two a byte, the first in the low nibble.
        scale: The float16 scales.
        dtype: int8 (Q8_0) or int4 (Q4_0). A block of Q4_0 packs the codes i and i + 16 into one
            byte, and stores each code plus 8.
    """
    scales = scale.reshape(-1, _SCALE_BYTES)
    if dtype is planq.DType.INT8:
        return np.concatenate([scales, codes.reshape(-1, GGML_BLOCK)], axis=1).reshape(-1)
    pairs = codes.reshape(-1, GGML_BLOCK // 2) ^ np.uint8(0x88)
    single = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(-1, 2, GGML_BLOCK // 2)
    return np.concatenate([scales, single[:, 0] | single[:, 1] << 4], axis=1).reshape(-1)


def _package() -> Any:
    try:
        return importlib.import_module("gguf")
    except ModuleNotFoundError as error:
        if error.name != "gguf":
            raise
        what = "GGUF files are written with the package 'gguf': pip install gguf"
        raise CheckpointError(what) from error


def _quantized(
    job: Job, entry: TensorEntry, desc: Any, data: Bytes, plan: planq.Plan, executor: Executor
) -> tuple[WeightReport, Bytes]:
    ran = executor.run(plan, {"input": data})
    made = ran.outputs
    blocks = to_blocks(made["output"], made["scale"], desc.output_dtype)
    digest = hashlib.sha256(blocks.data).hexdigest()
    report = WeightReport(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        sku=plan.sku,
        guarantee=plan.precision_guarantee(),
        sqnr_db=signal_to_noise_db(desc, data, made),
        non_finite=count_spoiled(desc, made),
        bytes_before=entry.nbytes,
        bytes_after=blocks.size,
        digest=digest,
        parts={entry.name: digest},
        restored_sha256=None,
        seconds=ran.seconds,
    )
    return report, blocks


def _restored_report(
    entry: TensorEntry, plan: planq.Plan, nbytes: int, digest: str, ran: Ran
) -> TensorReport:
    return TensorReport(
        name=entry.name,
        dtype=entry.dtype,
        shape=entry.shape,
        sku=plan.sku,
        guarantee=plan.precision_guarantee(),
        bytes_before=nbytes,
        bytes_after=entry.nbytes,
        digest=digest,
        non_finite=count_non_finite(ran.outputs["output"], FLOATING[entry.dtype]),
        seconds=ran.seconds,
    )


def _plain_kind(path: Path, entry: TensorEntry) -> str:
    if entry.dtype not in _PLAIN:
        what = f"tensor {entry.name!r}: GGUF has no type for {entry.dtype}"
        raise CheckpointError(f"{path}: {what}")
    return entry.dtype


def _row_shape(entry: TensorEntry, data: Bytes) -> tuple[int, ...]:
    """The shape in bytes; the container derives the shape in elements from it."""
    if not entry.shape:
        return (data.size,)
    rows = int(np.prod(entry.shape[:-1], dtype=np.int64))
    return (*entry.shape[:-1], data.size // max(rows, 1))


def _write(writer: Any, facts: dict[str, str]) -> None:
    for key, text in facts.items():
        writer.add_string(key, text)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _restoring(entry: TensorEntry, dtype: planq.DType) -> planq.GgufDequantizeDescriptor:
    return planq.GgufDequantizeDescriptor(
        shape=entry.shape, type=_BLOCKS[entry.dtype], output_dtype=dtype
    )


def _restored_entry(files: GgufFiles, entry: TensorEntry, dtype: planq.DType) -> TensorEntry:
    """What a tensor is in a safetensors file."""
    if entry.dtype in _BLOCKS:
        nbytes = math.prod(entry.shape) * BITS[FORMAT_NAME[dtype]] // 8
        return TensorEntry(entry.name, FORMAT_NAME[dtype], entry.shape, nbytes)
    if entry.dtype not in _PLAIN:
        known = ", ".join([*_BLOCKS, *_PLAIN])
        found = f"{entry.words}, which planq cannot restore"
        raise TensorError(files.home(entry.name), entry.name, f"one of {known}", found)
    return replace(entry, offset=0)


def compare_gguf(source: Path, target: Path, executor: Executor, progress: Progress) -> Comparison:
    """Quantizes a file again into a temporary folder, and compares every byte of the result.

    Args:
        source: The safetensors file.
        target: The GGUF file that `quantize_gguf` made of it.
        executor: Where to run the plans.
        progress: Called as by `quantize_gguf`.

    Raises:
        CheckpointError: The file does not say how it was made, or is too damaged to compare.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    theirs, text = _held(target)
    with tempfile.TemporaryDirectory(prefix="planq-verify-") as folder:
        again = Path(folder) / target.name
        job = job_from(text, target, Job(source, again, Scheme.Q8_0))
        with outputs():
            report = quantize_gguf(job, executor, progress)
        ours, _ = _held(again)
        same = target.read_bytes() == again.read_bytes()
    names = ours.keys() | theirs.keys()
    differing = {
        name: _what_differs(ours.get(name), theirs.get(name))
        for name in sorted(names)
        if ours.get(name) != theirs.get(name)
    }
    if not same and not differing:
        differing["header"] = "other bytes"
    return Comparison(target, differing, report.tensors, this_build())


def _held(path: Path) -> tuple[dict[str, tuple[str, bytes]], str]:
    """Returns the tensors of a GGUF file, with types and shapes, and the options in it."""
    with read_gguf(path) as files:
        held = {entry.name: (entry.words, files.tensor(entry).tobytes()) for entry in files.entries}
        return held, _facts(files).get(_OPTIONS, "")


def _facts(files: GgufFiles) -> dict[str, str]:
    """Returns the metadata that planq wrote into a GGUF file; texts, or it is not of planq."""
    ours = {key: value for key, value in files.metadata.items() if key.startswith(METADATA_PREFIX)}
    texts = {key: value for key, value in ours.items() if isinstance(value, str)}
    for key in ours.keys() - texts.keys():
        got = type(ours[key]).__name__
        raise CheckpointError(f"{files.path}: metadata {key!r}: expected a text, got a {got}")
    return texts


def _what_differs(ours: tuple[str, bytes] | None, theirs: tuple[str, bytes] | None) -> str:
    if ours is None:
        return "should not be there"
    if theirs is None or theirs[0] != ours[0]:
        return difference(None)
    wanted, found = (np.frombuffer(each[1], np.uint8) for each in (ours, theirs))
    return difference(int((wanted != found).sum()))
