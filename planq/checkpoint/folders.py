"""Quantizing a model's folder: its safetensors files, their index, ``config.json`` and the rest.

A folder is made under another name beside its own, and gets it when it is complete. It holds
``planq.json``: the options, the build and the digests of all that is in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import planq
from planq.checkpoint.failure import CheckpointError, note_output, outputs
from planq.checkpoint.files import CheckpointReader
from planq.checkpoint.formats import Format, modules_of, usual_dtype
from planq.checkpoint.job import (
    Comparison,
    Job,
    JobReport,
    Progress,
    compare_file,
    job_from,
    quantize_file,
)
from planq.checkpoint.schemes import Scheme, is_weight
from planq.checkpoint.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planq.checkpoint.calibration import Ranges
    from planq.executors import Executor

CONFIG, SUMMARY = "config.json", "planq.json"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = ".safetensors"
# Other forms of the same weights, which would be of another model than what was made.
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx", ".ot", ".index.json")


def quantize_folder(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes the weights of a model's folder, and only then gives the output its name.

    Args:
        job: What to do; source and target are folders, and the format is not plain.
        executor: Where to run the plans.
        progress: Called as by `quantize_file`, for each file.

    Returns:
        The report of all files together: its digests are one over the SHA-256 of all safetensors
        files of the input, and the one that ``planq.json`` has, over all files of the output.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    if job.form.format is Format.PLAIN:
        known = ", ".join(known.value for known in Format if known is not Format.PLAIN)
        raise CheckpointError(f"--format: a folder needs one of {known}")
    _check_target(job)
    shards = shards_of(job.source)
    config = read_json(job.source / CONFIG)
    if "quantization_config" in config:
        raise CheckpointError(f"{job.source / CONFIG}: already quantized")
    job.target.parent.mkdir(parents=True, exist_ok=True)
    partial = job.target.with_name(f".planq-{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        _copy_rest(job.source, partial)
        with outputs():  # which have their place when the folder has its name, and not before
            reports = tuple(
                quantize_file(
                    replace(job, source=shard, target=partial / shard.name, shard=True),
                    executor,
                    progress,
                )
                for shard in shards
            )
        if not any(report.tensors for report in reports):
            raise CheckpointError(f"{job.source}: no weight to quantize")
        entry = quantization_config(job, shards, reports)
        _write_json(partial / CONFIG, {**config, "quantization_config": entry})
        _write_index(job.source, partial, shards)
        digest = _write_summary(job, partial)
        _give_name(job, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    note_output(job.target)
    return _together(job, reports, digest)


def _together(job: Job, files: Sequence[JobReport], digest: str) -> JobReport:
    """Returns the reports of files as one of their folder."""
    return JobReport(
        job=job,
        digest=digest,
        source_digest=_digest_of({file.source.name: file.source_digest for file in files}),
        source=job.source,
        target=job.target,
        device=files[0].device,
        tensors=tuple(tensor for file in files for tensor in file.tensors),
        largest_errors={name: e for file in files for name, e in file.largest_errors.items()},
        copied_tensors=sum(file.copied_tensors for file in files),
        copied_bytes=sum(file.copied_bytes for file in files),
        source_bytes=sum(file.source_bytes for file in files),
        target_bytes=sum(file.target_bytes for file in files),
        seconds=sum(file.seconds for file in files),
    )


def shards_of(folder: Path) -> list[Path]:
    """Returns the safetensors files of a model, in order.

    Raises:
        CheckpointError: There is none, or one that the index names is missing.
    """
    found = sorted(path for path in folder.iterdir() if path.suffix == _WEIGHTS)
    if (folder / _INDEX).exists():
        named = set(read_json(folder / _INDEX).get("weight_map", {}).values())
        missing = sorted(named - {path.name for path in found})
        if missing:
            raise CheckpointError(f"{folder / missing[0]}: named by {_INDEX}, and not there")
        found = [path for path in found if path.name in named]
    if not found:
        raise CheckpointError(f"{folder}: holds no {_WEIGHTS} file")
    return found


def quantization_config(
    job: Job, shards: list[Path], files: Sequence[JobReport | Comparison]
) -> dict[str, Any]:
    """Returns what ``config.json`` says of a folder: the modules left floating by their names."""
    chosen = {tensor.name: tensor.dtype for report in files for tensor in report.tensors}
    floating = []
    for shard in shards:
        with closing(CheckpointReader(shard)) as reader:
            weights = filter(is_weight, reader.entries)
            floating += [entry.name for entry in weights if entry.name not in chosen]
    dtype = usual_dtype(chosen.values())
    config = job.form.config(job.scheme, job.blocks, modules_of(floating), dtype)
    if config is None:
        raise AssertionError("a format without an entry in config.json")
    return config


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: The file is none.
        OSError: It cannot be read.
    """
    try:
        values = parse(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return values


def file_digests(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file but ``planq.json``, by its path inside the folder."""
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != SUMMARY:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _check_target(job: Job) -> None:
    target = job.target
    if job.source.resolve() in target.resolve().parents:
        raise CheckpointError(f"{target}: inside the input, which would hold it then")
    if not os.path.lexists(target):
        return
    if target.exists() and target.samefile(job.source):
        raise CheckpointError(f"{target}: the output is the input")
    if not target.is_dir():
        raise CheckpointError(f"{target}: exists and is not a folder")
    if not any(target.iterdir()):
        return
    if not job.overwrite:
        raise CheckpointError(f"{target}: exists; --force replaces it")
    if not (target / SUMMARY).is_file():
        raise CheckpointError(f"{target}: holds no {SUMMARY}, so planq did not make it")


def _is_left_out(path: str) -> bool:
    """Whether a file holds weights, or is hidden."""
    hidden = any(part.startswith(".") for part in path.split("/"))
    return hidden or path.endswith((_WEIGHTS, *_OTHER_WEIGHTS))


def _copy_rest(source: Path, target: Path) -> None:
    """Copies what holds no weights; hidden files are left out."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        del folder
        return {name for name in names if _is_left_out(name)}

    shutil.copytree(source, target, ignore=left_out)


def _json_text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(_json_text(values), encoding="utf-8")


def _write_index(source: Path, target: Path, shards: list[Path]) -> None:
    """Writes where each tensor is, if the source has an index."""
    if (source / _INDEX).exists():
        _write_json(target / _INDEX, _index_of(target, shards))


def _index_of(target: Path, shards: list[Path]) -> dict[str, Any]:
    places: dict[str, str] = {}
    total = 0
    for shard in shards:
        with closing(CheckpointReader(target / shard.name)) as reader:
            places |= {entry.name: shard.name for entry in reader.entries}
            total += sum(entry.nbytes for entry in reader.entries)
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}


def _write_summary(job: Job, target: Path) -> str:
    build = planq.build_info()
    files = file_digests(target)
    digest = _digest_of(files)
    summary = {
        "planq": {"version": build.version, "build_id": build.build_id},
        "options": job.options,
        "files": files,
        "digest": digest,
    }
    _write_json(target / SUMMARY, summary)
    return digest


def _digest_of(files: dict[str, str]) -> str:
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _give_name(job: Job, partial: Path) -> None:
    """Puts the new folder in the place of an old one, which goes last."""
    if not os.path.lexists(job.target):
        partial.rename(job.target)
        return
    old = partial.with_suffix(".replaced")
    job.target.rename(old)
    try:
        partial.rename(job.target)
    except OSError:
        old.rename(job.target)
        raise
    with suppress(OSError):
        shutil.rmtree(old)


def compare_folder(
    source: Path, target: Path, ranges: Ranges | None, executor: Executor, progress: Progress
) -> tuple[Comparison, ...]:
    """Quantizes a model's folder again, and compares every byte of every file.

    Args:
        source: The folder that was quantized.
        target: The folder that was made of it.
        ranges: The ranges of the weights, if they were given.
        executor: Where to run the plans.
        progress: Called as by `quantize_file`, for each file.

    Returns:
        What differs: for each safetensors file, and for the folder, whose names are those of files.

    Raises:
        CheckpointError: One of them is no such folder, or damaged beyond comparing.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    summary = read_json(target / SUMMARY)
    text = json.dumps(summary.get("options"))
    job = job_from(text, target / SUMMARY, Job(source, target, Scheme.INT8_CHANNEL, ranges=ranges))
    shards = shards_of(source)
    missing = [shard.name for shard in shards if not (target / shard.name).is_file()]
    if missing:
        raise CheckpointError(f"{target / missing[0]}: missing")
    files = tuple(
        compare_file(
            replace(job, source=shard, target=target / shard.name, shard=True), executor, progress
        )
        for shard in shards
    )
    config = read_json(source / CONFIG)
    config["quantization_config"] = quantization_config(job, shards, files)
    wanted = {
        name: digest for name, digest in file_digests(source).items() if not _is_left_out(name)
    }
    wanted[CONFIG] = hashlib.sha256(_json_text(config).encode()).hexdigest()
    if (source / _INDEX).exists():
        wanted[_INDEX] = hashlib.sha256(_json_text(_index_of(target, shards)).encode()).hexdigest()
    found = file_digests(target)
    differing = {
        name: "missing" if name not in found else "other bytes"
        for name, digest in wanted.items()
        if found.get(name) != digest
    }
    extra = found.keys() - wanted.keys() - {shard.name for shard in shards}
    differing |= dict.fromkeys(sorted(extra), "should not be there")
    if summary.get("files") != found or summary.get("digest") != _digest_of(found):
        differing[SUMMARY] = "other digests than those of the files"
    same_build = all(file.same_build for file in files)
    return (*files, Comparison(target, differing, (), same_build))
