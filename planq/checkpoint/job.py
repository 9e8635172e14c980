"""Quantizing a checkpoint file: the work of ``planq quantize``, without what it prints."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import planq
from planq.checkpoint.digests import CONTENT, SOURCE, UNKNOWN, content_digest, sealed, short
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import (
    CheckpointComparer,
    CheckpointReader,
    CheckpointWriter,
    TensorEntry,
    check_paths,
    copy_tensor,
)
from planq.checkpoint.formats import (
    PLAIN,
    Activations,
    Form,
    Format,
    QuantStorage,
    as_options,
    modules_of,
    usual_dtype,
)
from planq.checkpoint.gptq import compensated
from planq.checkpoint.groups import GroupMeasure, measure_of
from planq.checkpoint.quality import (
    Fidelity,
    count_non_finite,
    count_spoiled,
    fidelity,
    largest_error,
    output_fidelity,
    signal_to_noise_db,
)
from planq.checkpoint.reports import FileReport, TensorReport
from planq.checkpoint.schemes import (
    FLOATING,
    Blocks,
    Groups,
    Method,
    Quantizing,
    Scaling,
    Scheme,
    Search,
    choose_blocks,
    choose_groups,
    describe,
    is_weight,
)
from planq.checkpoint.stored import (
    METADATA_PREFIX,
    ScaledWeight,
    StoredWeight,
    describing,
    is_quantized,
    read_weights,
    restore,
    stored_weight,
)
from planq.executors import plan_selector

if TYPE_CHECKING:
    from pathlib import Path

    from planq.checkpoint.calibration import Ranges
    from planq.checkpoint.layer_inputs import LayerInputs
    from planq.checkpoint.selection import Selection
    from planq.executors import Bytes, Executor

Progress = Callable[[str, int, int], None]

# Version and build that made a file. Another build may make the same bytes otherwise.
BUILD = (f"{METADATA_PREFIX}version", f"{METADATA_PREFIX}build_id")


@dataclass(frozen=True, slots=True)
class Job:
    """One file to quantize.

    Attributes:
        source: The safetensors file to read, or a model's folder.
        target: The file to make.
        scheme: How weights are quantized.
        include: Quantize only weights whose name this pattern matches somewhere; None for all.
        overwrite: Whether `target` may exist and be replaced.
        ranges: The range of every weight; None to measure them.
        verify: Whether to read the file again and dequantize it before it gets its name.
        blocks: The blocks of a codebook scheme; None for the others.
        groups: The groups of a scheme that has some; None for its usual ones.
        evaluate: Whether to compare each weight with what is restored of it.
        inputs: What each layer was fed, for GPTQ and for the evaluation; None without these.
        exclude: Leave out weights whose name this pattern matches somewhere; None for no others.
        form: The format of the output, with its options.
        default_excludes: Whether to leave out the weights that the format leaves out by default.
        selection: Which weights of a model to quantize; None for a single file, where the fields
            above decide.
        shard: Whether the file is a part of a model; then it may have no weight to quantize.
    """

    source: Path
    target: Path
    scheme: Scheme
    include: re.Pattern[str] | None = None
    overwrite: bool = False
    ranges: Ranges | None = None
    verify: bool = False
    blocks: Blocks | None = None
    exclude: re.Pattern[str] | None = None
    form: Form = PLAIN
    default_excludes: bool = True
    selection: Selection | None = None
    shard: bool = False
    groups: Groups | None = None
    evaluate: bool = False
    inputs: LayerInputs | None = None

    @property
    def grouping(self) -> Groups | None:
        """The groups of the scheme; None if it has none."""
        return self.groups or choose_groups(self.scheme, None)

    @property
    def method(self) -> Method:
        """Which code an element gets."""
        groups = self.grouping
        return groups.method if groups else Method.NEAREST

    def check_inputs(self, weights: Iterable[TensorEntry]) -> None:
        """Refuses layer inputs that nothing reads, or that are not those of the weights.

        Args:
            weights: Those that are to be quantized.

        Raises:
            CheckpointError: Method and inputs do not go together, or inputs are missing or of
                another type or shape.
        """
        if self.inputs is None and self.method is Method.GPTQ:
            raise CheckpointError("--method: gptq needs --layer-inputs")
        if self.inputs and self.form.format is Format.GGUF:
            raise CheckpointError("--layer-inputs: a GGUF file is made without them")
        if self.inputs and self.method is not Method.GPTQ and not self.evaluate:
            raise CheckpointError("--layer-inputs: only with --method gptq or --evaluate")
        if self.inputs:
            self.inputs.check(weights)

    def why_not(self, name: str) -> str:
        """Why the weight of this name stays as it is; empty if it is to be quantized."""
        if self.include and not self.include.search(name):
            return "--include does not find it"
        if self.exclude and self.exclude.search(name):
            return "--exclude finds it"
        if self.default_excludes and self.form.leaves(name):
            return "its name tells of no linear layer inside a model"
        return ""

    @property
    def options(self) -> dict[str, Any]:
        """The options, without the files. Same options and same input give the same bytes."""
        groups, inputs = self.grouping, self.inputs
        return {
            "scheme": self.scheme.value,
            "group_size": groups.size if groups else None,
            "search": (groups.search if groups else Search.NONE).value,
            "method": self.method.value,
            **as_options(self.form),
            "include": self.include.pattern if self.include else None,
            "exclude": self.exclude.pattern if self.exclude else None,
            "default_excludes": self.default_excludes,
            "block_size": self.blocks.size if self.blocks else None,
            "nested": bool(self.blocks and self.blocks.nested_size),
            "calibrated": self.ranges.sha256 if self.ranges else None,
            "layer_inputs": inputs.sha256 if inputs and self.method is Method.GPTQ else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightReport(TensorReport):
    """What became of one weight: its digest is over all tensors that are stored for it.

    With given ranges, `non_finite` counts the values that are not finite. Otherwise it counts the
    segments that dequantize to NaN: those with a value that is not finite. With nested statistics,
    one such value spoils every segment of the weight.

    Attributes:
        parts: The SHA-256 of each of these tensors, by name.
        sqnr_db: Signal-to-quantization-noise ratio in dB; infinite if the codes are exact, NaN if
            there is no signal or a value is not finite.
        restored_sha256: SHA-256 of the dequantized codes; None without verification.
        fidelity: How like the weight they are; None unless asked for.
        outputs: How like the layer's outputs theirs are; None unless asked for with inputs.
    """

    parts: dict[str, str]
    sqnr_db: float
    restored_sha256: str | None
    fidelity: Fidelity | None = None
    outputs: Fidelity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport(FileReport):
    """What became of a file: its digest is the one in its metadata.

    Attributes:
        job: The request.
        source_digest: SHA-256 of the input file.
        tensors: The weights, in the order of the file.
        largest_errors: The largest absolute error of each weight as read back from the file, by
            name; not finite if a value is not. Empty without verification.
        floating: Why each of the other weights of two axes stayed as it is, by name.
        basis: For a folder: what told the kinds of its weights; None for a file.
        carried: For a folder: files with weights of other modules, which were copied.
        left_out: For a folder: files with weights that were not copied; of GGUF, tensors.
    """

    job: Job
    source_digest: str
    tensors: tuple[WeightReport, ...]
    largest_errors: dict[str, float]
    floating: Mapping[str, str] = field(default_factory=dict)
    basis: str | None = None
    carried: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def quantize_file(job: Job, executor: Executor, progress: Progress) -> JobReport:
    """Quantizes the weights of a file, copies the rest, and only then gives the output its name.

    Args:
        job: What to do.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Returns:
        The report; the output file is complete and durable.

    Raises:
        CheckpointError: The request cannot be carried out; nothing was written.
        OSError: The system refused; nothing was written.
        planq.PlanqError: No kernel, or a device failed; nothing was written.
    """
    start = time.perf_counter()
    check_paths(job.source, job.target, overwrite=job.overwrite)
    with closing(CheckpointReader(job.source, whole=True)) as reader:
        weights, entries, metadata = _planned(job, reader, executor)
        unknown = {entry.name: UNKNOWN for entry in entries}
        metadata = sealed(entries, unknown, metadata, UNKNOWN)
        making = CheckpointWriter(job.target, entries, metadata, overwrite=job.overwrite)
        with closing(making) as writer:
            total = _bytes_to_read(job, reader, weights)
            run = _Run(job, weights, executor, progress, reader, writer, total)
            tensors = run.quantize()
            metadata = sealed(entries, writer.digests(entries), metadata, reader.sha256())
            writer.write_metadata(metadata)
            errors = run.verify(tensors) if job.verify else {}
            reader.check_unchanged()
            writer.commit()
    copied = [entry for entry in reader.entries if entry.name not in weights]
    return JobReport(
        job=job,
        digest=metadata[CONTENT],
        source_digest=metadata[SOURCE],
        source=job.source,
        target=job.target,
        device=executor.name,
        tensors=tensors,
        largest_errors=errors,
        floating={e.name: job.why_not(e.name) for e in copied if is_weight(e)},
        copied_tensors=len(copied),
        copied_bytes=sum(entry.nbytes for entry in copied),
        source_bytes=reader.size,
        target_bytes=writer.size,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between a file and what its source becomes now.

    Attributes:
        path: The file.
        differing: What differs, by the name of a tensor, or by ``header``.
        tensors: The weights that were quantized again.
        made_by: The version and the build of planq that the file says made it.
        scaled: The number of inputs of layers that were scaled again, if any were.
    """

    path: Path
    differing: dict[str, str]
    tensors: tuple[WeightReport, ...]
    made_by: tuple[str, str]
    scaled: int = 0

    @property
    def same_build(self) -> bool:
        """Whether this build of planq made the file."""
        return self.made_by == this_build()


def this_build() -> tuple[str, str]:
    """Returns the version and the build of the planq that runs."""
    build = planq.build_info()
    return build.version, build.build_id


def compare_file(job: Job, executor: Executor, progress: Progress) -> Comparison:
    """Quantizes a file again, and compares every byte with the one that is there.

    Args:
        job: The request that the file was made by: `job_of` reads it from the file.
        executor: Where to run the plans.
        progress: Called before each tensor with its name, its size and the size of all.

    Raises:
        CheckpointError: One of the files is too damaged to compare.
        OSError: The system refused.
        planq.PlanqError: No kernel, or a device failed.
    """
    with closing(CheckpointReader(job.source, whole=True)) as reader:
        weights, entries, metadata = _planned(job, reader, executor)
        with closing(CheckpointComparer(job.target, entries)) as found:
            total = _bytes_to_read(job, reader, weights)
            tensors = _Run(job, weights, executor, progress, reader, found, total).quantize()
            theirs = {key: found.reader.metadata.get(key, "") for key in BUILD}
            digests = found.digests(entries)
            metadata = sealed(entries, digests, metadata | theirs, reader.sha256())
            differing = {name: difference(count) for name, count in found.differing.items()}
            differing |= dict.fromkeys(found.unexpected(), "should not be there")
            if not found.has_header(metadata):
                differing["header"] = header_difference(metadata, found.reader.metadata)
            reader.check_unchanged()
    return Comparison(job.target, differing, tensors, (theirs[BUILD[0]], theirs[BUILD[1]]))


def difference(count: int | None) -> str:
    """Says how many bytes of a tensor differ; None means that no such tensor is there."""
    if count is None:
        return "missing, or of another type or shape"
    return f"{count} byte{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"


def header_difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Names the metadata that differ."""
    names = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
    return f"other metadata: {', '.join(names)}" if names else "other bytes"


def job_of(
    source: Path,
    target: Path,
    ranges: Ranges | None = None,
    inputs: LayerInputs | None = None,
) -> Job:
    """Returns the request that a file was made by, from its metadata.

    Args:
        source: The file that was quantized.
        target: The file.
        ranges: The ranges of the weights, if they were given.
        inputs: What the layers were fed, if it was made by GPTQ.

    Raises:
        CheckpointError: The metadata are missing or damaged, or ranges or inputs were others.
    """
    with closing(CheckpointReader(target)) as reader:
        text = reader.metadata.get(f"{METADATA_PREFIX}options", "")
    job = Job(source, target, Scheme.INT8_CHANNEL, ranges=ranges, inputs=inputs)
    return job_from(text, target, job)


def _typed(value: Any, *kinds: type | None) -> Any:
    """Returns a value that has one of these types; None among them allows None."""
    if type(value) not in [type(None) if kind is None else kind for kind in kinds]:
        raise TypeError(f"{value!r} is of another type")
    return value


def _expect_same(
    option: str, what: str, digest: str | None, given: Ranges | LayerInputs | None
) -> None:
    """Refuses another file than the one with this digest, or a file where there was none."""
    found = given.sha256 if given else None
    if digest != found:
        wanted, got = (f"SHA-256 {short(each)}" if each else "none" for each in (digest, found))
        raise CheckpointError(f"{option}: {what}: expected {wanted}, got {got}")


def job_from(text: str, where: Path, job: Job) -> Job:
    """Returns a request with the options that a JSON text has.

    Args:
        text: What `Job.options` was, as JSON.
        where: The file to name in errors.
        job: The request to fill in.

    Raises:
        CheckpointError: The text does not hold options, or ranges or inputs were others.
    """
    try:
        options = json.loads(text)
        scheme = Scheme(options["scheme"])
        names = (options["format"], options["activations"], options["quant_storage"])
        form = Form(Format(names[0]), Activations(names[1]), QuantStorage(names[2]))
        patterns = (_typed(options[key], str, None) for key in ("include", "exclude"))
        include, exclude = (None if each is None else re.compile(each) for each in patterns)
        default_excludes = _typed(options["default_excludes"], bool)
        size = _typed(options["block_size"], int, None)
        nested = _typed(options["nested"], bool)
        group_size, search = _typed(options["group_size"], int, None), Search(options["search"])
        method = Method(options["method"])
        calibrated = _typed(options["calibrated"], str, None)
        fed = _typed(options["layer_inputs"], str, None)
    except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError, re.error) as error:
        what = f"metadata {METADATA_PREFIX}options is missing or damaged"
        raise CheckpointError(f"{where}: {what}, so it cannot be made again") from error
    _expect_same("--calibrate", f"{where} was made with other ranges", calibrated, job.ranges)
    _expect_same("--layer-inputs", f"{where} was made with other inputs", fed, job.inputs)
    blocks = choose_blocks(scheme, size, nested=nested, calibrated=calibrated is not None)
    groups = choose_groups(scheme, group_size, search, method, calibrated=calibrated is not None)
    form.check(scheme, blocks, calibrated=calibrated is not None)
    return replace(
        job,
        scheme=scheme,
        form=form,
        include=include,
        exclude=exclude,
        default_excludes=default_excludes,
        blocks=blocks,
        groups=groups,
    )


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight to quantize.

    Attributes:
        stored: The weight as it will be stored.
        desc: The descriptor that makes the codes.
        plans: The plans that make all that is stored; the first makes the codes.
        given: The bytes of given scales and zero points; empty if they are measured.
        measure: What measures scales that no plan does by itself; None if one does.
        back: The plan that dequantizes it again; None if that is not wanted.
    """

    stored: StoredWeight
    desc: Quantizing
    plans: tuple[planq.Plan, ...]
    given: dict[str, Bytes]
    measure: GroupMeasure | None
    back: planq.Plan | None

    def made(
        self,
        executor: Executor,
        values: Bytes,
        change: Callable[[Mapping[str, Bytes]], Bytes] | None = None,
    ) -> tuple[dict[str, Bytes], float]:
        """Quantizes: the bytes of operands, given and measured, and the seconds of the plans.

        Args:
            executor: Where to run the plans.
            values: The bytes of the weight.
            change: Makes, of the operands given and measured, what is coded in their place.
        """
        given, seconds = self.given, 0.0
        if self.measure:
            given, seconds = self.measure.parameters(executor, values)
        coded = change(given) if change else values
        runs = [executor.run(each, {"input": coded, **given}) for each in self.plans]
        made = {**given}
        for ran in runs:
            made |= ran.outputs
        return made, seconds + sum(ran.seconds for ran in runs)


def quantize_weight(
    job: Job, entry: TensorEntry, payload: Bytes, executor: Executor
) -> dict[TensorEntry, Bytes]:
    """Quantizes one weight in memory, and returns the tensors that a file would have of it.

    Args:
        job: How; its files are not touched.
        entry: The weight.
        payload: Its bytes.
        executor: Where to run the plans.

    Raises:
        CheckpointError: The format cannot hold the weight.
    """
    job.form.check_weight(job.scheme, entry, job.grouping)
    weight = _weight(job, entry, plan_selector(executor))
    stored = weight.stored
    made, _ = weight.made(executor, stored.values(payload))
    payloads = stored.payloads(made)
    return {part: payloads[key] for key, part in stored.parts.items()}


class RoundTrip:
    """One weight to its codes and back, as a reader of the quantized file would have it.

    Args:
        job: How; its files are not touched.
        entry: The weight.
        executor: Where to run the plans.
        select: Selects plans.

    Raises:
        CheckpointError: The format cannot hold the weight.
    """

    def __init__(
        self,
        job: Job,
        entry: TensorEntry,
        executor: Executor,
        select: Callable[[Any], planq.Plan],
    ) -> None:
        job.form.check_weight(job.scheme, entry, job.grouping)
        self._weight = _weight(replace(job, evaluate=True), entry, select)
        self._executor = executor

    def __call__(self, payload: Bytes) -> Bytes:
        """Returns the bytes that are restored, in the weight's own type."""
        stored, back = self._weight.stored, self._weight.back
        if back is None:
            raise AssertionError("no plan restores the weight")
        made, _ = self._weight.made(self._executor, stored.values(payload))
        return self._executor.run(back, stored.inputs(stored.payloads(made))).outputs["output"]


def _planned(
    job: Job, reader: CheckpointReader, executor: Executor
) -> tuple[dict[str, _Weight], list[TensorEntry], dict[str, str]]:
    """Returns the weights, the tensors of the output, and its metadata without digests."""
    weights = _select(job, reader, executor)
    entries = [made for entry in reader.entries for made in _made_from(entry, weights)]
    return weights, entries, _metadata(job, reader, weights)


def chosen_weights(job: Job, reader: CheckpointReader) -> list[TensorEntry]:
    """Returns the weights of an open file that a request quantizes.

    Raises:
        CheckpointError: There is none, or the file is quantized already.
    """
    if is_quantized(reader):
        raise CheckpointError(f"{job.source}: already quantized")
    known = [entry for entry in reader.entries if is_weight(entry)]
    if job.selection is None:
        taken = {entry.name for entry in known if not job.why_not(entry.name)}
    else:
        taken = set(job.selection.quantized)
    chosen = [entry for entry in known if entry.name in taken]
    if not chosen and not job.shard:
        which = f" whose name matches {job.include.pattern!r}" if job.include else ""
        raise CheckpointError(f"{job.source}: no 2-D floating weight{which}, nothing to quantize")
    if job.ranges:
        job.ranges.check_names([entry.name for entry in chosen], {entry.name for entry in known})
    for entry in chosen:
        job.form.check_weight(job.scheme, entry, job.grouping)
    job.check_inputs(chosen)
    return chosen


def _select(job: Job, reader: CheckpointReader, executor: Executor) -> dict[str, _Weight]:
    """Selects plans for every weight of the request, by name; equal descriptors share a plan."""
    select = plan_selector(executor)
    return {entry.name: _weight(job, entry, select) for entry in chosen_weights(job, reader)}


def _weight(job: Job, entry: TensorEntry, select: Callable[[Any], planq.Plan]) -> _Weight:
    rule = job.form.rule()
    calibrated = job.ranges is not None
    desc = describe(
        job.scheme,
        entry,
        calibrated=calibrated,
        blocks=job.blocks,
        groups=job.grouping,
        rule=rule,
    )
    layout, storage = job.form.layout(job.scheme), job.form.quant_storage.value
    stored = stored_weight(entry, desc, layout, storage)
    quantizing = stored.quantizing if isinstance(stored, ScaledWeight) else (desc,)
    return _Weight(
        stored=stored,
        desc=desc,
        plans=tuple(map(select, quantizing)),
        given=_given(job.ranges, entry, desc),
        measure=_measure(job, stored, rule, select),
        back=select(stored.restoring()) if job.verify or job.evaluate else None,
    )


def _measure(
    job: Job,
    stored: StoredWeight,
    rule: Mapping[str, Any],
    select: Callable[[Any], planq.Plan],
) -> GroupMeasure | None:
    groups = job.grouping
    if job.ranges or not groups or not isinstance(stored, ScaledWeight):
        return None
    if not isinstance(stored.desc, planq.QuantizeDescriptor):  # one that measures by itself
        return None
    return measure_of(stored.desc, stored.restoring(), rule, groups.search, select)


def _given(ranges: Ranges | None, entry: TensorEntry, desc: Quantizing) -> dict[str, Bytes]:
    if ranges is None or not isinstance(desc, Scaling):
        return {}
    return ranges.parameters(entry.name, desc)


def _made_from(entry: TensorEntry, weights: Mapping[str, _Weight]) -> list[TensorEntry]:
    if entry.name not in weights:
        return [entry]
    return list(weights[entry.name].stored.parts.values())


def _metadata(job: Job, reader: CheckpointReader, weights: Mapping[str, _Weight]) -> dict[str, str]:
    """Returns the input's own strings and planq's; none depends on the device or on the time."""
    build = planq.build_info()
    own = {"scheme": job.scheme.value, "version": build.version, "build_id": build.build_id}
    own["options"] = json.dumps(job.options, sort_keys=True)
    if job.ranges:
        own["calibrated"] = job.ranges.sha256
    if job.selection:  # of a folder, which has it in full
        own["weights_sha256"] = job.selection.sha256
    chosen = list(weights.values())
    config = None if job.shard else _config(job, reader, weights)
    if config:
        own["quantization_config"] = json.dumps(config, sort_keys=True)
    if chosen:
        own |= describing(chosen[0].desc, (weight.stored for weight in chosen))
    return reader.metadata | {METADATA_PREFIX + key: value for key, value in own.items()}


def _config(
    job: Job, reader: CheckpointReader, weights: Mapping[str, _Weight]
) -> dict[str, Any] | None:
    """Returns the ``quantization_config`` that readers of the file need; None for plain."""
    floating = [
        entry.name for entry in reader.entries if is_weight(entry) and entry.name not in weights
    ]
    dtypes = {weight.stored.original.dtype for weight in weights.values()}
    return job.form.config(
        job.scheme, job.blocks, job.grouping, modules_of(floating), usual_dtype(dtypes)
    )


def _bytes_to_read(job: Job, reader: CheckpointReader, weights: Mapping[str, _Weight]) -> int:
    """Returns how many bytes of the input all passes read; verification reads weights again."""
    again = (weight.stored.original for weight in weights.values() if job.verify)
    return sum(entry.nbytes for entry in (*reader.entries, *again))


@dataclass(frozen=True, slots=True)
class _Run:
    """The passes over the open files of a job."""

    job: Job
    weights: Mapping[str, _Weight]
    executor: Executor
    progress: Progress
    reader: CheckpointReader
    writer: CheckpointWriter | CheckpointComparer
    total: int

    def quantize(self) -> tuple[WeightReport, ...]:
        """Quantizes or copies every tensor of the input to the output."""
        tensors = []
        for entry in self.reader.entries:
            self._advance(entry)
            if entry.name in self.weights:
                tensors.append(self._quantize(self.weights[entry.name]))
            else:
                copy_tensor(entry, self.reader, self.writer)
        return tuple(tensors)

    def verify(self, tensors: Sequence[WeightReport]) -> dict[str, float]:
        """Reads the file back and dequantizes it; returns each weight's largest absolute error."""
        errors = {}
        select = plan_selector(self.executor)
        if not isinstance(self.writer, CheckpointWriter):
            raise AssertionError("nothing was written")
        with closing(self.writer.reopen()) as written:
            found = read_weights(written)
            for tensor in tensors:
                source = self.weights[tensor.name].stored.original
                self._advance(source)
                stored = found[tensor.name]
                restored = restore(stored, select(stored.restoring()), written, self.executor)
                values = restored.outputs["output"]
                if _digest(values) != tensor.restored_sha256:
                    what = f"{tensor.name!r} dequantizes to other bits when it is read back"
                    raise CheckpointError(f"{self.job.target}: {what}")
                dtype = FLOATING[source.dtype]
                errors[tensor.name] = largest_error(dtype, self.reader.tensor(source), values)
        return errors

    def _quantize(self, weight: _Weight) -> WeightReport:
        stored, desc, plan = weight.stored, weight.desc, weight.plans[0]
        entry = stored.original
        values = stored.values(self.reader.tensor(entry))
        change = partial(self._compensated, weight, values)
        made, seconds = weight.made(self.executor, values, change)
        payloads = stored.payloads(made)
        parts = list(stored.parts.values())
        for key, part in stored.parts.items():
            self.writer.write(part.name, payloads[key].data)
        digests = self.writer.digests(parts)
        ratio = signal_to_noise_db(desc, values, made)
        if weight.given:
            non_finite = count_non_finite(values, desc.input_dtype)
        else:
            non_finite = count_spoiled(desc, made)
        del values, change  # frees memory before the restored weight needs as much
        restored_sha256, alike, outputs = self._restored(weight, payloads)
        return WeightReport(
            name=entry.name,
            dtype=entry.dtype,
            shape=entry.shape,
            sku=plan.sku,
            guarantee=plan.precision_guarantee(),
            sqnr_db=ratio,
            non_finite=non_finite,
            bytes_before=entry.nbytes,
            bytes_after=stored.nbytes,
            digest=content_digest(parts, digests, {}),
            parts=digests,
            restored_sha256=restored_sha256,
            fidelity=alike,
            outputs=outputs,
            seconds=seconds,
        )

    def _compensated(self, weight: _Weight, values: Bytes, given: Mapping[str, Bytes]) -> Bytes:
        """The values that codes are made of: the weight's, or what GPTQ makes of them."""
        inputs, name = self.job.inputs, weight.stored.original.name
        if inputs is None or self.job.method is not Method.GPTQ:
            return values
        if not isinstance(weight.desc, planq.QuantizeDescriptor):
            raise AssertionError(f"GPTQ without scales: {weight.desc}")
        where = f"{self.job.source}: tensor {name!r}"
        if count_non_finite(values, weight.desc.input_dtype):
            raise CheckpointError(f"{where}: GPTQ expected finite values, found others")
        changed = compensated(weight.desc, values, given, inputs.hessian(name))
        if changed is None:
            raise CheckpointError(f"{where}: what GPTQ makes of it overflows its type")
        return changed

    def _restored(
        self, weight: _Weight, payloads: Mapping[str, Bytes]
    ) -> tuple[str | None, Fidelity | None, Fidelity | None]:
        """The digest of what is restored of a weight, and how like it and its outputs that is.

        Each is None unless wanted.
        """
        if weight.back is None:
            return None, None, None
        parts = weight.stored.inputs(payloads)
        restored = self.executor.run(weight.back, parts).outputs["output"]
        alike = outputs = None
        if self.job.evaluate:
            entry = weight.stored.original
            dtype, values = FLOATING[entry.dtype], self.reader.tensor(entry)
            alike = fidelity(dtype, values, restored)
            if self.job.inputs:
                gram = self.job.inputs.hessian(entry.name).gram
                outputs = output_fidelity(dtype, entry.shape, values, restored, gram)
        return _digest(restored) if self.job.verify else None, alike, outputs

    def _advance(self, entry: TensorEntry) -> None:
        self.progress(entry.name, entry.nbytes, self.total)


def _digest(data: Bytes) -> str:
    return hashlib.sha256(data.data).hexdigest()
