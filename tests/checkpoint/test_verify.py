"""`planq verify` finds one flipped bit, in any tensor and in any file of a folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import planq
from cli.commands import refuse, report
from cli.files import checkpoint, load, weight
from planq.cli import main

Capture = pytest.CaptureFixture[str]

FORMATS = [
    ("compressed-tensors", "int8-channel"),
    ("compressed-tensors", "fp8-block128"),
    ("compressed-tensors", "int4-group128"),
    ("compressed-tensors", "uint4-group"),
    ("bitsandbytes", "nf4"),
    ("bitsandbytes", "int8-channel"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model in two files, with an index."""
    made = tmp_path / "model"
    made.mkdir()
    first = {"embed.weight": weight(20, 128, "bfloat16"), "a.q_proj.weight": weight(64, 128)}
    second = {"b.q_proj.weight": weight(40, 256, "float16"), "b.norm.weight": weight(1, 9)}
    index = {}
    for number, tensors in enumerate((first, second), 1):
        name = f"model-0000{number}-of-00002.safetensors"
        checkpoint(made / name, tensors, {"format": "pt"})
        index |= dict.fromkeys(tensors, name)
    (made / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (made / "config.json").write_text('{"model_type": "bert"}')
    (made / "tokenizer.json").write_text("{}")
    (made / "pytorch_model.bin").write_bytes(b"others")
    return made


def quantize(folder: Path, *options: str) -> Path:
    """Quantizes the folder into another one beside it."""
    target = folder.with_name("out")
    assert main(["quantize", str(folder), str(target), *options]) == 0
    return target


def flip(path: Path, at: int) -> None:
    """Turns one bit of a file."""
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize(("form", "scheme"), FORMATS)
def test_a_folder_is_what_its_source_becomes(
    folder: Path, capsys: Capture, form: str, scheme: str
) -> None:
    """The index names every tensor, other weights stay behind, and the config is complete."""
    target = quantize(folder, "--format", form, "--scheme", scheme)
    capsys.readouterr()
    config = json.loads((target / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert config["quantization_config"]["quant_method"] == form
    key = "ignore" if form == "compressed-tensors" else "llm_int8_skip_modules"
    left = config["quantization_config"][key]
    assert {"b.norm", "embed"} == {name for name in left if name in ("b.norm", "embed", "a.q_proj")}
    index = json.loads((target / "model.safetensors.index.json").read_text())["weight_map"]
    for path in target.glob("*.safetensors"):
        assert {index[name] for name in load(path).tensors} == {path.name}
    assert not (target / "pytorch_model.bin").exists()
    assert (target / "tokenizer.json").read_text() == "{}"
    build = planq.build_info()
    assert report(capsys, "verify", folder, target) == {
        "equal": True,
        "same_build": True,
        "made_by": [{"version": build.version, "build_id": build.build_id}],
        "files": [{"path": str(path), "differing": {}} for path in [*shards(target), target]],
    }


def shards(target: Path) -> list[Path]:
    """The safetensors files of a folder, in order."""
    return sorted(target.glob("*.safetensors"))


def differing(capsys: Capture, source: Path, target: Path) -> dict[str, Any]:
    """What `planq verify` finds, by file and tensor."""
    assert main(["verify", str(source), str(target), "--json"]) == 1
    files = json.loads(capsys.readouterr().out)["files"]
    return {Path(file["path"]).name: file["differing"] for file in files if file["differing"]}


@pytest.mark.parametrize(("form", "scheme"), FORMATS)
def test_one_flipped_bit_in_any_tensor_is_found(
    folder: Path, capsys: Capture, form: str, scheme: str
) -> None:
    target = quantize(folder, "--format", form, "--scheme", scheme)
    for path in shards(target):
        size = int.from_bytes(path.read_bytes()[:8], "little") + 8
        header = json.loads(path.read_bytes()[8:size])
        del header["__metadata__"]
        for name, entry in header.items():
            at = size + entry["data_offsets"][0]
            flip(path, at)
            capsys.readouterr()
            found = differing(capsys, folder, target)
            assert found[path.name] == {name: "1 byte differs"}
            assert found["out"] == {"planq.json": "other digests than those of the files"}
            flip(path, at)
    assert main(["verify", str(folder), str(target)]) == 0
    told = capsys.readouterr().out
    assert told == "2 weights quantized again: every byte is equal\n"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
def test_other_files_of_a_folder_are_compared_too(folder: Path, capsys: Capture, name: str) -> None:
    target = quantize(folder, "--format", "bitsandbytes", "--scheme", "nf4")
    (target / name).write_text((target / name).read_text() + " ")
    capsys.readouterr()
    assert differing(capsys, folder, target)["out"][name] == "other bytes"
    (target / name).unlink()
    (target / "more").write_text("")
    found = differing(capsys, folder, target)["out"]
    assert (found[name], found["more"]) == ("missing", "should not be there")


def test_a_file_is_compared_with_its_options(tmp_path: Path, capsys: Capture) -> None:
    """All of them stand in its metadata; a source that changed is found by its digest."""
    source, target = tmp_path / "in.st", tmp_path / "out.st"
    checkpoint(source, {"a.weight": weight(32, 64), "b.weight": weight(16, 64)})
    options = ["--scheme", "nf4", "--nested", "--block-size", "128", "--include", "^b"]
    options += ["--exclude", "^$"]
    assert main(["quantize", str(source), str(target), *options]) == 0
    capsys.readouterr()
    assert report(capsys, "verify", source, target)["equal"]
    checkpoint(source, {"a.weight": weight(32, 64) + np.float32(1), "b.weight": weight(16, 64)})
    found = differing(capsys, source, target)["out.st"]
    assert found.pop("header").startswith("other metadata: planq.digest, planq.source_sha256")
    assert list(found) == ["a.weight"]


@pytest.mark.parametrize("option", ["--include", "--exclude"])
def test_an_empty_pattern_is_one(tmp_path: Path, capsys: Capture, option: str) -> None:
    """It is found in every name."""
    source, target = tmp_path / "in.st", tmp_path / "out.st"
    checkpoint(source, {"a.weight": weight(32, 64)})
    arguments = ("quantize", source, target, "--scheme", "nf4", option, "")
    if option == "--exclude":
        assert "nothing to quantize" in refuse(capsys, *arguments)
        return
    report(capsys, *arguments)
    assert report(capsys, "verify", source, target)["equal"]


def test_a_file_alone_tells_what_its_config_has_to_say(tmp_path: Path, capsys: Capture) -> None:
    source, target = tmp_path / "in.st", tmp_path / "out.st"
    checkpoint(source, {"a.weight": weight(32, 64, "float16"), "embed.weight": weight(16, 64)})
    told = report(capsys, "quantize", source, target, "--scheme", "nf4", "--format", "bitsandbytes")
    assert [row["name"] for row in told["floating"]] == ["embed.weight"]
    config = json.loads(load(target).metadata["planq.quantization_config"])
    assert config["llm_int8_skip_modules"] == ["embed"]
    assert config["bnb_4bit_compute_dtype"] == "float16"
    assert report(capsys, "verify", source, target)["equal"]


def test_what_cannot_be_verified_is_refused(folder: Path, capsys: Capture) -> None:
    target = quantize(folder, "--format", "bitsandbytes", "--scheme", "nf4")
    capsys.readouterr()
    plain = shards(folder)[0]
    assert "metadata planq.options is missing" in refuse(capsys, "verify", plain, plain)
    (target / "planq.json").unlink()
    assert "planq.json: No such file" in refuse(capsys, "verify", folder, target)


def test_folders_are_replaced_only_where_planq_made_them(folder: Path, capsys: Capture) -> None:
    options = ("--format", "bitsandbytes", "--scheme", "nf4")
    target = quantize(folder, *options)
    capsys.readouterr()
    again = ("quantize", folder, target, *options)
    assert "exists; --force replaces it" in refuse(capsys, *again)
    assert main([*map(str, again), "--force"]) == 0
    (target / "planq.json").unlink()
    capsys.readouterr()
    assert "so planq did not make it" in refuse(capsys, *again, "--force")
    shutil.rmtree(target)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


REFUSED = [
    ("--scheme nf4", "a folder; --format compressed-tensors, bitsandbytes or gguf"),
    ("--scheme nf4 --format plain", "--format: a folder needs one of compressed-tensors, bitsandb"),
    ("--scheme nf4 --format compressed-tensors", "--scheme: compressed-tensors has int8-channel"),
    ("--scheme dynamic8 --format bitsandbytes", "--scheme: bitsandbytes has int8-channel"),
    ("--scheme nf4 --format bitsandbytes --block-size 48", "bitsandbytes reads blocks of 32, 64"),
    ("--scheme nf4 --format bitsandbytes --activations token", "--activations: only with"),
    ("--scheme int8-channel --format bitsandbytes --quant-storage float16", "--quant-storage:"),
    ("--scheme nf4 --format bitsandbytes --include ^embed", "no weight to quantize"),
]


@pytest.mark.parametrize(("options", "said"), REFUSED)
def test_what_a_reader_does_not_know_is_refused(
    folder: Path, capsys: Capture, options: str, said: str
) -> None:
    """Nothing is written, and nothing is left behind."""
    line = refuse(capsys, "quantize", folder, folder.with_name("out"), *options.split())
    assert said in line
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_widths_that_are_no_whole_groups_are_refused(folder: Path, capsys: Capture) -> None:
    options = ("--scheme", "int4-group128", "--format", "compressed-tensors", "--exclude", "q_proj")
    target = folder.with_name("out")
    assert "no weight to quantize" in refuse(capsys, "quantize", folder, target, *options)
    line = refuse(capsys, "quantize", folder, target, *options, "--no-default-excludes")
    assert "tensor 'b.norm.weight': compressed-tensors: a width of 9 is no multiple of 128" in line


@pytest.mark.parametrize(("form", "scheme"), FORMATS)
def test_a_file_of_any_format_is_restored(
    folder: Path, tmp_path: Path, capsys: Capture, form: str, scheme: str
) -> None:
    """To what its codes stand for, within half a step of them."""
    target = quantize(folder, "--format", form, "--scheme", scheme)
    back = tmp_path / "back.safetensors"
    for path in shards(target):
        assert main(["dequantize", str(path), str(back), "--force"]) == 0
        wanted = load(folder / path.name).tensors
        found = load(back).tensors
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            assert found[name].dtype == values.dtype
            error = np.abs(found[name].astype(np.float64) - values.astype(np.float64)).max()
            assert error <= 0.16 * np.abs(values.astype(np.float64)).max()
            assert ("proj" in name) == (error > 0)
    capsys.readouterr()


def test_a_folder_inside_its_source_is_refused(folder: Path, capsys: Capture) -> None:
    options = ("--scheme", "nf4", "--format", "bitsandbytes")
    before = sorted(folder.iterdir())
    for inside in ("out", "a/b"):
        assert "inside the input" in refuse(capsys, "quantize", folder, folder / inside, *options)
    assert "the output is the input" in refuse(capsys, "quantize", folder, folder, *options)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(("form", "scheme"), FORMATS)
def test_a_folder_is_read_back_before_it_gets_its_name(
    folder: Path, capsys: Capture, form: str, scheme: str
) -> None:
    """By --verify, weight for weight."""
    target = folder.with_name("out")
    options = ("--format", form, "--scheme", scheme, "--verify")
    told = report(capsys, "quantize", folder, target, *options)
    assert [row["name"] for row in told["tensors"]] == ["a.q_proj.weight", "b.q_proj.weight"]
    assert all(0 < row["max_error"] < 16 for row in told["tensors"])
    assert told["digest"] == json.loads((target / "planq.json").read_text())["digest"]


def test_the_library_needs_neither_typer_nor_rich() -> None:
    """Nor gguf, until such a file is to be written."""
    script = """
import sys
sys.modules |= dict.fromkeys(("typer", "rich", "gguf", "torch"))
from planq.checkpoint import calibration, folders, gguf, gguf_models, job, restore
try:
    gguf_models.package()
except planq.checkpoint.failure.CheckpointError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script.replace("import sys", "import sys, planq.checkpoint", 1)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    what = "GGUF files are written with the package 'gguf'"
    assert done.stdout == f"{what}: pip install 'planq[gguf]'\n"
