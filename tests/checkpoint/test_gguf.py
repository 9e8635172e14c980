"""GGUF files: the bytes of the gguf package's own quantizer, and its own dequantization back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
import torch
from safetensors import safe_open

from cli.commands import refuse, report
from cli.files import checkpoint, load, weight
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]
SCHEMES = ["q8_0", "q4_0"]


def model() -> dict[str, np.ndarray]:
    """Weights of each type, one with a block of zeros, and what is no weight."""
    first = weight(48, 96)
    first[3] = 0
    return {
        "a.weight": first,
        "b.weight": weight(20, 64, "float16"),
        "c.weight": weight(7, 32, "bfloat16"),
        "c.bias": weight(1, 7).reshape(7),
        "d.scale": np.float32(0.25).reshape(()),
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_is_what_the_package_makes(tmp_path: Path, capsys: Capture, scheme: str) -> None:
    source, target = checkpoint(tmp_path / "in.st", model()), tmp_path / "out.gguf"
    told = report(capsys, "quantize", source, target, "--scheme", scheme, "--format", "gguf")
    assert [row["name"] for row in told["tensors"]] == ["a.weight", "b.weight", "c.weight"]
    reader = gguf.GGUFReader(target)
    assert reader.fields["planq.digest"].contents() == told["digest"]
    kind = gguf.GGMLQuantizationType[scheme.upper()]
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    for name, values in model().items():
        found = tensors[name]
        assert tuple(reversed(found.shape.tolist())) == (values.shape or (1,))
        wanted = values.astype(np.float32)
        if not name.endswith("weight"):
            assert found.data.tobytes() == wanted.tobytes()
            continue
        assert found.tensor_type == kind
        assert found.data.tobytes() == gguf.quants.quantize(wanted, kind).tobytes(), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_of_the_package_is_restored_as_it_does(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    kind = gguf.GGMLQuantizationType[scheme.upper()]
    source, target = tmp_path / "in.gguf", tmp_path / "back.st"
    writer = gguf.GGUFWriter(source, "llama")
    blocks = gguf.quants.quantize(model()["a.weight"], kind)
    writer.add_tensor("a.weight", blocks, raw_dtype=kind)
    writer.add_tensor("c.bias", model()["c.bias"].astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    told = report(capsys, "dequantize", source, target)
    assert (told["verified"], told["damaged"]) == (False, False)
    found = load(target).tensors
    assert found["a.weight"].tobytes() == gguf.quants.dequantize(blocks, kind).tobytes()
    assert found["c.bias"].tobytes() == model()["c.bias"].astype(np.float32).tobytes()


# Of each kind of layout some; tests/ops/gguf has the values of all.
OTHER_BLOCKS = ("Q4_1", "Q5_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4", "TQ1_0")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_that_planq_does_not_write_are_restored(
    tmp_path: Path, capsys: Capture, dtype: str
) -> None:
    """As the package does, then rounded; low bytes have no infinite scale among them."""
    source, target = tmp_path / "in.gguf", tmp_path / "back.st"
    writer = gguf.GGUFWriter(source, "llama")
    wanted = {}
    for seed, name in enumerate(OTHER_BLOCKS):
        kind = gguf.GGMLQuantizationType[name]
        _, nbytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.random.default_rng(seed).integers(0, 0x38, (5, 3 * nbytes), dtype=np.uint8)
        writer.add_tensor(name, blocks, raw_dtype=kind)
        values = gguf.quants.dequantize(blocks, kind)
        wanted[name] = torch.from_numpy(values).to(getattr(torch, dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    told = report(capsys, "dequantize", source, target, "--dtype", dtype)
    assert {t["sku"].partition("/")[0] for t in told["tensors"]} == {"gguf_dequantize"}
    with safe_open(target, "pt") as restored:
        assert set(restored.keys()) == wanted.keys()
        for name, values in wanted.items():
            assert torch.equal(restored.get_tensor(name), values), name


def test_one_flipped_bit_is_found(tmp_path: Path, capsys: Capture) -> None:
    source, target = checkpoint(tmp_path / "in.st", model()), tmp_path / "out.gguf"
    options = ("--scheme", "q4_0", "--format", "gguf", "--exclude", "^b")
    report(capsys, "quantize", source, target, *options)
    assert report(capsys, "verify", source, target)["equal"]
    sound = target.read_bytes()
    for tensor in gguf.GGUFReader(target).tensors:
        content = bytearray(sound)
        content[int(tensor.data_offset)] ^= 16
        target.write_bytes(content)
        assert main(["verify", str(source), str(target), "--json"]) == 1
        files = json.loads(capsys.readouterr().out)["files"]
        assert files[0]["differing"] == {tensor.name: "1 byte differs"}
    assert "not a valid GGUF file" in refuse(
        capsys, "verify", source, checkpoint(tmp_path / "no.gguf", {})
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_file_of_planqs_is_compared_with_its_digest(
    tmp_path: Path, capsys: Capture, scheme: str
) -> None:
    """Every tensor, and what is told of it: one bit is refused, or restored with a warning."""
    source, target = checkpoint(tmp_path / "in.st", model()), tmp_path / "out.gguf"
    report(capsys, "quantize", source, target, "--scheme", scheme, "--format", "gguf")
    back = tmp_path / "back.st"
    told = report(capsys, "dequantize", target, back)
    assert (told["verified"], told["damaged"]) == (True, False)
    back.unlink()
    sound = target.read_bytes()
    reader = gguf.GGUFReader(target)
    places = {tensor.name: int(tensor.data_offset) for tensor in reader.tensors}
    options = b'"format": "gguf"'
    places["options"] = sound.index(options) + len(options) - 2
    for name, place in places.items():
        content = bytearray(sound)
        content[place] ^= 1
        target.write_bytes(content)
        line = refuse(capsys, "dequantize", target, back)
        assert "content: expected SHA-256" in line, name
        assert not back.exists(), name
        assert main(["dequantize", str(target), str(back), "--json", "--force"]) == 1
        told = json.loads(capsys.readouterr().out)
        assert (told["verified"], told["damaged"]) == (False, True), name
        back.unlink()
    target.write_bytes(sound.replace(b"planq.digest", b"planq.digesX"))
    assert "metadata planq.digest is missing or damaged" in refuse(
        capsys, "dequantize", target, back
    )


def test_what_gguf_cannot_hold_is_refused(tmp_path: Path, capsys: Capture) -> None:
    """Nothing is written, and an output that stands there stays."""
    source, target = tmp_path / "in.st", tmp_path / "out.gguf"
    options = ("--scheme", "q8_0", "--format", "gguf")
    checkpoint(source, {"a.weight": weight(4, 48)})
    line = refuse(capsys, "quantize", source, target, *options)
    assert "a multiple of 32, got F32 of width 48; --exclude it" in line
    checkpoint(source, {"a.weight": weight(4, 64)})
    line = refuse(capsys, "quantize", source, target, "--scheme", "nf4", "--format", "gguf")
    assert "--scheme: gguf has q8_0, q4_0, got nf4" in line
    assert "plain has int8-channel" in refuse(capsys, "quantize", source, target, *options[:2])
    target.write_text("precious")
    assert "exists; --force replaces it" in refuse(capsys, "quantize", source, target, *options)
    assert target.read_text() == "precious"
    assert "not a valid GGUF file" in refuse(capsys, "dequantize", target, tmp_path / "back.st")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.st", "out.gguf"]
    assert main(["quantize", str(source), str(target), *options, "--force"]) == 0


def test_what_is_not_done_is_not_promised(tmp_path: Path, capsys: Capture) -> None:
    """No file is said to be verified, and no ranges are accepted, without any use of them."""
    source, target = checkpoint(tmp_path / "in.st", model()), tmp_path / "out.gguf"
    options = ("--scheme", "q8_0", "--format", "gguf")
    line = refuse(capsys, "quantize", source, target, *options, "--verify")
    assert "--verify: not of a GGUF file" in line
    assert "planq verify" in line
    assert not target.exists()
    report(capsys, "quantize", source, target, *options)
    ranges = tmp_path / "ranges.json"
    ranges.write_text("{}")
    line = refuse(capsys, "verify", source, target, "--calibrate", ranges)
    assert "--calibrate: a GGUF file has no given ranges" in line
