"""``planq quantize``: a checkpoint file in, a quantized checkpoint file out."""

# Typer reads the annotations of a command when the program runs, so none here is postponed.

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from planq.checkpoint import job as work
from planq.checkpoint.calibration import read_ranges
from planq.checkpoint.folders import quantize_folder
from planq.checkpoint.formats import Activations, Form, Format, QuantStorage, as_options
from planq.checkpoint.gguf import SUFFIX, quantize_gguf
from planq.checkpoint.layer_inputs import open_inputs
from planq.checkpoint.quality import Fidelity, total
from planq.checkpoint.schemes import Method, Scheme, Search, choose_blocks, choose_groups
from planq.cli.failure import CommandError
from planq.cli.patterns import compiled
from planq.cli.tables import (
    Words,
    finite_or_none,
    progress_bar,
    report_dict,
    show_report,
    tell,
)
from planq.cli.words import listed, printable
from planq.executors import open_device

# The formats that a folder can be quantized to.
CHOICES = "compressed-tensors, bitsandbytes or gguf"

_MEASURED = "n segments hold a NaN or an infinity, and dequantize to NaN"
_NESTED = "n blocks dequantize to NaN: all of the weight, if one holds a NaN or an infinity"
_BLOCKS = "n values are a NaN or an infinity, which spoil their blocks"
_CALIBRATED = (
    "n values are a NaN, whose integer code is that of 0, or an infinity, which is clamped"
)


def quantize(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="The safetensors file to read, or a model's folder."),
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The safetensors file, folder, or .gguf file to make."),
    ],
    scheme: Annotated[
        Scheme,
        typer.Option(
            help="How weights are quantized. nf4, fp4, int4-af4 and dynamic8 look codes up in a "
            "table and make files in the layout of bitsandbytes. It reads those of nf4 and fp4; it "
            "has no decoder for int4-af4, the 4-bit table AF4 (quant_type af4), and its files have "
            "no states of 8 bits. planq reads all. f32 and what follows it are of GGUF files, and "
            "mix types as llama-quantize does."
        ),
    ],
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Who else reads it: what compressed-tensors and bitsandbytes load, transformers "
            "does, from a folder. gguf, of a folder, is llama.cpp's, and need not be named if OUT "
            "ends with .gguf. Else a file is plain if left out; for a folder it has to be given.",
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="host|cuda:N", help="Where the plans run; the bits are the same.")
    ] = "host",
    include: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Quantize only the weights in whose name this is found."
        ),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="Leave out the weights in whose name this is found, too: other formats than plain "
            "leave out embeddings, output layers, norms and routers by themselves.",
        ),
    ] = None,
    default_excludes: Annotated[
        bool,
        typer.Option(
            "--default-excludes/--no-default-excludes",
            help="Whether a format leaves out what it does by itself. What its readers take no "
            "codes for, by the model's architecture, stays as it is either way.",
        ),
    ] = True,
    activations: Annotated[
        Activations,
        typer.Option(
            help="Whether compressed-tensors quantizes activations too: each token by its range."
        ),
    ] = Activations.NONE,
    quant_storage: Annotated[
        QuantStorage,
        typer.Option(help="The type as which bitsandbytes stores 4-bit codes."),
    ] = QuantStorage.UINT8,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="RANGES.json",
            help='Take the range of each weight from a file: {NAME: {"low": L, "high": H}} or '
            '{NAME: {"absmax": A}}, each one number or nested lists in the shape of the scales.',
        ),
    ] = None,
    block_size: Annotated[
        int | None,
        typer.Option(
            "--block-size",
            metavar="N",
            help="Elements of a block, which share a largest magnitude: 64 if left out, for "
            "dynamic8 4096. bitsandbytes reads powers of two from 32 to 4096. Only with nf4, fp4, "
            "int4-af4 and dynamic8.",
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size",
            metavar="N",
            help="Elements of a group, which share a scale: 32, 64 or 128, which is the default. "
            "Only with int4-group and uint4-group.",
        ),
    ] = None,
    search: Annotated[
        Search,
        typer.Option(
            help="How the scale of a group is found: of its range (none), or of the shrunk range "
            "that restores the weights with the least squared error (mse). Only with schemes that "
            "have groups."
        ),
    ] = Search.NONE,
    method: Annotated[
        Method,
        typer.Option(
            help="Which code an element of a group gets: the nearest one, or the one that GPTQ "
            "finds for the layer's inputs. Only with schemes that have groups."
        ),
    ] = Method.NEAREST,
    layer_inputs: Annotated[
        Path | None,
        typer.Option(
            "--layer-inputs",
            metavar="INPUTS.safetensors",
            help="Rows that each layer was fed, under the names of their weights: what --method "
            "gptq needs, and what --evaluate compares outputs on.",
        ),
    ] = None,
    nested: Annotated[
        bool,
        typer.Option(
            "--nested",
            help="Quantize the largest magnitudes too, in blocks of 256 of them, for dynamic8 in "
            "blocks of as many as the codes have. Only with nf4, fp4, int4-af4 and dynamic8.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Read the file again, dequantize it, compare every bit, and show the errors.",
        ),
    ] = False,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Dequantize every weight, and show its cosine and relative error in the table.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT if it exists; a folder, if planq made it.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Show what became of each weight, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> int:
    """Quantize the 2-D floating weights of a safetensors file or a model; copy the rest unchanged.

    Plain, each weight NAME becomes its codes under the same NAME, and NAME_scale (and
    NAME_zero_point where the scheme has one), or with a codebook NAME.absmax, NAME.quant_map and
    the rest of a state of bitsandbytes. A model's folder becomes a file that llama.cpp loads if OUT
    ends with .gguf. Otherwise a folder's config.json gets the entry quantization_config,
    and planq.json has the digests of all files. The output gets its name only when it is complete.
    The exit status is 1 if a weight holds a NaN or an infinity (its row is marked), 2 if nothing
    was written, and 3 if the output is complete, but its report could not be printed.
    """
    blocks = choose_blocks(scheme, block_size, nested=nested, calibrated=calibrate is not None)
    groups = choose_groups(scheme, group_size, search, method, calibrated=calibrate is not None)
    if form is None and target.suffix == SUFFIX:
        form = Format.GGUF
    if form is None and source.is_dir():
        raise CommandError(f"{source}: a folder; --format {CHOICES} says who reads what it becomes")
    chosen = Form(form or Format.PLAIN, activations, quant_storage)
    chosen.check(scheme, blocks, calibrated=calibrate is not None)
    if not default_excludes and chosen.format in (Format.PLAIN, Format.GGUF):
        name = chosen.format.value
        raise CommandError(f"--no-default-excludes: {name} leaves nothing out by itself")
    opened = nullcontext() if layer_inputs is None else open_inputs(layer_inputs)
    job = work.Job(
        source,
        target,
        scheme,
        include=compiled("--include", include),
        overwrite=force,
        ranges=None if calibrate is None else read_ranges(calibrate),
        verify=verify,
        blocks=blocks,
        groups=groups,
        evaluate=evaluate,
        exclude=compiled("--exclude", exclude),
        default_excludes=default_excludes,
        form=chosen,
    )
    run = quantize_folder if source.is_dir() else work.quantize_file
    if chosen.format is Format.GGUF:
        run = quantize_gguf
    with opened as inputs, progress_bar(source) as progress:
        report = run(replace(job, inputs=inputs), open_device(device), progress)
    values = as_dict(report) if as_json else None
    return tell(report, values, lambda console: show(report, console, table=table or evaluate))


def show(report: work.JobReport, console: Console, *, table: bool) -> None:
    """Prints a report.

    Args:
        report: What became of a file.
        console: Where to print.
        table: Whether to show every weight.
    """
    columns = {"SQNR dB": [_quality_words(tensor) for tensor in report.tensors]}
    if report.job.verify:
        columns["error"] = [f"{error:.3g}" for error in report.largest_errors.values()]
    evaluated = [tensor.fidelity for tensor in report.tensors if tensor.fidelity]
    if evaluated:
        columns["cosine"] = [f"{each.cosine:.6f}" for each in evaluated]
        columns["relative error"] = [f"{each.relative_error:.4f}" for each in evaluated]
    outputs = [tensor.outputs for tensor in report.tensors if tensor.outputs]
    if outputs:
        columns["cosine of outputs"] = [f"{each.cosine:.6f}" for each in outputs]
        columns["their error"] = [f"{each.relative_error:.4f}" for each in outputs]
    words = Words(
        columns,
        told=list(_told(report)),
        read="weights",
        marked=_marked_words(report.job),
        digests={
            "SHA-256 of the input": report.source_digest,
            "digest of the output": report.digest,
        },
    )
    show_report(report, words, console, table=table)


def as_dict(report: work.JobReport) -> dict[str, Any]:
    """Returns a report as JSON values; a number that is not finite is null."""
    ranges, blocks, groups = report.job.ranges, report.job.blocks, report.job.grouping
    inputs = report.job.inputs
    request = {
        "scheme": report.job.scheme.value,
        **as_options(report.job.form),
        "block_size": blocks.size if blocks else None,
        "group_size": groups.size if groups else None,
        "search": groups.search.value if groups else None,
        "method": groups.method.value if groups else None,
        "layer_inputs": inputs.sha256 if inputs else None,
        "nested_block_size": blocks.nested_size if blocks else None,
        "calibrated": ranges.sha256 if ranges else None,
        "verified": report.job.verify,
        "source_sha256": report.source_digest,
    }
    values = report_dict(report, request)
    for row, tensor in zip(values["tensors"], report.tensors, strict=True):
        row["digest"] = tensor.digest
        row["tensor_sha256"] = tensor.parts
        row["sqnr_db"] = finite_or_none(tensor.sqnr_db)
        counted = "values" if ranges or _is_gguf(report.job) else "segments"
        row[f"non_finite_{counted}"] = tensor.non_finite
        if report.job.verify:
            row["max_error"] = finite_or_none(report.largest_errors[tensor.name])
            row["restored_sha256"] = tensor.restored_sha256
        if tensor.fidelity:
            row |= _fidelity_dict(tensor.fidelity)
        if tensor.outputs:
            row["outputs"] = _fidelity_dict(tensor.outputs)
    evaluated = _evaluated(report)
    values["evaluated"] = _fidelity_dict(evaluated) if evaluated else None
    values["floating"] = [{"name": name, "why": why} for name, why in report.floating.items()]
    values["basis"] = report.basis
    values["carried"], values["left_out"] = list(report.carried), list(report.left_out)
    return values


def _evaluated(report: work.JobReport) -> Fidelity | None:
    """How like their originals all weights are together; None unless asked for."""
    parts = [tensor.fidelity for tensor in report.tensors if tensor.fidelity]
    return total(parts) if parts else None


def _fidelity_dict(found: Fidelity) -> dict[str, float | None]:
    return {
        "cosine": finite_or_none(found.cosine),
        "relative_error": finite_or_none(found.relative_error),
    }


def _is_gguf(job: work.Job) -> bool:
    return job.form.format is Format.GGUF


def _marked_words(job: work.Job) -> str:
    if _is_gguf(job):
        return _BLOCKS
    if job.ranges:
        return _CALIBRATED
    return _NESTED if job.blocks and job.blocks.nested_size else _MEASURED


def _told(report: work.JobReport) -> Iterator[str]:
    """The lines of a report about quality, floating weights and verification."""
    ratios = {
        tensor.name: tensor.sqnr_db for tensor in report.tensors if math.isfinite(tensor.sqnr_db)
    }
    if ratios:
        least = min(ratios, key=lambda name: ratios[name])
        yield f"SQNR {ratios[least]:.2f} to {max(ratios.values()):.2f} dB, least {printable(least)}"
    evaluated = _evaluated(report)
    if evaluated:
        yield (
            f"all weights as they will be read: cosine {evaluated.cosine:.6f}, "
            f"relative error {evaluated.relative_error:.4f}"
        )
    outputs = {tensor.name: tensor.outputs.cosine for tensor in report.tensors if tensor.outputs}
    if outputs:
        least = min(outputs, key=lambda name: outputs[name])
        ends = f"cosine {outputs[least]:.6f} to {max(outputs.values()):.6f}"
        yield f"outputs of layers on the given inputs: {ends}, least {printable(least)}"
    errors = {name: error for name, error in report.largest_errors.items() if math.isfinite(error)}
    if errors:
        largest = max(errors, key=lambda name: errors[name])
        yield f"largest error {errors[largest]:.3g}, in {printable(largest)}"
    yield from _floating(report)
    if report.job.verify:
        yield "verified: the file as read back dequantizes to the same bits"


def _floating(report: work.JobReport) -> Iterator[str]:
    """The lines about weights that stayed floating, by reason, and about other files of weights."""
    if report.basis:
        yield f"kinds of weights by {printable(report.basis)}"
    reasons: dict[str, list[str]] = {}
    for name, why in report.floating.items():
        reasons.setdefault(why, []).append(printable(name))
    for why, names in reasons.items():
        yield f"left floating: {listed(names)}: {printable(why)}"
    if report.carried:
        yield f"copied as they are: {listed(list(map(printable, report.carried)))}"
    if report.left_out:
        what = (
            "tensors that llama.cpp does not read" if _is_gguf(report.job) else "files with weights"
        )
        yield f"{what}, left out: {listed(list(map(printable, report.left_out)))}"


def _quality_words(tensor: work.WeightReport) -> str:
    if tensor.non_finite:
        return f"NOT FINITE ({tensor.non_finite})"
    if math.isinf(tensor.sqnr_db):
        return "exact"
    return "no signal" if math.isnan(tensor.sqnr_db) else f"{tensor.sqnr_db:.2f}"
