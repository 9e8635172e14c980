"""A model of any architecture is loaded and answers, or is refused before anything is written."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from checkpoint import architectures
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.folders import compare_folder, quantize_folder
from planq.checkpoint.formats import Activations, Form, Format
from planq.checkpoint.job import Job
from planq.checkpoint.schemes import Scheme
from planq.executors import HostExecutor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from planq.checkpoint.job import Comparison, JobReport

    Saved = Callable[[str], tuple[Path, torch.Tensor]]

pytestmark = pytest.mark.filterwarnings("ignore")

CT, BNB = Format.COMPRESSED_TENSORS, Format.BITSANDBYTES
BOTH = (CT, BNB)

# What each says where no reader takes a model's codes.
REFUSED = {
    ("gpt2", CT): "Conv1D",
    ("gpt2", BNB): "Conv1D",
    ("falcon", CT): "FalconLinear",
    ("falcon", BNB): "FalconLinear",
    ("t5", CT): "transformers cannot load T5ForConditionalGeneration with packed codes",
}
REFUSED_BY_NAMES = {
    **dict.fromkeys((("gpt2", CT), ("gpt2", BNB), ("t5", CT), ("t5", BNB)), "unsure"),
    **dict.fromkeys((("falcon", CT), ("falcon", BNB)), "a class of its own"),
}
# Where names tell less, or in other words, than elsewhere.
BY_NAMES = (
    *("bert-masked", "bloom", "clip", "deberta", "falcon", "gpt2", "llama-tied", "mixtral"),
    *("mpnet", "opt-projected", "qwen2-moe", "t5", "whisper"),
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Folders with models, each made when it is wanted first, and their answers."""

    @cache
    def make(name: str) -> tuple[Path, torch.Tensor]:
        folder = tmp_path_factory.mktemp(name) / "model"
        return folder, architectures.save(name, folder)

    return make


def no_progress(name: str, nbytes: int, total: int) -> None:
    """Nobody looks."""


def quantized(
    source: Path,
    target: Path,
    form: Format,
    scheme: Scheme = Scheme.INT8_CHANNEL,
    activations: Activations = Activations.NONE,
    exclude: str | None = None,
) -> JobReport:
    """Quantizes a folder."""
    pattern = None if exclude is None else re.compile(exclude)
    job = Job(source, target, scheme, form=Form(form, activations), exclude=pattern)
    return quantize_folder(job, HostExecutor(), no_progress)


def compared(source: Path, target: Path) -> tuple[Comparison, ...]:
    """What `planq verify` finds, on a machine without transformers."""
    with pytest.MonkeyPatch.context() as hidden:
        hidden.setitem(sys.modules, "transformers", None)
        return compare_folder(source, target, None, HostExecutor(), no_progress)


def check(name: str, saved: Saved, target: Path, form: Format, scheme: Scheme) -> None:
    """Loads what came of a model, and compares its answer and its bytes."""
    source, wanted = saved(name)
    assert not any(file.differing for file in compared(source, target))
    found = architectures.answer(name, architectures.load(name, target))
    cosine = float((found * wanted).sum() / (found.norm() * wanted.norm()))
    assert cosine >= 0.98, (form, scheme)


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("name", architectures.MODELS)
def test_a_model_is_loaded_or_refused(
    tmp_path: Path, saved: Saved, name: str, form: Format
) -> None:
    source, _ = saved(name)
    if (name, form) in REFUSED:
        with pytest.raises(CheckpointError, match=REFUSED[name, form]):
            quantized(source, tmp_path / "a" / "out", form)
        assert not any(tmp_path.iterdir())
        return
    report = quantized(source, tmp_path / "out", form)
    assert len(report.tensors) >= 6
    check(name, saved, tmp_path / "out", form, Scheme.INT8_CHANNEL)


@pytest.mark.parametrize("form", BOTH)
@pytest.mark.parametrize("name", BY_NAMES)
def test_names_and_shapes_are_enough_to_be_right_or_to_refuse(
    tmp_path: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch, name: str, form: Format
) -> None:
    """Where transformers is not installed."""
    source, _ = saved(name)
    with monkeypatch.context() as hidden:
        hidden.setitem(sys.modules, "transformers", None)
        if (name, form) in REFUSED_BY_NAMES:
            with pytest.raises(CheckpointError, match=REFUSED_BY_NAMES[name, form]):
                quantized(source, tmp_path / "out", form)
            assert not any(tmp_path.iterdir())
            return
        quantized(source, tmp_path / "out", form)
    check(name, saved, tmp_path / "out", form, Scheme.INT8_CHANNEL)


@pytest.mark.parametrize(
    ("name", "scheme", "activations"),
    [
        ("falcon", Scheme.FP8_CHANNEL, Activations.NONE),
        ("falcon", Scheme.INT8_CHANNEL, Activations.TOKEN),
        ("mixtral", Scheme.FP8_TENSOR, Activations.NONE),
        ("mixtral", Scheme.FP8_CHANNEL, Activations.TOKEN),
        ("t5", Scheme.FP8_CHANNEL, Activations.NONE),
        ("t5", Scheme.INT8_CHANNEL, Activations.TOKEN),
    ],
)
def test_codes_that_are_not_packed_reach_more_models(
    tmp_path: Path, saved: Saved, name: str, scheme: Scheme, activations: Activations
) -> None:
    quantized(saved(name)[0], tmp_path / "out", CT, scheme, activations)
    check(name, saved, tmp_path / "out", CT, scheme)


def test_experts_are_quantized_together_or_not_at_all(tmp_path: Path, saved: Saved) -> None:
    """transformers makes one tensor of them, whose parts it takes in some forms alone."""
    source, target = saved("mixtral")[0], tmp_path / "out"
    with pytest.raises(CheckpointError, match=r"needs all of them quantized, or a scheme of fp8"):
        quantized(source, target, CT, exclude=r"experts\.1\.")
    with pytest.raises(CheckpointError, match="needs --activations none or a scheme of fp8"):
        quantized(source, target, CT, activations=Activations.TOKEN)
    assert not any(tmp_path.iterdir())
    report = quantized(source, target, CT, Scheme.FP8_CHANNEL, exclude=r"experts\.1\.")
    assert len(report.tensors) == 8
    check("mixtral", saved, target, CT, Scheme.FP8_CHANNEL)


def record(target: Path) -> dict[str, Any]:
    """The weights that planq.json tells of."""
    found: dict[str, Any] = json.loads((target / "planq.json").read_text())["weights"]
    return found


def test_what_was_decided_is_recorded(tmp_path: Path, saved: Saved) -> None:
    """An embedding that is not called one, and an output layer that the file does not have."""
    report = quantized(saved("mpnet")[0], tmp_path / "mpnet", BNB)
    told = record(tmp_path / "mpnet")
    assert told["basis"].startswith("MPNetModel, transformers ")
    assert told["floating"]["encoder.relative_attention_bias.weight"] == "Embedding"
    assert told["floating"] == report.floating
    assert told["quantized"] == sorted(tensor.name for tensor in report.tensors)
    quantized(saved("llama-tied")[0], tmp_path / "llama", CT)
    told = record(tmp_path / "llama")
    assert "lm_head" in told["ignored"]
    assert told["floating"] == {
        "model.embed_tokens.weight": "shared with another module (Embedding)"
    }


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("quantized", [], "other names than those of the source"),
        ("floating", {"a": "b"}, "other names than those of the source"),
        ("basis", "names and shapes: none", "not what names and shapes tell"),
    ],
)
def test_a_record_that_cannot_be_is_found(
    tmp_path: Path, saved: Saved, field: str, value: object, said: str
) -> None:
    source, target = saved("mpnet")[0], tmp_path / "out"
    quantized(source, target, CT)
    summary = json.loads((target / "planq.json").read_text())
    summary["weights"][field] = value
    (target / "planq.json").write_text(json.dumps(summary, indent=2) + "\n")
    found = compared(source, target)
    assert said in found[-1].differing["planq.json"]
    assert "planq.weights_sha256" in found[0].differing["header"]


def test_a_reason_that_was_changed_is_found(tmp_path: Path, saved: Saved) -> None:
    """By the digest in the files, as nobody may be there to ask."""
    source, target = saved("mpnet")[0], tmp_path / "out"
    quantized(source, target, CT)
    summary = json.loads((target / "planq.json").read_text())
    summary["weights"]["floating"]["embeddings.word_embeddings.weight"] = "Linear"
    (target / "planq.json").write_text(json.dumps(summary, indent=2) + "\n")
    header = compared(source, target)[0].differing["header"]
    assert header == "other metadata: planq.digest, planq.weights_sha256"


def test_code_that_comes_with_a_model_is_never_run(tmp_path: Path, saved: Saved) -> None:
    source = tmp_path / "model"
    source.mkdir()
    for path in saved("bert")[0].iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    ran = tmp_path / "ran"
    (source / "modeling.py").write_text(f"open({str(ran)!r}, 'w')")
    config = json.loads((source / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "modeling.Config", "AutoModel": "modeling.Model"}
    for number, facts in enumerate(({}, {"model_type": "own"}, {"architectures": ["Own"]})):
        (source / "config.json").write_text(json.dumps({**config, **facts}))
        report = quantized(source, tmp_path / str(number), CT)
        assert len(report.tensors) == 13
        basis = record(tmp_path / str(number))["basis"]
        assert basis.startswith("BertModel, " if not facts else "names and shapes: transformers")
    assert not ran.exists()


def test_a_config_of_endless_layers_is_not_built(tmp_path: Path, saved: Saved) -> None:
    source = tmp_path / "model"
    source.mkdir()
    for path in saved("bert")[0].iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 10**9}))
    quantized(source, tmp_path / "out", CT)
    assert "more than" in record(tmp_path / "out")["basis"]
