"""Quantizing a model's folder: its safetensors files, their index, ``config.json`` and the rest.

The output is made under a temporary name beside its own, and renamed when it is complete. It holds
``planq.json``: the options, the build, the weights that were chosen and the digests of all files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from planq.checkpoint.failure import CheckpointError, note_output, outputs
from planq.checkpoint.files import CheckpointReader, TensorEntry
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
from planq.checkpoint.schemes import Scheme, is_weight
from planq.checkpoint.selection import (
    Selection,
    by_names,
    read_selection,
    reason_of,
    select_weights,
)
from planq.checkpoint.shards import CONFIG, ENTRY, INDEX, lost, read_index, read_json, shards_of
from planq.checkpoint.trees import Rest, Tree, copy_rest, rest_of, walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from planq.checkpoint.calibration import Ranges
    from planq.checkpoint.layer_inputs import LayerInputs
    from planq.executors import Executor

SUMMARY = "planq.json"
# The fields of planq.json, in their order.
_FIELDS = ("planq", "options", "weights", "files", "digest")


@dataclass(frozen=True, slots=True)
class _Model:
    """A model's folder as it was found.

    Attributes:
        folder: Where it is.
        shards: Its safetensors files, in order.
        entries: The tensors of each.
        places: The shard that the index names for each tensor; None without an index.
        config: What ``config.json`` holds; it has no ``quantization_config``.
        rest: The other files and folders.
    """

    folder: Path
    shards: list[Path]
    entries: dict[str, tuple[TensorEntry, ...]]
    places: dict[str, str] | None
    config: dict[str, Any]
    rest: Rest

    @property
    def tensors(self) -> list[TensorEntry]:
        """The tensors of all shards; if two have one name, the one in the shard of the index."""
        found = {}
        for shard, entries in self.entries.items():
            for entry in entries:
                if entry.name not in found or (self.places or {}).get(entry.name) == shard:
                    found[entry.name] = entry
        return list(found.values())


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
    _check_target(job)
    model = _read_model(job.source)
    selection = select_weights(job, model.config, model.tensors)
    if not selection.quantized:
        raise CheckpointError(_nothing(job.source, selection))
    job.check_inputs(entry for entry in model.tensors if entry.name in selection.quantized)
    target = job.target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".planq-{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        copy_rest(model.rest, partial)
        with outputs():  # files count as written when the folder has its name, not before
            reports = tuple(
                quantize_file(
                    _part(job, selection, shard, partial / shard.name), executor, progress
                )
                for shard in model.shards
            )
        _write_json(partial / CONFIG, _with_entry(model, job, selection, reports))
        if model.places is not None:
            _write_json(partial / INDEX, _index_of(model, partial, reports))
        files = _digests_of(walk(partial).files)
        _write_json(partial / SUMMARY, _summary(this_build(), job, selection, files))
        old = _give_name(target, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    note_output(job.target)
    if old is not None:
        _remove(old)
    report = _together(job, reports, _digest_of(files))
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


def _read_model(folder: Path) -> _Model:
    """Reads the index, the headers and the config of a model's folder.

    Raises:
        CheckpointError: It is no model's folder, is quantized already, or its index names a file
            or a tensor that is missing.
        OSError: It cannot be read.
    """
    places = read_index(folder)
    shards = shards_of(folder, places)
    config = read_json(folder / CONFIG)
    if config.get(ENTRY) is not None:
        raise CheckpointError(f"{folder / CONFIG}: already quantized")
    entries = {}
    for shard in shards:
        with closing(CheckpointReader(shard)) as reader:
            entries[shard.name] = reader.entries
    for name, shard_name in (places or {}).items():
        if all(entry.name != name for entry in entries[shard_name]):
            raise CheckpointError(lost(folder, name, shard_name))
    made = {CONFIG, SUMMARY, INDEX, *entries}
    return _Model(folder, shards, entries, places, config, rest_of(folder, made))


def _with_entry(
    model: _Model, job: Job, selection: Selection, files: Sequence[JobReport | Comparison]
) -> dict[str, Any]:
    """Returns what ``config.json`` holds when it says how the model is quantized."""
    dtype = usual_dtype(tensor.dtype for report in files for tensor in report.tensors)
    entry = job.form.config(job.scheme, job.blocks, job.grouping, selection.ignored, dtype)
    if entry is None:
        raise AssertionError("a format without an entry in config.json")
    return {**model.config, ENTRY: entry}


def _digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    """Returns the SHA-256 of files, by their paths inside a folder; without ``planq.json``."""
    digests = {}
    for name, path in files.items():
        if name != SUMMARY:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return dict(sorted(digests.items()))


def _check_target(job: Job) -> None:
    target = job.target
    if job.source.resolve() in target.resolve().parents:
        raise CheckpointError(f"{target}: inside the input, which would hold it then")
    if target.resolve() in job.source.resolve().parents:
        raise CheckpointError(f"{target}: holds the input, which would go with it")
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


def _json_text(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2) + "\n"


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(_json_text(values), encoding="utf-8")


def _index_of(
    model: _Model, target: Path, files: Sequence[JobReport | Comparison]
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
        "digest": _digest_of(files),
    }


def _digest_of(files: dict[str, str]) -> str:
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _give_name(target: Path, partial: Path) -> Path | None:
    """Renames the new folder to the target; returns where the replaced one is now, if any."""
    if not os.path.lexists(target):
        partial.rename(target)
        return None
    old = partial.with_suffix(".replaced")
    target.rename(old)
    try:
        partial.rename(target)
    except BaseException:  # also a signal
        if not os.path.lexists(target):
            old.rename(target)
        raise
    return old


def _remove(old: Path) -> None:
    """Removes the folder that was replaced, when the new one is complete."""
    try:
        shutil.rmtree(old)
    except OSError as error:
        what = f"what it replaced is still there, as {old}"
        raise CheckpointError(f"{what}: {error.strerror or error}") from error


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
    model = _read_model(source)
    missing = [shard.name for shard in model.shards if not (target / shard.name).is_file()]
    if missing:
        raise CheckpointError(f"{target / missing[0]}: missing")
    files = tuple(
        compare_file(_part(job, selection, shard, target / shard.name), executor, progress)
        for shard in model.shards
    )
    found = walk(target)
    digests = _digests_of(found.files)
    wanted = _digests_of(model.rest.files)
    wanted[CONFIG] = _text_digest(_with_entry(model, job, selection, files))
    if model.places is not None:
        wanted[INDEX] = _text_digest(_index_of(model, target, files))
    differing = _other_files(model, wanted, found, digests)
    made_by = files[0].made_by
    expected = _summary(made_by, job, selection, digests)
    what = _what_differs(summary, expected) or _misfit(job, model, selection)
    if not what and (target / SUMMARY).read_bytes() != _json_text(expected).encode():
        what = "other bytes"
    if any(file.made_by != made_by for file in files):
        what = "its files name several builds"
    if what:
        differing[SUMMARY] = what
    return (*files, Comparison(target, differing, (), made_by))


def _other_files(
    model: _Model, wanted: dict[str, str], found: Tree, digests: Mapping[str, str]
) -> dict[str, str]:
    """Says what differs beside the safetensors files, by path.

    Args:
        model: The source.
        wanted: The digests of all other files but ``planq.json``.
        found: What the output holds.
        digests: The digests of its files.
    """
    differing = {
        name: "missing" if name not in digests else "other bytes"
        for name, digest in wanted.items()
        if digests.get(name) != digest
    }
    extra = {*digests, *found.folders, *found.others}
    extra -= {*wanted, *model.entries, *model.rest.folders}
    differing |= dict.fromkeys(sorted(extra), "should not be there")
    lost = {*model.rest.folders} - {*found.folders}
    return differing | dict.fromkeys(sorted(lost), "missing")


def _what_differs(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Says which fields of ``planq.json`` are not as planq writes them; empty if all are."""
    unknown = sorted(found.keys() - set(_FIELDS))
    if unknown:
        return f"unknown fields: {', '.join(unknown)}"
    if any(found.get(field) != expected[field] for field in ("files", "digest")):
        return "other digests than those of the files"
    if found.get("planq") != expected["planq"]:
        return "planq: another version or build than its files name"
    other = [field for field in _FIELDS if found.get(field) != expected[field]]
    return f"{', '.join(other)}: not as planq writes it" if other else ""


def _misfit(job: Job, model: _Model, selection: Selection) -> str:
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
    return hashlib.sha256(_json_text(values).encode()).hexdigest()
