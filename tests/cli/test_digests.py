"""Digests cover all that a file holds, and `planq dequantize` refuses what they do not fit."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import safetensors.torch
import torch

from cli.commands import refuse, report
from cli.files import Array, Loaded, checkpoint, load, weight
from cli.sealing import ALL, EACH, content, sealed, sha256
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.job import Job, quantize_file
from planq.checkpoint.restore import RestoreJob, restore_file
from planq.checkpoint.schemes import Scheme, choose_blocks
from planq.cli import main
from planq.executors import HostExecutor
from support.bitsandbytes_host import bnb

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

SOURCE = "planq.source_sha256"
OWN = {"format": "pt", "note": 'ünïcode, "quotes" and \\'}
SCALES = ["int8-channel", "int8-tensor", "uint8-channel", "int4-group128", "fp8-channel"]
CODEBOOKS = ["nf4", "fp4", "int4-af4", "dynamic8"]
LAYOUTS = [*SCALES, *CODEBOOKS, *(f"{scheme} --nested" for scheme in CODEBOOKS)]
over_layouts = pytest.mark.parametrize("layout", LAYOUTS)


def ignore(name: str, nbytes: int, total: int) -> None:
    """Shows no progress."""


def model() -> dict[str, Array]:
    """Two weights, one of them under a name that JSON escapes, and what is no weight."""
    return {
        "a.wéight": weight(5, 300),
        "b.weight": weight(3, 129, "bfloat16"),
        "bias": np.arange(3, dtype=np.float32),
        "empty": np.zeros((0, 2), np.int8),
    }


def quantized(folder: Path, capsys: Capture, layout: str, *options: str) -> dict[str, Any]:
    """The report of a file ``q.st``, made of ``in.st``, which is left out."""
    source = checkpoint(folder / "in.st", model(), OWN)
    told = report(
        capsys, "quantize", source, folder / "q.st", "--scheme", *layout.split(), *options
    )
    told["source"] = source.read_bytes()
    source.unlink()
    return told


@over_layouts
def test_digests_are_those_of_the_documented_text(
    tmp_path: Path, capsys: Capture, layout: str
) -> None:
    told = quantized(tmp_path, capsys, layout)
    made = load(tmp_path / "q.st")
    assert told["source_sha256"] == hashlib.sha256(told["source"]).hexdigest()
    assert made.metadata[SOURCE] == told["source_sha256"]
    each = json.loads(made.metadata[EACH])
    assert each == {name: sha256(values) for name, values in made.tensors.items()}
    assert told["digest"] == made.metadata[ALL] == content(made.tensors, made.metadata)
    parts: dict[str, str] = {}
    for row in told["tensors"]:
        own = {name: made.tensors[name] for name in row["tensor_sha256"]}
        assert row["tensor_sha256"] == {name: each[name] for name in own}
        assert row["digest"] == content(own, {})
        parts |= row["tensor_sha256"]
    assert set(parts) == set(made.tensors) - {"bias", "empty"}


@over_layouts
def test_the_report_of_the_way_back_covers_input_and_output(
    tmp_path: Path, capsys: Capture, layout: str
) -> None:
    stored = quantized(tmp_path, capsys, layout)["digest"]
    told = report(capsys, "dequantize", tmp_path / "q.st", tmp_path / "back.st")
    back = load(tmp_path / "back.st")
    assert (told["verified"], told["input_digest"]) == (True, stored)
    assert {row["name"]: row["sha256"] for row in told["tensors"]} == {
        name: sha256(back.tensors[name]) for name in ("a.wéight", "b.weight")
    }
    strings = {**back.metadata, "planq.input_digest": stored}
    assert told["digest"] == content(back.tensors, strings)
    assert back.metadata == OWN


def test_nested_statistics_have_other_digests(tmp_path: Path, capsys: Capture) -> None:
    layouts = ("nf4", "nf4 --nested")
    plain, nested = (quantized(tmp_path, capsys, layout, "--force") for layout in layouts)
    assert plain["digest"] != nested["digest"]
    assert plain["source_sha256"] == nested["source_sha256"]
    for one, other in zip(plain["tensors"], nested["tensors"], strict=True):
        assert one["digest"] != other["digest"]
        codes = one["name"]
        assert one["tensor_sha256"][codes] == other["tensor_sha256"][codes]


@pytest.mark.parametrize("change", ["metadata", "bias", "name"])
def test_another_source_has_another_digest_though_its_weights_are_the_same(
    tmp_path: Path, capsys: Capture, change: str
) -> None:
    tensors, metadata = {"w": weight(4, 6), "bias": np.zeros(2, np.float32)}, {"format": "pt"}
    told = []
    for changed in (False, True):
        if changed and change == "metadata":
            metadata = {"format": "np"}
        elif changed:
            old = tensors.pop("bias")
            tensors |= {"bios": old} if change == "name" else {"bias": old + 1}
        source = checkpoint(tmp_path / "in.st", tensors, metadata)
        arguments = (source, tmp_path / "q.st", "--scheme", "nf4", "--force")
        told.append(report(capsys, "quantize", *arguments))
    rows = [answer["tensors"][0] for answer in told]
    assert rows[0]["digest"] == rows[1]["digest"]
    assert told[0]["source_sha256"] != told[1]["source_sha256"]
    assert told[0]["digest"] != told[1]["digest"]


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Turns one bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def refuse_restoring(path: Path, capsys: Capture) -> str:
    """What is said of a file that is refused, without a trace of an output."""
    there = sorted(path.parent.iterdir())
    line = refuse(capsys, "dequantize", path, path.with_name("back.st"))
    assert line.startswith(f"planq: error: {path}: ")
    assert sorted(path.parent.iterdir()) == there
    return line


def why_not(path: Path) -> str:
    """What the work of the command says of a file that it refuses, without a trace of an output.

    The command line around it takes a hundred times as long.
    """
    there = sorted(path.parent.iterdir())
    with pytest.raises(CheckpointError) as refused:
        restore_file(RestoreJob(path, path.with_name("back.st")), HostExecutor(), ignore)
    assert sorted(path.parent.iterdir()) == there
    return str(refused.value)


@over_layouts
def test_a_bit_that_is_turned_in_any_tensor_is_refused(
    tmp_path: Path, capsys: Capture, layout: str
) -> None:
    quantized(tmp_path, capsys, layout)
    target = tmp_path / "q.st"
    made = load(target)
    kinds = len([name for name in made.tensors if name.startswith("b.weight")])
    assert kinds >= (3 if layout == "uint8-channel" else 2 if layout in SCALES else 4)
    for name, values in made.tensors.items():
        for at in {0, values.nbytes // 2, values.nbytes - 1} if values.nbytes else ():
            flip(target, made.offsets[name] + at, bit=5)
            found = load(target).tensors[name]
            said = f"tensor {name!r}: expected bytes of SHA-256 {sha256(values)[:12]}..., found "
            assert why_not(target) == f"{target}: {said}{sha256(found)[:12]}..."
            flip(target, made.offsets[name] + at, bit=5)
    report(capsys, "dequantize", target, tmp_path / "back.st")


@pytest.mark.parametrize("scheme", ["uint8-channel", "nf4"])
def test_a_bit_that_is_turned_in_any_byte_of_the_header_is_refused(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    tensors = {"w": weight(2, 4), "bias": np.ones(1, np.int8)}
    source = checkpoint(tmp_path / "in.st", tensors, {"format": "pt"})
    target = tmp_path / "q.st"
    report(capsys, "quantize", source, target, "--scheme", scheme)
    whole = target.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    said = set()
    for at in range(header):
        for bit in (at % 8, (at + 5) % 8):
            flip(target, at, bit)
            said.add(why_not(target).removeprefix(f"{target}: ").split(":")[0])
            flip(target, at, bit)
    assert {"header", "not a valid safetensors file"} <= said
    assert target.read_bytes() == whole
    report(capsys, "dequantize", target, tmp_path / "back.st")


def test_the_command_line_refuses_in_one_line(tmp_path: Path, capsys: Capture) -> None:
    quantized(tmp_path, capsys, "uint8-channel")
    made = load(tmp_path / "q.st")
    for name in ("b.weight", "b.weight_scale", "b.weight_zero_point", "bias"):
        flip(tmp_path / "q.st", made.offsets[name])
        assert f"tensor {name!r}: expected bytes of" in refuse_restoring(tmp_path / "q.st", capsys)
        flip(tmp_path / "q.st", made.offsets[name])


def swapped(made: Loaded) -> dict[str, Array]:
    """Two tensors of one type and shape under each other's names."""
    first, second = made.tensors["v_scale"], made.tensors["w_scale"]
    return {"v_scale": second, "w_scale": first}


CHANGES: dict[str, Any] = {
    "exchanged": swapped,
    "another shape": lambda made: {"bias": made.tensors["bias"].reshape(1, 2)},
    "another type": lambda made: {"bias": made.tensors["bias"].view(np.int32)},
    "another tensor": lambda made: {"new": np.zeros(1, np.uint8)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_bytes_that_are_sound_but_mean_something_else_are_refused(
    tmp_path: Path, capsys: Capture, change: str
) -> None:
    tensors = {"v": weight(4, 6, seed=1), "w": weight(4, 6), "bias": np.ones(2, np.float32)}
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "q.st"
    report(capsys, "quantize", source, target, "--scheme", "int8-channel")
    made = load(target)
    checkpoint(target, {**made.tensors, **CHANGES[change](made)}, made.metadata)
    line = refuse_restoring(target, capsys)
    said = {"exchanged": "tensor 'v_scale': ", "another tensor": "metadata planq.tensor_sha256 is "}
    assert said.get(change, "header: expected SHA-256 ") in line
    checkpoint(target, made.tensors, made.metadata)
    report(capsys, "dequantize", target, tmp_path / "back.st")


DIGESTS: dict[str, tuple[str, str | None, str]] = {
    "none": (ALL, None, "metadata planq.digest is missing or damaged"),
    "none of the tensors": (EACH, None, f"metadata {EACH} is missing or damaged"),
    "no JSON": (EACH, "{", f"metadata {EACH} is missing or damaged"),
    "too deep": (EACH, "[" * 100_000, f"metadata {EACH} is missing or damaged"),
    "a list": (EACH, '["w"]', f"metadata {EACH} is missing or damaged"),
    "one too few": (EACH, f'{{"w": "{"0" * 64}"}}', f"metadata {EACH} is missing or damaged"),
    "no text": (EACH, '{"w": 0, "w_scale": 0}', f"metadata {EACH} is missing or damaged"),
    "no digest": (ALL, "\x1b[31m", "metadata planq.digest is missing or damaged"),
    "another": (ALL, "0" * 64, "header: expected SHA-256 000000000000..., found "),
    "another source": (SOURCE, "0" * 64, "header: expected SHA-256 "),
}


@pytest.mark.parametrize("damage", DIGESTS)
@pytest.mark.parametrize("scheme", ["int8-channel", "nf4"])
def test_digests_that_are_missing_or_damaged_are_refused(
    tmp_path: Path, capsys: Capture, scheme: str, damage: str
) -> None:
    source, target = checkpoint(tmp_path / "in.st", {"w": weight(2, 4)}), tmp_path / "q.st"
    report(capsys, "quantize", source, target, "--scheme", scheme)
    made = load(target)
    key, value, said = DIGESTS[damage]
    metadata = {**made.metadata, key: value}
    kept = {name: text for name, text in metadata.items() if text is not None}
    checkpoint(target, made.tensors, kept)
    assert f"{target}: {said}" in refuse_restoring(target, capsys)


def test_an_output_that_exists_outlives_a_refusal(tmp_path: Path, capsys: Capture) -> None:
    quantized(tmp_path, capsys, "nf4")
    (tmp_path / "q.st").write_bytes((tmp_path / "q.st").read_bytes()[:-1])
    (tmp_path / "back.st").write_text("precious")
    refuse(capsys, "dequantize", tmp_path / "q.st", tmp_path / "back.st", "--force")
    assert (tmp_path / "back.st").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back.st", "q.st"]


def test_a_damaged_file_is_restored_where_that_is_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    """By --force, with a warning, a line of the report, and a status of its own."""
    quantized(tmp_path, capsys, "int8-channel")
    made, source, target = load(tmp_path / "q.st"), tmp_path / "q.st", tmp_path / "back.st"
    flip(source, made.offsets["bias"])
    assert "tensor 'bias': expected bytes of" in refuse(capsys, "dequantize", source, target)
    assert not target.exists()
    assert main(["dequantize", str(source), str(target), "--force"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"planq: warning: {source} is damaged")
    assert "DAMAGED: the input has not the digests" in printed.out
    assert load(target).tensors["bias"].tobytes() != made.tensors["bias"].tobytes()
    assert main(["dequantize", str(source), str(target), "--force", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verified"], told["damaged"]) == (False, True)


def test_a_file_of_bitsandbytes_has_no_digests_and_the_report_says_so(
    tmp_path: Path, capsys: Capture
) -> None:
    codes, state = bnb.quantize_4bit(torch.ones(4, 64), quant_type="nf4")
    parts = {f"w.{key}": values for key, values in state.as_dict(packed=True).items()}
    source, target = tmp_path / "theirs.st", tmp_path / "back.st"
    safetensors.torch.save_file({"w": codes, **parts, "bias": torch.ones(3)}, source)
    told = report(capsys, "dequantize", source, target)
    assert told["verified"] is False
    found = load(source)
    assert told["input_digest"] == content(found.tensors, found.metadata)
    assert main(["dequantize", str(source), str(target), "--force"]) == 0
    assert "not compared: the input has no digests" in capsys.readouterr().out
    quantized(tmp_path, capsys, "nf4")
    assert main(["dequantize", str(tmp_path / "q.st"), str(target), "--force"]) == 0
    assert "every tensor of the input has the digest that its" in capsys.readouterr().out


def test_a_file_that_was_written_again_by_another_library_is_still_whole(
    tmp_path: Path, capsys: Capture
) -> None:
    """Order and place of the tensors are not part of the digests."""
    quantized(tmp_path, capsys, "nf4 --nested")
    target, again = tmp_path / "q.st", tmp_path / "again.st"
    tensors = safetensors.torch.load_file(target)
    backwards = dict(reversed(load(target).metadata.items()))
    safetensors.torch.save_file(dict(reversed(tensors.items())), again, backwards)
    assert again.read_bytes() != target.read_bytes()
    told = [
        report(capsys, "dequantize", path, tmp_path / f"back-{path.name}")
        for path in (target, again)
    ]
    assert told[0]["digest"] == told[1]["digest"]
    made = [load(tmp_path / f"back-{path.name}").tensors for path in (target, again)]
    assert {n: v.tobytes() for n, v in made[0].items()} == {
        n: v.tobytes() for n, v in made[1].items()
    }


def test_the_helper_of_these_tests_seals_as_planq_does(tmp_path: Path, capsys: Capture) -> None:
    quantized(tmp_path, capsys, "fp8-channel")
    made = load(tmp_path / "q.st")
    assert sealed(made.tensors, made.metadata)[ALL] == made.metadata[ALL]


@pytest.mark.parametrize("scheme", [Scheme.UINT8_CHANNEL, Scheme.NF4])
def test_files_and_digests_do_not_depend_on_threads_or_time(tmp_path: Path, scheme: Scheme) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(513, 700), "v": weight(64, 4096)})
    blocks = choose_blocks(scheme, None, nested=scheme is Scheme.NF4, calibrated=False)
    outputs, digests = set(), set()
    for threads in (1, 2, 5):
        job = Job(source, tmp_path / f"{threads}.st", scheme, blocks=blocks, verify=threads == 2)
        digests.add(quantize_file(job, HostExecutor(threads), ignore).digest)
        outputs.add(job.target.read_bytes())
    assert (len(outputs), len(digests)) == (1, 1)
