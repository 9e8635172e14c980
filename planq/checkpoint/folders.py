"""Quantizing a model's folder: its safetensors files, their index, ``config.json`` and the rest.

The output is made under a temporary name beside its own, and renamed when it is complete. It holds
``planq.json``: the options, the build, the weights that were chosen and the digests of all files.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planq.checkpoint.failure import CheckpointError, outputs
from planq.checkpoint.files import CheckpointReader
from planq.checkpoint.formats import Format, usual_dtype
from planq.checkpoint.job import (
    Comparison,
    Job,
    JobReport,
    Progress,
    compare_file,
    job_from,
    quantize_file,
    this_build,
)
from planq.checkpoint.model_folders import (
    SUMMARY,
    ModelFolder,
    check_folder_target,
    check_shards,
    digest_of,
    digests_of,
    json_text,
    new_folder,
    other_files,
    read_model_folder,
    summary_difference,
    write_json,
)
from planq.checkpoint.schemes import Scheme, is_weight
from planq.checkpoint.selection import (
    Selection,
    by_names,
    read_selection,
    reason_of,
    select_weights,
)
from planq.checkpoint.shards import CONFIG, ENTRY, INDEX, read_json
from planq.checkpoint.trees import copy_rest, walk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from planq.checkpoint.calibration import Ranges
    from planq.checkpoint.layer_inputs import LayerInputs
    from planq.executors import Executor


def quantize_folder(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes the weights of a model's folder, and only then gives the output its name.

    If the output is a link to a folder, the new folder replaces the folder that it points to, and
    the link stays.

    Args:
        job: What to do; source and target are folders, and the format is not plain.
        executor: Where to run the plans.
        progress: Called as by `quantize_file`, for each file.

    Returns:
        The report of all files together. Its source digest is over the SHA-256 of all safetensors
        files of the input. Its digest is that of ``planq.json``, over all files of the output.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    of_files = (Format.PLAIN, Format.GGUF)
    if job.form.format in of_files:
        known = ", ".join(known.value for known in Format if known not in of_files)
        raise CheckpointError(f"--format: a folder needs one of {known}")
    fed = job.inputs.path if job.inputs else None
    check_folder_target(job.source, job.target, overwrite=job.overwrite, inputs=fed)
    model = read_model_folder(job.source)
    selection = select_weights(job, model.config, model.tensors)
    if not selection.quantized:
        raise CheckpointError(_nothing(job.source, selection))
    job.check_inputs(entry for entry in model.tensors if entry.name in selection.quantized)
    with new_folder(job.target) as partial:
        copy_rest(model.rest, partial)
        with outputs():  # files count as written when the folder has its name, not before
            reports = tuple(
                quantize_file(
                    _part(job, selection, shard, partial / shard.name), executor, progress
                )
                for shard in model.shards
            )
        write_json(partial / CONFIG, _with_entry(model, job, selection, reports))
        if model.places is not None:
            write_json(partial / INDEX, _index_of(model, partial, reports))
        files = digests_of(walk(partial).files)
        write_json(partial / SUMMARY, _summary(this_build(), job, selection, files))
    report = _together(job, reports, digest_of(files))
    return replace(
        report,
        floating=selection.floating,
        basis=selection.basis,
        carried=model.rest.carried,
        left_out=model.rest.left_out,
    )


def _part(job: Job, selection: Selection, shard: Path, target: Path) -> Job:
    """The request for one file of a folder."""
    return replace(job, source=shard, target=target, selection=selection, shard=True)


def _nothing(source: Path, selection: Selection) -> str:
    """Says why no weight is quantized: the most frequent reasons."""
    reasons: dict[str, list[str]] = {}
    for name, why in selection.floating.items():
        reasons.setdefault(why, []).append(name)
    if not reasons:
        return f"{source}: no weight to quantize: no 2-D floating tensor"
    most = sorted(reasons.items(), key=lambda item: -len(item[1]))[:3]
    told = "; ".join(f"{len(names)} ({names[0]}, ...): {why}" for why, names in most)
    return f"{source}: no weight to quantize, judged by {selection.basis}: {told}"


def _together(job: Job, files: Sequence[JobReport], digest: str) -> JobReport:
    """Returns the reports of files as one of their folder."""
    return JobReport(
        job=job,
        digest=digest,
        source_digest=digest_of({file.source.name: file.source_digest for file in files}),
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


def _with_entry(
    model: ModelFolder, job: Job, selection: Selection, files: Sequence[JobReport | Comparison]
) -> dict[str, Any]:
    """Returns what ``config.json`` holds when it says how the model is quantized."""
    dtype = usual_dtype(tensor.dtype for report in files for tensor in report.tensors)
    entry = job.form.config(job.scheme, job.blocks, job.grouping, selection.ignored, dtype)
    if entry is None:
        raise AssertionError("a format without an entry in config.json")
    return {**model.config, ENTRY: entry}


def _index_of(
    model: ModelFolder, target: Path, files: Sequence[JobReport | Comparison]
) -> dict[str, Any]:
    """Returns the output's index: parts of a tensor are in the shard that held the tensor."""
    found: dict[str, str] = {}
    total = 0
    for shard, report in zip(model.shards, files, strict=True):
        origin = {part: tensor.name for tensor in report.tensors for part in tensor.parts}
        with closing(CheckpointReader(target / shard.name)) as reader:
            for entry in reader.entries:
                if (model.places or {}).get(origin.get(entry.name, entry.name)) == shard.name:
                    found[entry.name] = shard.name
                    total += entry.nbytes
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(found.items()))}


def _summary(
    made_by: tuple[str, str], job: Job, selection: Selection, files: dict[str, str]
) -> dict[str, Any]:
    """Returns what ``planq.json`` holds."""
    version, build = made_by
    return {
        "planq": {"version": version, "build_id": build},
        "options": job.options,
        "weights": selection.to_dict(),
        "files": files,
        "digest": digest_of(files),
    }


def compare_folder(
    source: Path,
    target: Path,
    ranges: Ranges | None,
    executor: Executor,
    progress: Progress,
    *,
    inputs: LayerInputs | None = None,
) -> tuple[Comparison, ...]:
    """Quantizes a model's folder again, and compares every byte of every file.

    ``planq.json`` says which weights to quantize; transformers is not asked again. Version and
    build of the planq that made the folder are taken from its files, and have to be the same in
    all of them.

    Args:
        source: The folder that was quantized.
        target: The folder that was made of it.
        ranges: The ranges of the weights, if they were given.
        executor: Where to run the plans.
        progress: Called as by `quantize_file`, for each file.
        inputs: What the layers were fed, if it was made by GPTQ.

    Returns:
        What differs: one comparison for each safetensors file, by tensor, and one for the folder,
        by file.

    Raises:
        CheckpointError: One of the two is no such folder, or too damaged to compare.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    summary = read_json(target / SUMMARY)
    text = json.dumps(summary.get("options"))
    job = Job(source, target, Scheme.INT8_CHANNEL, ranges=ranges, inputs=inputs)
    job = job_from(text, target / SUMMARY, job)
    selection = read_selection(str(target / SUMMARY), summary.get("weights"))
    model = read_model_folder(source)
    check_shards(model, target)
    files = tuple(
        compare_file(_part(job, selection, shard, target / shard.name), executor, progress)
        for shard in model.shards
    )
    found = walk(target)
    digests = digests_of(found.files)
    wanted = digests_of(model.rest.files)
    wanted[CONFIG] = _text_digest(_with_entry(model, job, selection, files))
    if model.places is not None:
        wanted[INDEX] = _text_digest(_index_of(model, target, files))
    differing = other_files(model, wanted, found, digests)
    made_by = files[0].made_by
    expected = _summary(made_by, job, selection, digests)
    what = summary_difference(summary, expected) or _misfit(job, model, selection)
    if not what and (target / SUMMARY).read_bytes() != json_text(expected).encode():
        what = "other bytes"
    if any(file.made_by != made_by for file in files):
        what = "its files name several builds"
    if what:
        differing[SUMMARY] = what
    return (*files, Comparison(target, differing, (), made_by))


def _misfit(job: Job, model: ModelFolder, selection: Selection) -> str:
    """Says why the weights in ``planq.json`` cannot be those of the source; empty if they can."""
    weights = [entry.name for entry in model.tensors if is_weight(entry)]
    named = [*selection.quantized, *selection.floating]
    if sorted(named) != sorted(weights):
        return "weights: other names than those of the source"
    refused = [name for name in selection.quantized if job.why_not(name)]
    if refused:
        return f"weights: {refused[0]!r} is quantized against the options"
    reason = reason_of(selection)
    if reason is not None and by_names(job, model.config, model.tensors, reason) != selection:
        return "weights: not what names and shapes tell"
    return ""


def _text_digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json_text(values).encode()).hexdigest()
