"""GGUF files: models in llama.cpp's own form, of all types that planq quantizes, and back.

`planq.checkpoint.gguf_models` and `planq.checkpoint.gguf_tokens` say what llama.cpp wants, and
`planq.checkpoint.gguf_mix` which tensor has which type. The operators `gguf_quantize` and
`gguf_dequantize` make the blocks and restore them.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import planq
from planq.checkpoint.digests import (
    CONTENT,
    INPUT,
    SOURCE,
    UNKNOWN,
    content_digest,
    expect_digest,
)
from planq.checkpoint.failure import CheckpointError, TensorError
from planq.checkpoint.files import (
    CheckpointWriter,
    TensorComparer,
    TensorEntry,
    TensorWriter,
    check_paths,
)
from planq.checkpoint.formats import Format
from planq.checkpoint.gguf_files import GgufFile, GgufFiles, read_gguf
from planq.checkpoint.gguf_mix import BLOCKS, FILE_TYPES, PLAIN, Mix
from planq.checkpoint.gguf_models import Model, Renamed, package, read_model
from planq.checkpoint.gguf_tokens import JSON, PIECES, SETTINGS, read_tokens
from planq.checkpoint.gguf_writer import GGUF
from planq.checkpoint.header import BITS
from planq.checkpoint.job import (
    BUILD,
    Comparison,
    Job,
    JobReport,
    Progress,
    WeightReport,
    difference,
    header_difference,
    job_from,
    this_build,
)
from planq.checkpoint.quality import (
    count_non_finite,
    fidelity,
    largest_error,
    restored_to_noise_db,
)
from planq.checkpoint.reports import TensorReport
from planq.checkpoint.restore import RestoreJob, RestoreReport
from planq.checkpoint.schemes import FLOATING, FORMAT_NAME, Scheme
from planq.checkpoint.shards import CONFIG, ENTRY, Shards, read_json
from planq.checkpoint.stored import METADATA_PREFIX
from planq.executors import plan_selector

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from planq.checkpoint.gguf_header import Value
    from planq.executors import Bytes, Executor, Ran

SUFFIX = ".gguf"
# The types of plain numbers, which have the same names in safetensors.
_OPTIONS = METADATA_PREFIX + "options"
# The key of the digest of all other metadata in the content of a file, which has no such key.
_OTHERS = "gguf.metadata_sha256"
_TYPES = {kind.value.upper(): kind for kind in planq.GgufType}
_QUIETLY = np.errstate(all="ignore")


def quantize_gguf(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes a model's folder into a GGUF file that llama.cpp loads.

    Args:
        job: What to do; the source is a folder.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report; the output is complete and has its name. Weights have the names that they have
        in the output.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    if not job.source.is_dir():
        what = f"{job.source}: expected a model's folder, with {CONFIG} and a tokenizer"
        raise CheckpointError(f"{what}, of which GGUF is made")
    job.check_inputs(())
    check_paths(job.source, job.target, overwrite=job.overwrite)
    with closing(Shards(job.source, whole=True)) as source:
        run = _Run(job, source, executor, progress)
        metadata = run.metadata(this_build(), UNKNOWN, UNKNOWN)
        making = TensorWriter(
            job.target, run.entries, metadata, overwrite=job.overwrite, container=GGUF
        )
        with closing(making) as writer:
            tensors = run.quantize(writer)
            metadata = run.sealed(writer, this_build())
            writer.write_metadata(metadata)
            errors = run.verify(writer, tensors) if job.verify else {}
            run.check_unchanged()
            writer.commit()
        copied = [entry for entry in run.entries if entry.dtype in PLAIN]
        return JobReport(
            job=job,
            digest=str(metadata[CONTENT]),
            source_digest=str(metadata[SOURCE]),
            source=job.source,
            target=job.target,
            device=executor.name,
            tensors=tensors,
            largest_errors=errors,
            floating=run.floating,
            left_out=run.model.left_out,
            copied_tensors=len(copied),
            copied_bytes=sum(entry.nbytes for entry in copied),
            source_bytes=sum(reader.size for reader in source.readers),
            target_bytes=writer.size,
            seconds=time.perf_counter() - start,
        )


def compare_gguf(source: Path, target: Path, executor: Executor, progress: Progress) -> Comparison:
    """Quantizes a folder again, and compares every byte with the file that is there.

    Args:
        source: The model's folder.
        target: The GGUF file that `quantize_gguf` made of it.
        executor: Where to run the plans.
        progress: Called as by `quantize_gguf`.

    Raises:
        CheckpointError: The file does not say how it was made, or is too damaged to compare.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    with read_gguf(target) as files:
        facts = _facts(files)
    job = job_from(facts.get(_OPTIONS, ""), target, Job(source, target, Scheme.Q8_0))
    if job.form.format is not Format.GGUF:
        raise CheckpointError(f"{target}: metadata {_OPTIONS} is not that of a GGUF file")
    theirs = (facts.get(BUILD[0], ""), facts.get(BUILD[1], ""))
    with closing(Shards(source, whole=True)) as shards:
        run = _Run(job, shards, executor, progress)
        with closing(TensorComparer(target, run.entries, GGUF)) as found:
            tensors = run.quantize(found)
            metadata = run.sealed(found, theirs)
            differing = {name: difference(count) for name, count in found.differing.items()}
            differing |= dict.fromkeys(found.unexpected(), "should not be there")
            if not found.has_header(metadata):
                wanted, got = _plain(metadata), _plain(found.reader.metadata)
                differing["header"] = header_difference(wanted, got)
            run.check_unchanged()
    return Comparison(target, differing, tensors, theirs)


@dataclass(frozen=True, slots=True)
class _Weight:
    """A tensor that becomes blocks.

    Attributes:
        plan: What makes them.
        back: What restores them, as float32.
    """

    plan: planq.Plan
    back: planq.Plan


class _Run:
    """A model's folder on its way to a GGUF file.

    Args:
        job: What to do.
        source: The open files of the folder.
        executor: Where to run the plans.
        progress: Called before each tensor.

    Attributes:
        model: The model, as llama.cpp reads it.
        entries: The tensors of the output, in order.
        floating: Why weights of two axes have no blocks, by name.
    """

    def __init__(self, job: Job, source: Shards, executor: Executor, progress: Progress) -> None:
        self._job, self._source, self._executor = job, source, executor
        self._progress = progress
        values = read_json(job.source / CONFIG)
        if values.get(ENTRY) is not None:
            raise CheckpointError(f"{job.source / CONFIG}: already quantized")
        read = [entry for reader in source.readers for entry in reader.entries]
        self.model: Model = read_model(job.source / CONFIG, values, read)
        self._total = sum(entry.nbytes for entry in read) * (2 if job.verify else 1)
        self._mix = _mix(job.scheme, self.model)
        self.floating: dict[str, str] = {}
        self._by_source = {tensor.source.name: tensor for tensor in self.model.tensors}
        self._by_name = {tensor.name: tensor for tensor in self.model.tensors}
        made = {
            name: TensorEntry(name, "F32", values.shape, values.nbytes)
            for name, values in self.model.made.items()
        }
        self.entries = [*made.values(), *map(self._entry, self.model.tensors)]
        select = plan_selector(executor)
        self._weights = {
            entry.name: _Weight(
                select(self._quantizing(entry)), select(_restoring(entry, planq.DType.FLOAT32))
            )
            for entry in self.entries
            if entry.dtype in _TYPES
        }
        rows = self._by_name["token_embd.weight"].source.shape[0]
        self._tokens = read_tokens(job.source, self.model.arch, rows)
        if FILE_TYPES[job.scheme].default not in PLAIN and not self._weights:
            raise CheckpointError(f"{job.source}: no weight that the options allow to quantize")

    def metadata(self, build: tuple[str, str], source: str, content: str) -> dict[str, Value]:
        """The metadata of the file, with these digests in it."""
        general = package().Keys.General
        return {
            general.ARCHITECTURE: self.model.arch,
            general.TYPE: "model",
            general.FILE_TYPE: FILE_TYPES[self._job.scheme].number,
            general.QUANTIZATION_VERSION: package().GGML_QUANT_VERSION,
            **self.model.metadata,
            **self._tokens,
            **dict(zip(BUILD, build, strict=True)),
            _OPTIONS: json.dumps(self._job.options, sort_keys=True),
            SOURCE: source,
            CONTENT: content,
        }

    def quantize(
        self, writer: TensorWriter[GgufFile] | TensorComparer[GgufFile]
    ) -> tuple[WeightReport, ...]:
        """Writes every tensor, or compares it; returns what became of those with blocks."""
        for name, values in self.model.made.items():
            writer.write(name, values.tobytes())
        reports = []
        for reader in self._source.readers:
            for entry in reader.entries:
                self._progress(entry.name, entry.nbytes, self._total)
                data = reader.tensor(entry)
                tensor = self._by_source.get(entry.name)
                if tensor is None:
                    continue
                if tensor.name in self._weights:
                    reports.append(self._quantized(tensor, data, writer))
                else:
                    kind = self._kind(tensor)
                    writer.write(tensor.name, _converted(tensor, data, kind).data)
        return tuple(reports)

    def sealed(
        self, writer: TensorWriter[GgufFile] | TensorComparer[GgufFile], build: tuple[str, str]
    ) -> dict[str, Value]:
        """The metadata with the digests of what was read and written."""
        metadata = self.metadata(build, self._source_digest(), UNKNOWN)
        digests = writer.digests(self.entries)
        metadata[CONTENT] = content_digest(self.entries, digests, _content(metadata))
        return metadata

    def verify(
        self, writer: TensorWriter[GgufFile], tensors: tuple[WeightReport, ...]
    ) -> dict[str, float]:
        """Reads the file back and dequantizes it; returns each weight's largest absolute error."""
        errors = {}
        homes = {e.name: reader for reader in self._source.readers for e in reader.entries}
        with closing(writer.reopen()) as written:
            for report in tensors:
                entry = self._by_name[report.name].source
                self._progress(entry.name, entry.nbytes, self._total)
                blocks = written.tensor(written.by_name[report.name])
                restored = self._restored(report.name, blocks)
                if hashlib.sha256(restored.data).hexdigest() != report.restored_sha256:
                    what = f"{report.name!r} dequantizes to other bits when it is read back"
                    raise CheckpointError(f"{self._job.target}: {what}")
                data = _reordered(self._by_name[report.name], homes[entry.name].tensor(entry))
                errors[report.name] = largest_error(
                    FLOATING[entry.dtype], data, restored, planq.DType.FLOAT32
                )
        return errors

    def check_unchanged(self) -> None:
        """Refuses a source that was written to since it was opened."""
        for reader in self._source.readers:
            reader.check_unchanged()

    def _source_digest(self) -> str:
        """One digest over those of all files that were read."""
        files = {reader.path.name: reader.sha256() for reader in self._source.readers}
        for name in (CONFIG, PIECES, JSON, SETTINGS):
            path = self._job.source / name
            if path.is_file():
                files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        text = json.dumps(files, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _entry(self, tensor: Renamed) -> TensorEntry:
        """What a tensor is in the output."""
        kind, shape = self._kind(tensor), tensor.source.shape
        block = BLOCKS[kind]
        return TensorEntry(
            tensor.name, kind, shape, math.prod(shape) // block.elements * block.nbytes
        )

    def _kind(self, tensor: Renamed) -> str:
        """The type of a tensor in the output."""
        source = tensor.source
        if source.dtype not in FLOATING:
            wanted = f"one of {', '.join(FLOATING)}"
            raise TensorError(self._job.source, source.name, wanted, source.words)
        if tensor.floating:
            if len(source.shape) > 1:
                self.floating[tensor.name] = "llama.cpp reads it as float32"
            return "F32"
        why = self._job.why_not(source.name)
        if why:
            self.floating[tensor.name] = why
            return source.dtype if source.dtype in PLAIN else "F32"
        found = self._mix.type_of(tensor.name, source.shape[-1])
        if found in PLAIN and FILE_TYPES[self._job.scheme].default not in PLAIN:
            self.floating[tensor.name] = "no blocks divide its rows"
        return found

    def _quantizing(self, entry: TensorEntry) -> planq.GgufQuantizeDescriptor:
        dtype = self._by_name[entry.name].source.dtype
        taken = planq.DType.FLOAT32 if dtype == "F64" else FLOATING[dtype]
        return planq.GgufQuantizeDescriptor(
            shape=entry.shape, input_dtype=taken, type=_TYPES[entry.dtype]
        )

    def _restored(self, name: str, blocks: Bytes) -> Bytes:
        return self._executor.run(self._weights[name].back, {"input": blocks}).outputs["output"]

    def _quantized(
        self,
        tensor: Renamed,
        data: Bytes,
        writer: TensorWriter[GgufFile] | TensorComparer[GgufFile],
    ) -> WeightReport:
        source, plan = tensor.source, self._weights[tensor.name].plan
        values = _reordered(tensor, data)
        taken = _converted(tensor, data, "F32") if source.dtype == "F64" else values
        ran = self._executor.run(plan, {"input": taken})
        blocks = ran.outputs["output"]
        writer.write(tensor.name, blocks.data)
        restored = self._restored(tensor.name, blocks)
        digest = hashlib.sha256(blocks.data).hexdigest()
        return WeightReport(
            name=tensor.name,
            dtype=source.dtype,
            shape=source.shape,
            sku=plan.sku,
            guarantee=plan.precision_guarantee(),
            sqnr_db=restored_to_noise_db(FLOATING[source.dtype], values, restored),
            non_finite=count_non_finite(values, FLOATING[source.dtype]),
            bytes_before=source.nbytes,
            bytes_after=blocks.size,
            digest=digest,
            parts={tensor.name: digest},
            restored_sha256=hashlib.sha256(restored.data).hexdigest(),
            fidelity=fidelity(FLOATING[source.dtype], values, restored, planq.DType.FLOAT32)
            if self._job.evaluate
            else None,
            seconds=ran.seconds,
        )


def _mix(scheme: Scheme, model: Model) -> Mix:
    heads, shared = model.heads
    large = model.arch == "llama" and model.layers == 80 and heads != shared
    return Mix(scheme, model.layers, max(1, heads // shared), model.tied, large)


def _reordered(tensor: Renamed, data: Bytes) -> Bytes:
    """The rows of queries and keys as llama.cpp rotates them: pairs are neighbours.

    transformers rotates a row of the first half of a head with the one of the second half.
    """
    if not tensor.heads:
        return data
    rows = data.reshape(tensor.heads, 2, tensor.source.shape[0] // tensor.heads // 2, -1)
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(-1)


@_QUIETLY
def _converted(tensor: Renamed, data: Bytes, kind: str) -> Bytes:
    """A tensor as plain numbers of this type, to nearest."""
    data = _reordered(tensor, data)
    if tensor.source.dtype == kind and not tensor.shift:
        return data
    values = _widened(data, tensor.source.dtype)
    if tensor.shift:
        values = values + np.float32(tensor.shift)
    if kind == "F32":
        return values.view(np.uint8)
    if kind == "BF16":
        bits = values.view(np.uint32)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        rounded = np.where(np.isnan(values), bits >> 16 | 64, rounded)
        return rounded.astype("<u2").view(np.uint8)
    halves = values.astype("<f2")
    if np.isinf(halves[np.isfinite(values)]).any():
        what = "expected values of float16, got larger ones; --scheme bf16 has them"
        raise CheckpointError(f"tensor {tensor.source.name!r}: {what}")
    return halves.view(np.uint8)


def _widened(data: Bytes, dtype: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Values as float32: exact, but those of float64."""
    if dtype == "BF16":
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return data.view({"F16": "<f2", "F32": "<f4", "F64": "<f8"}[dtype]).astype(np.float32)


def restore_gguf(job: RestoreJob, executor: Executor, progress: Progress) -> RestoreReport:
    """Restores a GGUF file: blocks as float32 unless told, other tensors as they are.

    Args:
        job: What to do.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report. A file that planq did not write has no digest, and is not verified.

    Raises:
        CheckpointError: The file is no GGUF file, holds no blocks, or does not match the digest in
            its metadata; nothing was written.
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
    entries = [_restored_entry(entry, dtype) for entry in files.entries]
    plans = {e.name: _restoring(e, dtype) for e in files.entries if e.dtype in _TYPES}
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
        found = content_digest(files.entries, files.digests(), _content(files.metadata))
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


def _restoring(entry: TensorEntry, dtype: planq.DType) -> planq.GgufDequantizeDescriptor:
    return planq.GgufDequantizeDescriptor(
        shape=entry.shape, type=_TYPES[entry.dtype], output_dtype=dtype
    )


def _restored_entry(entry: TensorEntry, dtype: planq.DType) -> TensorEntry:
    """What a tensor is in a safetensors file."""
    if entry.dtype in _TYPES:
        nbytes = math.prod(entry.shape) * BITS[FORMAT_NAME[dtype]] // 8
        return TensorEntry(entry.name, FORMAT_NAME[dtype], entry.shape, nbytes)
    return replace(entry, offset=0)


def _facts(files: GgufFiles) -> dict[str, str]:
    """Returns the metadata that planq wrote into a GGUF file; texts, or it is not of planq."""
    ours = {key: value for key, value in files.metadata.items() if key.startswith(METADATA_PREFIX)}
    texts = {key: value for key, value in ours.items() if isinstance(value, str)}
    for key in ours.keys() - texts.keys():
        got = type(ours[key]).__name__
        raise CheckpointError(f"{files.path}: metadata {key!r}: expected a text, got a {got}")
    return texts


def _content(metadata: Mapping[str, Value]) -> dict[str, str]:
    """The texts that the digest of a file's content covers; one stands for what is not planq's."""
    plain = _plain(metadata)
    ours = {key: plain.pop(key) for key in list(plain) if key.startswith(METADATA_PREFIX)}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return ours | {_OTHERS: hashlib.sha256(text.encode()).hexdigest()}


def _plain(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """Metadata with lists in place of NumPy's arrays."""

    def plain(value: Value) -> Any:
        if isinstance(value, list):
            return [plain(each) for each in value]
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {key: plain(value) for key, value in metadata.items()}
