"""A model's folder: all of it is accounted for, wherever it leads, whatever it says of itself."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoint.test_verify import differing, shards
from cli.commands import quietly, refuse, report
from cli.files import checkpoint, load, weight
from planq.cli import main
from support.hostile import Chaos, fuzzing

Capture = pytest.CaptureFixture[str]

OPTIONS = ("--format", "compressed-tensors", "--scheme", "int8-channel")
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of one file, in a folder that holds nothing else."""
    made = tmp_path / "here" / "model"
    made.mkdir(parents=True)
    checkpoint(made / "model.safetensors", {"a.weight": weight(8, 16), "b.bias": weight(1, 4)[0]})
    (made / "config.json").write_text("{}")
    return made


def quantize(folder: Path, *options: str) -> Path:
    """Quantizes the folder into another one beside it."""
    target = folder.with_name("out")
    assert main(["quantize", str(folder), str(target), *OPTIONS, *options]) == 0
    return target


def names(folder: Path) -> list[str]:
    """What stands in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("before", ["nothing", "an older output"])
def test_a_link_to_a_folder_is_written_through(
    folder: Path, tmp_path: Path, capsys: Capture, before: str
) -> None:
    """The link stays, the folder that it leads to is replaced, and nothing is left of the old."""
    store = tmp_path / "store"
    store.mkdir()
    if before == "an older output":
        quantize(folder).rename(store / "out")
        (store / "out" / "more").write_text("")
    else:
        (store / "out").mkdir()
    folder.with_name("out").symlink_to(store / "out")
    target = quantize(folder, "--force")
    assert target.is_symlink()
    assert names(folder.parent) == ["model", "out"]
    assert names(store) == ["out"]
    assert names(store / "out") == ["config.json", "model.safetensors", "planq.json"]
    capsys.readouterr()
    assert report(capsys, "verify", folder, target)["equal"]


def test_a_folder_that_holds_the_input_is_not_replaced(folder: Path, capsys: Capture) -> None:
    (folder.parent / "planq.json").write_text("{}")
    line = refuse(capsys, "quantize", folder, folder.parent, *OPTIONS, "--force")
    assert f"{folder.parent}: holds the input, which would go with it" in line
    assert names(folder) == ["config.json", "model.safetensors"]


def test_a_link_to_nothing_is_refused(folder: Path, capsys: Capture) -> None:
    target = folder.with_name("out")
    target.symlink_to("nowhere")
    line = refuse(capsys, "quantize", folder, target, *OPTIONS)
    assert f"{target}: exists and is not a folder" in line


def test_an_old_folder_that_stays_is_told_of(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output is complete, and so the status is 3."""
    target = quantize(folder)
    capsys.readouterr()
    real = shutil.rmtree

    def keep(path: Path, *arguments: Any, **named: Any) -> None:
        if path.suffix == ".replaced":
            raise PermissionError(13, "Permission denied", str(path))
        real(path, *arguments, **named)

    monkeypatch.setattr(shutil, "rmtree", keep)
    assert main(["quantize", str(folder), str(target), *OPTIONS, "--force"]) == 3
    said = capsys.readouterr().err
    assert "out is complete" in said
    assert ".replaced: Permission denied" in said


def with_index(folder: Path, places: object) -> None:
    """Gives the folder two files, of which each has a tensor alone and both have one."""
    (folder / "model.safetensors").unlink()
    ones = np.ones((8, 8), np.float32)
    checkpoint(folder / "m1.safetensors", {"a.weight": ones, "b.weight": ones})
    checkpoint(folder / "m2.safetensors", {"a.weight": 9 * ones, "c.weight": ones})
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["a"], "weight_map: expected an object with a file for each tensor, got a list"),
        (None, "weight_map: expected an object with a file for each tensor, got nothing"),
        ({}, "weight_map: expected an object with a file for each tensor, got nothing"),
        ({"a.weight": 3}, "weight_map: 'a.weight': expected the name of a file, got 3"),
        ({"a.weight": {"x": 1}}, 'expected the name of a file, got {"x": 1}'),
        ({"a.weight": "m3.safetensors"}, "m3.safetensors: named by model.safetensors.index.json"),
        ({"a.weight": "../m1.safetensors"}, "m1.safetensors: named by model.safetensors.index"),
        ({"x.weight": "m1.safetensors"}, "weight_map: m1.safetensors holds no tensor 'x.weight'"),
    ],
)
def test_an_index_that_is_none_is_refused(
    folder: Path, capsys: Capture, places: object, said: str
) -> None:
    with_index(folder, places)
    assert said in refuse(capsys, "quantize", folder, folder.with_name("out"), *OPTIONS)
    assert names(folder.parent) == ["model"]


@pytest.mark.parametrize("first", ["m1.safetensors", "m2.safetensors"])
def test_what_came_of_a_tensor_is_in_the_file_that_the_index_named(
    folder: Path, capsys: Capture, first: str
) -> None:
    """Also where another file has a tensor of the same name."""
    places = {"a.weight": first, "b.weight": "m1.safetensors", "c.weight": "m2.safetensors"}
    with_index(folder, places)
    target = quantize(folder)
    index = json.loads((target / INDEX).read_text())
    parts = {name: path.name for path in shards(target) for name in load(path).tensors}
    assert index["weight_map"].keys() == parts.keys()
    for name, place in index["weight_map"].items():
        assert place == places[name.rpartition("_")[0]]
    sizes = [
        load(target / place).tensors[name].nbytes for name, place in index["weight_map"].items()
    ]
    assert index["metadata"]["total_size"] == sum(sizes)
    capsys.readouterr()
    assert report(capsys, "verify", folder, target)["equal"]


def test_null_is_no_quantization(folder: Path, capsys: Capture) -> None:
    (folder / "config.json").write_text('{"quantization_config": null, "a": 1}')
    target = quantize(folder)
    capsys.readouterr()
    config = json.loads((target / "config.json").read_text())
    assert config["quantization_config"]["quant_method"] == "compressed-tensors"
    assert report(capsys, "verify", folder, target)["equal"]
    shutil.copy(target / "config.json", folder)
    line = refuse(capsys, "quantize", folder, target, "--force", *OPTIONS)
    assert "config.json: already quantized" in line


def modules(folder: Path) -> None:
    """Adds modules beside the model, and weights that are nobody's."""
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "2_Dense"}]')
    for name in ("2_Dense", "3_Other", ".cache"):
        (folder / name).mkdir()
        checkpoint(folder / name / "model.safetensors", {"linear.weight": weight(4, 4)})
        (folder / name / "config.json").write_text("{}")
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(b"the same")
    (folder / ".cache" / "back").symlink_to(folder)
    (folder / "onnx.bin").mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"others")


def test_weights_beside_the_model_are_kept_or_named(folder: Path, capsys: Capture) -> None:
    """Modules that modules.json lists keep theirs as they are; what is left out is told."""
    modules(folder)
    told = report(capsys, "quantize", folder, folder.with_name("out"), *OPTIONS)
    target = folder.with_name("out")
    assert told["carried"] == ["2_Dense/model.safetensors", "2_Dense/pytorch_model.bin"]
    assert told["left_out"] == ["3_Other/model.safetensors", "pytorch_model.bin"]
    for name in ("2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "3_Other/config.json"):
        assert (target / name).read_bytes() == (folder / name).read_bytes()
    assert names(target / "3_Other") == ["config.json"]
    assert not (target / ".cache").exists()
    assert report(capsys, "verify", folder, target)["equal"]
    assert main(["quantize", str(folder), str(target), *OPTIONS, "--force"]) == 0
    said = capsys.readouterr().out
    assert "copied as they are: 2_Dense/model.safetensors, 2_Dense/pytorch_model.bin" in said
    assert "kinds of weights by names and shapes: transformers knows no model type None" in said
    assert "files with weights, left out: 3_Other/model.safetensors, pytorch_model.bin" in said
    (target / "2_Dense" / "model.safetensors").write_bytes(b"")
    found = differing(capsys, folder, target)
    assert found["out"]["2_Dense/model.safetensors"] == "other bytes"


def test_weights_of_modules_that_lead_nowhere_are_refused(folder: Path, capsys: Capture) -> None:
    modules(folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    (folder / "2_Dense" / "model.safetensors").symlink_to("nowhere")
    line = refuse(capsys, "quantize", folder, folder.with_name("out"), *OPTIONS)
    assert "2_Dense/model.safetensors: neither a file nor a folder" in line


def test_links_in_a_source_are_followed_but_not_in_circles(
    folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    """As in caches of the Hugging Face hub, whose files are links."""
    (folder / "model.safetensors").rename(tmp_path / "blob")
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "vocab.txt").write_text("a")
    (folder / "more").symlink_to(tmp_path / "more")
    target = quantize(folder)
    assert not (target / "more").is_symlink()
    assert (target / "more" / "vocab.txt").read_text() == "a"
    capsys.readouterr()
    assert report(capsys, "verify", folder, target)["equal"]
    (tmp_path / "more" / "back").symlink_to(folder)
    line = refuse(capsys, "quantize", folder, target, "--force", *OPTIONS)
    assert "a link back to a folder that it is in" in line
    (tmp_path / "more" / "back").unlink()
    (folder / "readme").symlink_to("nowhere")
    line = refuse(capsys, "quantize", folder, target, "--force", *OPTIONS)
    assert f"{folder / 'readme'}: neither a file nor a folder" in line


def add_link(target: Path) -> None:
    """Adds a link to nothing."""
    (target / "x.bin").symlink_to("/nonexistent")


def add_folder_link(target: Path) -> None:
    """Adds a link to a folder that is there."""
    (target / "x.bin").symlink_to(target.parent)


def add_folder(target: Path) -> None:
    """Adds a folder without a file."""
    (target / "x.bin").mkdir()


def add_pipe(target: Path) -> None:
    """Adds what is neither file nor folder."""
    os.mkfifo(target / "x.bin")


@pytest.mark.parametrize("add", [add_link, add_folder_link, add_folder, add_pipe])
def test_whatever_is_added_to_a_folder_is_found(folder: Path, capsys: Capture, add: Any) -> None:
    target = quantize(folder)
    add(target)
    capsys.readouterr()
    assert differing(capsys, folder, target) == {"out": {"x.bin": "should not be there"}}


BUILD = "planq: another version or build than its files name"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s["planq"].update(build_id="0" * 16), BUILD),
        (lambda s: s["planq"].update(version="9.9.9"), BUILD),
        (lambda s: s["planq"].update(more=1), BUILD),
        (lambda s: s.update(planq=[]), BUILD),
        (lambda s: s.pop("planq"), BUILD),
        (lambda s: s.update(note="more", another=1), "unknown fields: another, note"),
        (lambda s: s["options"].update(more=1), "options: not as planq writes it"),
        (lambda s: s["files"].pop("config.json"), "other digests than those of the files"),
        (lambda s: s.update(digest="0" * 64), "other digests than those of the files"),
        (lambda s: s["weights"].update(ignored=["z"]), None),
        (lambda s: s.update(planq=s.pop("planq")), "other bytes"),
    ],
)
def test_every_field_of_the_summary_is_compared(
    folder: Path, capsys: Capture, change: Any, said: str | None
) -> None:
    target = quantize(folder)
    summary = json.loads((target / "planq.json").read_text())
    change(summary)
    (target / "planq.json").write_text(json.dumps(summary, indent=2) + "\n")
    capsys.readouterr()
    found = differing(capsys, folder, target)["out"]
    if said is None:  # the config has other modules than the record says
        assert found["config.json"] == "other bytes"
    else:
        assert found == {"planq.json": said}


@pytest.mark.parametrize("value", [None, [], {}, {"basis": 1}, {"quantized": [1]}])
def test_a_summary_without_its_weights_is_refused(
    folder: Path, capsys: Capture, value: object
) -> None:
    target = quantize(folder)
    summary = json.loads((target / "planq.json").read_text())
    (target / "planq.json").write_text(json.dumps({**summary, "weights": value}))
    capsys.readouterr()
    line = refuse(capsys, "verify", folder, target)
    assert "planq.json: weights: expected basis, quantized, floating and ignored" in line


def test_another_build_is_named_and_its_bytes_are_compared(
    folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in all files of a folder; nothing else of it is taken on trust."""
    from planq.checkpoint import job

    class Other:
        version, build_id = "0.0.9", "feedfeedfeedfeed"

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(job.planq, "build_info", Other)
        target = quantize(folder)
    capsys.readouterr()
    assert main(["verify", str(folder), str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "1 weight quantized again: every byte is equal\n"
    assert "made by planq 0.0.9, build feedfeedfeedfeed, by its own account" in printed.err
    assert main(["verify", str(folder), str(target), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["equal"], told["same_build"]) == (True, False)
    assert told["made_by"] == [{"version": "0.0.9", "build_id": "feedfeedfeedfeed"}]


def test_patterns_add_to_what_a_format_leaves_out(folder: Path, capsys: Capture) -> None:
    tensors = {f"{name}.weight": weight(8, 16) for name in ("a", "b", "lm_head")}
    checkpoint(folder / "model.safetensors", tensors)
    target = folder.with_name("out")
    arguments = ("quantize", folder, target, *OPTIONS, "--force")

    def left(*options: str) -> dict[str, str]:
        told = report(capsys, *arguments, *options)
        assert report(capsys, "verify", folder, target)["equal"]
        return {row["name"]: row["why"] for row in told["floating"]}

    by_name = "its name tells of no linear layer inside a model"
    assert left() == {"lm_head.weight": by_name}
    found = {"b.weight": "--exclude finds it"}
    assert left("--exclude", "^b") == {**found, "lm_head.weight": by_name}
    assert left("--exclude", "^b", "--no-default-excludes") == found
    assert left("--no-default-excludes") == {}
    plain = ("quantize", folder / "model.safetensors", folder / "o", "--scheme", "int8-channel")
    assert "plain leaves nothing out" in refuse(capsys, *plain, "--no-default-excludes")


CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 20,
}
MODULES = [{"path": ""}, {"path": "2_Dense", "type": "Dense"}]


@pytest.mark.filterwarnings("ignore")
@fuzzing(60)
def test_nothing_that_a_folder_says_is_an_internal_error(tmp_path: Path, chaos: Chaos) -> None:
    """Quantized or refused in a sentence, verified or refused: nothing else, and no trace."""
    source, target = tmp_path / str(chaos.random()) / "in", tmp_path / str(chaos.random())
    source.mkdir(parents=True)
    name = "encoder.layer.0.attention.self.query.weight"
    checkpoint(source / "m1.safetensors", {name: weight(16, 16), "a.weight": weight(4, 4)})
    texts = {"config.json": CONFIG, "modules.json": MODULES}
    texts |= {INDEX: {"weight_map": {name: "m1.safetensors", "a.weight": "m1.safetensors"}}}
    chosen = chaos.choice((*texts, "planq.json"))
    for file, values in texts.items():
        told = chaos.tampered(values) if file == chosen else values
        (source / file).write_text(json.dumps(told))
    status, said = quietly("quantize", source, target, *OPTIONS)
    assert status in (0, 2)
    assert target.exists() == (status == 0)
    assert [path.name for path in source.parent.iterdir()] == ["in"]
    if status == 0:
        summary = target / "planq.json"
        made = json.loads(summary.read_text())
        told = chaos.tampered(made) if chosen == "planq.json" else made
        summary.write_text(json.dumps(told, indent=2) + "\n")
        status, more = quietly("verify", source, target)
        same = json.dumps(told) == json.dumps(made)
        assert status == 0 if same else status in (1, 2), (chosen, told, more)
        said += more
    assert "internal error" not in said
    assert "out of memory" not in said
