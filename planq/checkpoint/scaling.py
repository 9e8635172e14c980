"""Scaling a model's folder by AWQ: the work of ``planq scale``, without what it prints.

The new folder has the same files. Some tensors are multiplied or divided by powers of two, so the
model computes what it did, and quantizing it loses less. ``planq.json`` has the options, what was
found and the digests of all files.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planq.checkpoint.awq import Curvature, Exponents, Part, exponents, fitted, scaled, total
from planq.checkpoint.failure import CheckpointError, TensorError, outputs
from planq.checkpoint.files import (
    CheckpointComparer,
    CheckpointReader,
    CheckpointWriter,
    copy_tensor,
)
from planq.checkpoint.formats import Format
from planq.checkpoint.groups import rounded
from planq.checkpoint.job import (
    Comparison,
    Job,
    Progress,
    RoundTrip,
    difference,
    job_from,
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
from planq.checkpoint.places import Place, places_of
from planq.checkpoint.quality import decoded
from planq.checkpoint.schemes import FLOATING, Method, Scheme
from planq.checkpoint.shards import CONFIG, INDEX, read_json
from planq.checkpoint.trees import copy_rest, walk
from planq.executors import plan_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from planq.checkpoint.awq import Float64
    from planq.checkpoint.files import TensorEntry
    from planq.checkpoint.layer_inputs import LayerInputs
    from planq.executors import Bytes, Executor

# The field of planq.json that tells a scaled folder from a quantized one.
_SCALED = "scaled"
_FORMATS = (Format.COMPRESSED_TENSORS, Format.BITSANDBYTES)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """What was found for layers that share an input.

    Attributes:
        layers: Their weights, which are multiplied.
        makers: The tensors that are divided.
        a: The exponent of the magnitudes.
        powers: The binary logarithms of the scales, one for each channel of the makers.
        before: The relative error of the outputs without scales:
            ``sqrt(sum e H e^T / sum w H w^T)``. NaN if the outputs are all 0.
        after: The same with them.
    """

    layers: tuple[str, ...]
    makers: tuple[str, ...]
    a: float
    powers: tuple[int, ...]
    before: float
    after: float

    @property
    def largest(self) -> int:
        """The largest scale; the least one is 1 or more."""
        return 1 << max(self.powers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleReport:
    """What became of a folder.

    Attributes:
        job: The request.
        device: Where the plans ran.
        groups: What was found, in the order of the layers.
        carried: Files with weights of further modules, which were copied as they are.
        left_out: Files with weights that were not copied: they would hold the model as it was.
        digest: That of ``planq.json``, over all files, the build, the options and the scales.
        seconds: Time from opening the input to the output's final name.
    """

    job: Job
    device: str
    groups: tuple[GroupReport, ...]
    carried: tuple[str, ...]
    left_out: tuple[str, ...]
    digest: str
    seconds: float


@dataclass(slots=True)
class _Change:
    """What a tensor is multiplied by.

    Attributes:
        rows: The exponents along axis 0; None for none.
        columns: Those along axis 1.
        shift: What the network adds to the tensor.
    """

    rows: Exponents | None = None
    columns: Exponents | None = None
    shift: float = 0.0

    def applied(self, entry: TensorEntry, payload: Bytes) -> Float64:
        """Returns the tensor as float64, changed; a vector has one column."""
        dtype = FLOATING[entry.dtype]
        made = decoded(payload, dtype, entry.shape[0])
        if self.columns is not None:
            made = scaled(made, self.columns, dtype)
        if self.rows is not None:
            made = scaled(made, self.rows[:, None], dtype, self.shift)
        return made


def scale_folder(job: Job, executor: Executor, progress: Progress) -> ScaleReport:
    """Scales the weights of a model's folder, and only then gives the output its name.

    Args:
        job: What to do: the scheme and the format are those that the output is to be quantized
            with, and `Job.inputs` has what the layers were fed.
        executor: Where to run the plans; the bytes are the same.
        progress: Called before each group with its first layer, its size and the size of all.

    Returns:
        The report; the output folder is complete.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    _check(job)
    fed = job.inputs.path if job.inputs else None
    check_folder_target(job.source, job.target, overwrite=job.overwrite, inputs=fed)
    model = read_model_folder(job.source)
    with ExitStack() as stack:
        run = _Run(job, model, stack, executor)
        groups = run.search(progress)
        with new_folder(job.target) as partial:
            copy_rest(model.rest, partial)
            for name in _copied(model):
                shutil.copyfile(job.source / name, partial / name)
            with outputs():
                for shard in model.shards:
                    run.write(shard.name, partial / shard.name)
            files = digests_of(walk(partial).files)
            summary = _summary(this_build(), job, groups, files)
            write_json(partial / SUMMARY, summary)
            run.check_unchanged()
    return ScaleReport(
        job=job,
        device=executor.name,
        groups=groups,
        carried=model.rest.carried,
        left_out=model.rest.left_out,
        digest=summary["digest"],
        seconds=time.perf_counter() - start,
    )


def is_scaled(folder: Path) -> bool:
    """Whether `scale_folder` made a folder, by its ``planq.json``."""
    return (folder / SUMMARY).is_file() and _SCALED in read_json(folder / SUMMARY)


def compare_scaled(
    source: Path,
    target: Path,
    executor: Executor,
    progress: Progress,
    *,
    inputs: LayerInputs | None,
) -> tuple[Comparison, ...]:
    """Scales a model's folder again, and compares every byte of every file.

    Args:
        source: The folder that was scaled.
        target: The folder that was made of it.
        executor: Where to run the plans.
        progress: Called as by `scale_folder`.
        inputs: What the layers were fed.

    Returns:
        What differs: one comparison for each safetensors file, by tensor, and one for the folder,
        by file.

    Raises:
        CheckpointError: One of the two is no such folder, or was made with other inputs.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    summary = read_json(target / SUMMARY)
    told = summary.get(_SCALED)
    text = json.dumps(told.get("options") if isinstance(told, dict) else None)
    job = job_from(text, target / SUMMARY, Job(source, target, Scheme.INT8_CHANNEL, inputs=inputs))
    _check(job)
    made_by = _made_by(summary)
    model = read_model_folder(source)
    check_shards(model, target)
    with ExitStack() as stack:
        run = _Run(job, model, stack, executor)
        groups = run.search(progress)
        shards = tuple(run.compare(shard.name, target / shard.name) for shard in model.shards)
        run.check_unchanged()
    found = walk(target)
    digests = digests_of(found.files)
    wanted = digests_of(model.rest.files | {name: source / name for name in _copied(model)})
    differing = other_files(model, wanted, found, digests)
    expected = _summary(made_by, job, groups, digests)
    what = summary_difference(summary, expected)
    if not what and (target / SUMMARY).read_bytes() != json_text(expected).encode():
        what = "other bytes"
    if what:
        differing[SUMMARY] = what
    files = (Comparison(target / name, found, (), made_by) for name, found in shards)
    return (*files, Comparison(target, differing, (), made_by, scaled=len(groups)))


def _check(job: Job) -> None:
    """Refuses a request that is none."""
    if not job.source.is_dir():
        raise CheckpointError(f"{job.source}: expected a model's folder, with {CONFIG}")
    if job.form.format not in _FORMATS:
        known = " or ".join(each.value for each in _FORMATS)
        raise CheckpointError(f"--format: expected {known}, got {job.form.format.value}")
    if job.inputs is None:
        raise CheckpointError("--layer-inputs: expected what the layers were fed, got nothing")
    if job.method is not Method.NEAREST:
        raise CheckpointError(f"--method: expected nearest, got {job.method.value}")


def _copied(model: ModelFolder) -> list[str]:
    """The files that stay as they are, beside those that any new folder copies."""
    return [CONFIG] if model.places is None else [CONFIG, INDEX]


def _made_by(summary: Mapping[str, Any]) -> tuple[str, str]:
    """The version and the build that ``planq.json`` names; empty where it names none."""
    told = summary.get("planq")
    facts = told if isinstance(told, dict) else {}
    version, build = (str(facts.get(key, "")) for key in ("version", "build_id"))
    return version, build


def _summary(
    made_by: tuple[str, str], job: Job, groups: Sequence[GroupReport], files: dict[str, str]
) -> dict[str, Any]:
    """Returns what ``planq.json`` holds; its digest is over files, build, options and scales."""
    if job.inputs is None:
        raise AssertionError("scaled without inputs")
    version, build = made_by
    found = [
        {
            "layers": list(group.layers),
            "makers": list(group.makers),
            "a": group.a,
            "largest_scale": group.largest,
        }
        for group in groups
    ]
    options = job.options | {"layer_inputs": job.inputs.sha256}
    record = {
        "planq": {"version": version, "build_id": build},
        _SCALED: {"options": options, "groups": found},
    }
    own = hashlib.sha256(json_text(record).encode()).hexdigest()
    return {**record, "files": files, "digest": digest_of({**files, SUMMARY: own})}


def _homes(readers: Iterable[CheckpointReader]) -> dict[str, CheckpointReader]:
    """Returns the file of each tensor; refuses two, of which a loader may take either."""
    found: dict[str, CheckpointReader] = {}
    for reader in readers:
        for name in reader.by_name:
            if name in found:
                files = f"{found[name].path.name} and {reader.path.name}"
                raise CheckpointError(f"{reader.path.parent}: tensor {name!r}: in {files}")
            found[name] = reader
    return found


class _Run:
    """The passes over the open files of a folder.

    Args:
        job: What to do.
        model: The folder.
        stack: Closes the files.
        executor: Where to run the plans.
    """

    def __init__(self, job: Job, model: ModelFolder, stack: ExitStack, executor: Executor) -> None:
        self._job, self._executor = job, executor
        self._select = plan_selector(executor)
        self._readers = {
            shard.name: stack.enter_context(closing(CheckpointReader(shard)))
            for shard in model.shards
        }
        self._homes = _homes(self._readers.values())
        entries = {name: reader.by_name[name] for name, reader in self._homes.items()}
        self._places = self._chosen(places_of(job.source / CONFIG, model.config, entries))
        if job.inputs is None:
            raise AssertionError("scaled without inputs")
        self._inputs = job.inputs
        layers = [layer for place in self._places for layer in place.layers]
        for layer in layers:  # before minutes go by
            job.form.check_weight(job.scheme, layer, job.grouping)
        self._inputs.check(layers)
        self._changes: dict[str, _Change] = {}

    def search(self, progress: Progress) -> tuple[GroupReport, ...]:
        """Finds the scales of each place, as those before it leave its tensors."""
        sizes = [sum(layer.nbytes for layer in place.layers) for place in self._places]
        found = []
        for place, size in zip(self._places, sizes, strict=True):
            progress(place.layers[0].name, size, sum(sizes))
            found.append(self._search(place))
        return tuple(found)

    def write(self, shard: str, target: Path) -> None:
        """Makes one file of the output."""
        reader = self._readers[shard]
        making = CheckpointWriter(target, reader.entries, reader.metadata, overwrite=False)
        with closing(making) as writer:
            self._pass(reader, writer)
            writer.commit()

    def compare(self, shard: str, target: Path) -> tuple[str, dict[str, str]]:
        """Compares one file of the output; returns its name, and what differs."""
        reader = self._readers[shard]
        with closing(CheckpointComparer(target, reader.entries)) as found:
            self._pass(reader, found)
            differing = {name: difference(count) for name, count in found.differing.items()}
            differing |= dict.fromkeys(found.unexpected(), "should not be there")
            if not found.has_header(reader.metadata):
                differing["header"] = "other bytes"
        return shard, differing

    def check_unchanged(self) -> None:
        """Refuses files that were written to meanwhile."""
        for reader in self._readers.values():
            reader.check_unchanged()

    def _chosen(self, places: list[Place]) -> list[Place]:
        """The places whose layers are all quantized."""
        job = self._job
        chosen = [
            place for place in places if not any(job.why_not(layer.name) for layer in place.layers)
        ]
        if not chosen:
            raise CheckpointError(f"{job.source}: no layers that the options allow to scale")
        return chosen

    def _pass(
        self, reader: CheckpointReader, writer: CheckpointWriter | CheckpointComparer
    ) -> None:
        """Writes or compares every tensor of a file."""
        for entry in reader.entries:
            change = self._changes.get(entry.name)
            if change is None:
                copy_tensor(entry, reader, writer)
                continue
            made = change.applied(entry, reader.tensor(entry))
            writer.write(entry.name, _bytes(made, entry).data)

    def _read(self, entry: TensorEntry) -> Float64:
        """A tensor as it is so far, all finite; a vector has one column."""
        reader = self._homes[entry.name]
        payload = reader.tensor(entry)
        values = self._changes.get(entry.name, _Change()).applied(entry, payload)
        if not np.isfinite(values).all():
            raise TensorError(reader.path, entry.name, "finite values", "a NaN or an infinity")
        return values

    def _search(self, place: Place) -> GroupReport:
        """Finds the scales of one place, and notes what they change."""
        weights = [_Layer(self._read(layer), layer, self._trip(layer)) for layer in place.layers]
        channels = place.channels
        count = int(channels.max()) + 1
        parts = [Part(_by_channel(weight.values, channels), weight.dtype, 1) for weight in weights]
        parts += [
            Part(self._read(maker), FLOATING[maker.dtype], -1, place.shift)
            for maker in place.makers
        ]
        names = [layer.name for layer in place.layers]
        curvature = Curvature(self._inputs.hessian(names[0]).gram)
        means = np.zeros(count)
        np.add.at(means, channels, self._inputs.means(names))  # of copies in their order
        best = _best(weights, curvature, _candidates(means, parts), channels)
        for layer in place.layers:
            self._changes.setdefault(layer.name, _Change()).columns = best.powers[channels]
        for maker in place.makers:
            change = self._changes.setdefault(maker.name, _Change())
            change.rows, change.shift = -best.powers, place.shift
        signal = total([curvature.energies(weight.values) for weight in weights])
        return GroupReport(
            layers=tuple(names),
            makers=tuple(maker.name for maker in place.makers),
            a=best.a,
            powers=tuple(best.powers.tolist()),
            before=_relative(best.first, signal),
            after=_relative(best.error, signal),
        )

    def _trip(self, layer: TensorEntry) -> RoundTrip:
        return RoundTrip(self._job, layer, self._executor, self._select)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A weight of a group.

    Attributes:
        values: Its elements.
        entry: What the file says of it.
        trip: Quantizes it and restores it.
    """

    values: Float64
    entry: TensorEntry
    trip: Callable[[Bytes], Bytes]

    @property
    def dtype(self) -> Any:
        """Its type."""
        return FLOATING[self.entry.dtype]

    def lost(self, powers: Exponents) -> Float64:
        """What is lost of it by codes under these scales of columns."""
        times = scaled(self.values, powers, self.dtype)
        restored = decoded(self.trip(_bytes(times, self.entry)), self.dtype, len(times))
        return np.ldexp(restored, -powers) - self.values


@dataclass(frozen=True, slots=True)
class _Best:
    """The scales with the least error so far.

    Attributes:
        a: Their exponent.
        powers: Their binary logarithms.
        error: Their error.
        first: The error without scales.
    """

    a: float
    powers: Exponents
    error: float
    first: float


def _candidates(means: Float64, parts: Sequence[Part]) -> Iterator[tuple[float, Exponents]]:
    """Yields each a, with exponents that all tensors take; without those that came before."""
    seen = set()
    for a, powers in exponents(means):
        found = fitted(powers, parts)
        if (key := found.tobytes()) not in seen:
            seen.add(key)
            yield a, found


def _best(
    weights: Sequence[_Layer],
    curvature: Curvature,
    candidates: Iterator[tuple[float, Exponents]],
    channels: Any,
) -> _Best:
    """Returns the scales with the least error of all outputs."""
    best: _Best | None = None
    for a, powers in candidates:
        lost = (curvature.energies(weight.lost(powers[channels])) for weight in weights)
        error = total(list(lost))
        if best is None:
            best = _Best(a, powers, error, error)
        elif error < best.error:
            best = replace(best, a=a, powers=powers, error=error)
    if best is None:
        raise AssertionError("no scales to try")
    return best


def _by_channel(values: Float64, channels: Any) -> Float64:
    """The elements of a weight by the channel that makes their column, along axis 0."""
    order = np.argsort(channels, kind="stable")
    return values.T[order].reshape(int(channels.max()) + 1, -1)


def _bytes(values: Float64, entry: TensorEntry) -> Bytes:
    """The bytes of elements that are numbers of a tensor's type."""
    made = np.ascontiguousarray(rounded(values, FLOATING[entry.dtype]))
    return made.reshape(-1).view(np.uint8)


def _relative(error: float, signal: float) -> float:
    """The relative error of outputs; what rounding leaves below 0 counts as 0."""
    return math.sqrt(max(error, 0.0) / signal) if signal > 0 else math.nan
