"""`planq scale`: a model that computes what it did, and quantizes with less loss."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from checkpoint import llama_models
from cli.commands import quietly, refuse, report
from cli.files import Array, checkpoint, load, weight
from cli.test_groups import expected
from planq import DType
from planq.checkpoint import read_gguf
from planq.checkpoint.awq import Curvature, Part, exponents, fitted
from planq.checkpoint.files import CheckpointWriter
from planq.checkpoint.formats import Form, Format
from planq.checkpoint.job import Job
from planq.checkpoint.layer_inputs import open_inputs
from planq.checkpoint.scaling import scale_folder
from planq.checkpoint.schemes import Scheme, choose_groups
from planq.cli import main
from planq.executors import HostExecutor
from support.examples import load as load_example
from support.hostile import Chaos, fuzzing

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import (
        AutoModel,
        BertModel,
        Gemma2ForCausalLM,
        Gemma3ForCausalLM,
        GemmaForCausalLM,
        LlamaForCausalLM,
        MistralForCausalLM,
        Qwen2ForCausalLM,
        Qwen3ForCausalLM,
    )

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

Capture = pytest.CaptureFixture[str]

_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "pad_token_id": 0,
}
_DECODER = {**_SIZES, "num_key_value_heads": 2, "head_dim": 16}
_GEMMA = {**_DECODER, "query_pre_attn_scalar": 16, "sliding_window": 8}
# Each with what others have not: biases, heads that queries share or not, norms that start at 1.
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, {**_DECODER, "attention_bias": True, "mlp_bias": True}),
    "mistral": (MistralForCausalLM, {**_DECODER, "num_key_value_heads": 1}),
    "qwen2": (Qwen2ForCausalLM, {**_SIZES, "num_key_value_heads": 4}),
    "qwen3": (Qwen3ForCausalLM, {**_DECODER, "head_dim": 32, "tie_word_embeddings": True}),
    "gemma": (GemmaForCausalLM, _DECODER),
    "gemma2": (Gemma2ForCausalLM, _GEMMA),
    "gemma3": (Gemma3ForCausalLM, _GEMMA),
    "bert": (BertModel, _SIZES),
}
GROUPS = ("--scheme", "int4-group", "--group-size", "32")
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def made(kind: str, folder: Path, dtype: str = "float32", shard: str = "1GB") -> Any:
    """A model with random weights whose layers have some inputs that are far larger; its folder."""
    model_class, options = MODELS[kind]
    torch.manual_seed(3)
    model = model_class(model_class.config_class(**options))
    with torch.no_grad():
        for key, values in model.named_parameters():
            if values.ndim == 2:
                values.normal_(0, 0.08)
            elif "norm" in key.lower() and key.endswith("weight"):
                values += torch.rand_like(values) - 0.5
                values[3::16] *= 24
            else:
                values.normal_(0, 0.1)
            if key.endswith(("v_proj.weight", "value.weight", "up_proj.weight")):
                values[5::16] *= 16
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    return again(kind, folder)


def again(kind: str, folder: Path, dtype: torch.dtype = torch.float64) -> Any:
    """The model of a folder, of which every weight has to be found, and no other."""
    model_class = MODELS[kind][0]
    model, told = model_class.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(told.values()), told
    return model.eval()


def tokens(seed: int = 0) -> torch.Tensor:
    return torch.randint(1, 100, (8, 24), generator=torch.Generator().manual_seed(seed))


def answer(model: Any) -> torch.Tensor:
    """What a model makes of texts that its layers were not recorded with."""
    with torch.inference_mode():
        out = model(input_ids=tokens(seed=1))
    found: torch.Tensor = out["logits" if "logits" in out else "last_hidden_state"]
    return found


def fed(model: Any, path: Path) -> Path:
    """A file of what the layers are fed."""
    batch = {"input_ids": tokens(), "attention_mask": torch.ones(8, 24, dtype=torch.int64)}
    rows = load_example("layer_inputs").recorded(model, [batch])
    return checkpoint(path, {name: each.numpy() for name, each in rows.items()})


def scaled(capsys: Capture, tmp_path: Path, kind: str, *options: object, **more: Any) -> Any:
    """A model, what it is fed, and the report of its scaling from `model` to `scaled`."""
    model = made(kind, tmp_path / "model", **more)
    inputs = fed(model, tmp_path / "inputs.st")
    words = (tmp_path / "model", tmp_path / "scaled", "--layer-inputs", inputs)
    return model, inputs, report(capsys, "scale", *words, *(options or GROUPS))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *((kind, "float32") for kind in MODELS),
        *((kind, "bfloat16") for kind in ("llama", "qwen3", "gemma3", "bert")),
        *((kind, "float16") for kind in ("llama", "gemma3")),
    ],
)
def test_the_scaled_model_computes_the_same(
    tmp_path: Path, capsys: Capture, kind: str, dtype: str
) -> None:
    """Every bit of it, in float64 and in float32; torch is asked."""
    model, inputs, told = scaled(capsys, tmp_path, kind, dtype=dtype)
    assert torch.equal(answer(model), answer(again(kind, tmp_path / "scaled")))
    both = [again(kind, tmp_path / name, torch.float32) for name in ("model", "scaled")]
    assert torch.equal(*map(answer, both))
    groups = told["groups"]
    assert len(groups) == (2 if kind == "bert" else 8)
    moved = [group for group in groups if any(group["powers"])]
    if dtype == "float32":  # other types lack some numbers, so fewer scales fit
        assert len(moved) >= len(groups) / 2
    assert moved
    named = {name for group in moved for name in (*group["layers"], *group["makers"])}
    before, after = (load(tmp_path / name / "model.safetensors") for name in ("model", "scaled"))
    assert list(before.tensors) == list(after.tensors)
    assert before.metadata == after.metadata
    assert before.offsets == after.offsets
    other = {
        name
        for name, values in before.tensors.items()
        if values.tobytes() != after.tensors[name].tobytes()
    }
    assert other == named
    assert all(group["relative_error"] <= group["relative_error_before"] for group in groups)
    verify = ("verify", tmp_path / "model", tmp_path / "scaled", "--layer-inputs", inputs)
    assert main([*map(str, verify)]) == 0


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "bert"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_types_in_which_a_scaled_model_computes_the_same(
    tmp_path: Path, capsys: Capture, kind: str, dtype: str
) -> None:
    """In bfloat16 too, even of float32 files, whose numbers a loader rounds.

    Gemma adds 1 to the weights of norms, so rounded ones are others: it has to be loaded in the
    type of its file, or in a wider one.
    """
    scaled(capsys, tmp_path, kind, dtype=dtype)
    both = [again(kind, tmp_path / name, torch.bfloat16) for name in ("model", "scaled")]
    rounded = kind == "gemma3" and dtype == "float32"
    assert torch.equal(*map(answer, both)) != rounded


def sources(model: Any, layer: str, width: int) -> Array:
    """The row of the values that makes each column of an output of attention; else the columns."""
    if not layer.endswith("o_proj.weight"):
        return np.arange(width)
    heads, own = model.config.num_attention_heads, model.config.num_key_value_heads
    size = width // heads
    rows = [np.arange(size) + size * (head * own // heads) for head in range(heads)]
    return np.concatenate(rows)


@pytest.mark.parametrize("kind", ["llama", "gemma3", "bert"])
def test_tensors_are_multiplied_and_divided_by_the_scales(
    tmp_path: Path, capsys: Capture, kind: str
) -> None:
    model, _, told = scaled(capsys, tmp_path, kind)
    before, after = (
        load(tmp_path / name / "model.safetensors").tensors for name in ("model", "scaled")
    )
    wanted = {name: values.astype(np.float64) for name, values in before.items()}
    for group in told["groups"]:
        scales = 2.0 ** np.array(group["powers"])
        for name in group["layers"]:
            wanted[name] *= scales[sources(model, name, wanted[name].shape[1])]
        for name in group["makers"]:
            if kind == "gemma3" and "norm" in name:
                own = (np.float32(1) + before[name]).astype(np.float64) / scales - 1
                wanted[name] = np.where(scales == 1, wanted[name], own)
            else:
                wanted[name] = (wanted[name].T / scales).T
    assert all(np.array_equal(wanted[name], values) for name, values in after.items())


def reference(
    weights: list[Array], x: Array, channels: Array, scheme: str, search: str
) -> tuple[Array, float, float]:
    """Exponents with the least error, by sums over outputs themselves; both relative errors."""
    columns = np.abs(x).mean(axis=0)
    means = np.array([columns[channels == n].mean() for n in range(channels.max() + 1)])
    wanted = [x @ weight.T.astype(np.float64) for weight in weights]
    signal = sum(np.square(each).sum() for each in wanted)
    logarithms = np.log2(means)
    first, best = math.nan, (math.inf, np.zeros(0))
    for step in range(21):
        powers = np.rint(step / 20 * (logarithms - logarithms.min()))
        times = 2.0 ** powers[channels]
        error = 0.0
        for own, outputs in zip(weights, wanted, strict=True):
            changed = (own * times).astype(own.dtype)
            codes, scales, places = expected(changed, 32, search, scheme, "compressed-tensors")
            steps = (codes.reshape(-1, 32) - places.reshape(-1, 1)).astype(np.float32)
            back = (steps * scales.reshape(-1, 1)).reshape(own.shape).astype(np.float64) / times
            error += np.square(x @ back.T - outputs).sum()
        first = error if step == 0 else first
        if error < best[0]:
            best = (error, powers)
    return best[1], math.sqrt(first / signal), math.sqrt(best[0] / signal)


@pytest.mark.parametrize(
    ("kind", "scheme", "search"),
    [
        ("llama", "int4-group", "none"),
        ("qwen3", "uint4-group", "none"),
        ("bert", "int4-group", "mse"),
    ],
)
def test_the_search_finds_the_least_error(
    tmp_path: Path, capsys: Capture, kind: str, scheme: str, search: str
) -> None:
    options = ("--scheme", scheme, "--group-size", "32", "--search", search)
    model, inputs, told = scaled(capsys, tmp_path, kind, *options)
    tensors, rows = (
        load(tmp_path / name).tensors for name in ("model/model.safetensors", inputs.name)
    )
    for group in told["groups"]:
        layers = group["layers"]
        x = rows[layers[0]].astype(np.float64)
        channels = sources(model, layers[0], x.shape[1])
        powers, first, least = reference([tensors[n] for n in layers], x, channels, scheme, search)
        assert group["powers"] == powers.tolist(), layers
        # Errors are sums of numbers of 23 bits: see planq.checkpoint.awq.
        assert group["relative_error_before"] == pytest.approx(first, rel=2e-6)
        assert group["relative_error"] == pytest.approx(least, rel=2e-6)


def output_error(kind: str, model: Any, folder: Path) -> float:
    """How far the answer of a quantized folder is from that of the model."""
    config = transformers.CompressedTensorsConfig(dequantize=True)
    model_class = MODELS[kind][0]
    with warnings.catch_warnings():  # it says that the config tells the rest
        warnings.simplefilter("ignore")
        found = model_class.from_pretrained(
            folder, dtype=torch.float32, device_map="cpu", quantization_config=config
        )
    wanted = answer(model)
    return float((answer(found.eval()) - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_codes_of_a_scaled_model_lose_less(tmp_path: Path, capsys: Capture, kind: str) -> None:
    """Nearest ones, with a search, and by GPTQ for what the scaled layers are fed."""
    model, inputs, _ = scaled(capsys, tmp_path, kind)
    own = fed(again(kind, tmp_path / "scaled"), tmp_path / "scaled.st")
    for options in ((), ("--search", "mse"), ("--method", "gptq", "--search", "mse")):
        errors = {}
        for name, rows in (("model", inputs), ("scaled", own)):
            target = tmp_path / f"{name}-codes"
            layers = ("--layer-inputs", rows) if "gptq" in options else ()
            words = (tmp_path / name, target, "--format", "compressed-tensors", "--force", *GROUPS)
            report(capsys, "quantize", *words, *options, *layers)
            errors[name] = output_error(kind, model, target)
        assert errors["scaled"] < 0.95 * errors["model"], (options, errors)


def test_bytes_do_not_depend_on_threads_or_shards(tmp_path: Path, capsys: Capture) -> None:
    model = made("llama", tmp_path / "model")
    made("llama", tmp_path / "shards", shard="60KB")
    inputs = fed(model, tmp_path / "inputs.st")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    digests = {}
    for source, threads in (("model", 1), ("model", 3), ("shards", 2)):
        target = tmp_path / f"{source}{threads}"
        groups = choose_groups(Scheme.UINT4_GROUP, 32)
        with open_inputs(inputs) as given:
            job = Job(
                tmp_path / source,
                target,
                Scheme.UINT4_GROUP,
                groups=groups,
                form=Form(Format.COMPRESSED_TENSORS),
                inputs=given,
            )
            told = scale_folder(job, HostExecutor(threads), lambda name, nbytes, total: None)
        digests[target.name] = told.digest
    assert digests["model1"] == digests["model3"]
    whole = load(tmp_path / "model1" / "model.safetensors").tensors
    parts = [load(path).tensors for path in (tmp_path / "shards2").glob("*.safetensors")]
    assert sum(len(part) for part in parts) == len(whole)
    for part in parts:
        assert all(whole[name].tobytes() == values.tobytes() for name, values in part.items())
    index = "model.safetensors.index.json"
    assert (tmp_path / "shards2" / index).read_bytes() == (tmp_path / "shards" / index).read_bytes()
    verify = ("verify", tmp_path / "shards", tmp_path / "shards2", "--layer-inputs", inputs)
    assert main([*map(str, verify)]) == 0


def test_logarithms_are_those_of_means() -> None:
    """Of 1000 means from 1e-30 to 1e30, and of columns that are 0."""
    means = 10.0 ** np.random.default_rng(5).uniform(-30, 30, 1000)
    means[7] = 0.0
    grid = list(exponents(means))
    assert [a for a, _ in grid] == [step / 20 for step in range(21)]
    known = np.log2(np.where(means > 0, means, means[means > 0].min()))
    for a, powers in grid:
        wanted = a * (known - known.min())
        assert np.abs(powers - wanted).max() <= 0.5 + 2.0**-15


@pytest.mark.parametrize("n", [1, 3, 64, 1000])
def test_energies_are_those_of_float64(n: int) -> None:
    draw = np.random.default_rng(n)
    x = draw.standard_normal((2 * n, n)) * 2.0 ** draw.uniform(-9, 9, n)
    rows = draw.standard_normal((700, n)) * 2.0 ** draw.uniform(-40, 40, (700, 1))
    wanted = np.square(rows @ x.T).sum(axis=1)
    found = np.array(Curvature(x.T @ x).energies(rows))
    assert np.abs(found / wanted - 1).max() < 1e-3
    assert Curvature(x.T @ x).energies(np.zeros((2, n))) == [0.0, 0.0]


@pytest.mark.parametrize(
    ("values", "dtype", "sign", "shift", "wanted"),
    [
        (1.5, DType.FLOAT16, 1, 0.0, 9),  # times 2^9
        (1000.0, DType.FLOAT16, 1, 0.0, 6),  # 64000 is finite, and 128000 is not
        (3 * 2.0**-24, DType.FLOAT16, 1, 0.0, 9),
        (3 * 2.0**-20, DType.FLOAT16, -1, 0.0, 4),  # 3 units of the least subnormal numbers
        (1.5, DType.BFLOAT16, -1, 0.0, 9),
        (0.5, DType.BFLOAT16, -1, 1.0, 9),  # 1.5 / 2^9 - 1 has 10 bits
        (0.09375, DType.BFLOAT16, -1, 1.0, 4),
        (3.0, DType.FLOAT32, -1, 1.0, 9),
        (5e-324, DType.FLOAT64, -1, 0.0, 0),
        (1.5e308, DType.FLOAT64, 1, 0.0, 0),
        (0.0, DType.FLOAT16, -1, 0.0, 9),
    ],
)
def test_a_scale_is_lowered_until_a_type_takes_it(
    values: float, dtype: DType, sign: int, shift: float, wanted: int
) -> None:
    """Of three channels, of which the last wants no scale, and all others take theirs."""
    part = Part(np.array([[1.0], [values], [values]]), dtype, sign, shift)
    free = Part(np.zeros((3, 4)), dtype, 1)
    if shift:
        wanted = _highest(values, dtype, shift, 9)
    found = fitted(np.array([2, 9, 0]), [free, part])
    assert found.tolist() == [2, wanted, 0]


def _highest(value: float, dtype: DType, shift: float, most: int) -> int:
    """The highest exponent up to `most` that a norm's weight takes, by torch's own types."""
    kind = {DType.BFLOAT16: torch.bfloat16, DType.FLOAT32: torch.float32}[dtype]
    for power in range(most, -1, -1):
        made = torch.tensor((shift + value) * 2.0**-power - shift, dtype=torch.float64).to(kind)
        if float(shift + made.float()) == (shift + value) * 2.0**-power:
            return power
    raise AssertionError("not even 1")


def break_model(folder: Path, change: Any) -> None:
    """Changes the tensors of a folder, or its config."""
    path = folder / "model.safetensors"
    found = load(path)
    tensors = {name: values.copy() for name, values in found.tensors.items()}
    config = json.loads((folder / "config.json").read_text())
    change(tensors, config)
    checkpoint(path, tensors, found.metadata)
    (folder / "config.json").write_text(json.dumps(config))


FAULTS: dict[str, tuple[Any, str]] = {
    "kind": (
        lambda tensors, config: config.update(model_type="opt"),
        "model_type: expected an architecture with known places for scales (llama, mistral, ",
    ),
    "no layer": (
        lambda tensors, config: [
            tensors.pop(name) for name in list(tensors) if name.endswith("o_proj.weight")
        ],
        "no layer with a tensor '...self_attn.o_proj.weight'",
    ),
    "no norm": (
        lambda tensors, config: tensors.pop("model.layers.1.input_layernorm.weight"),
        "no tensor 'model.layers.1.input_layernorm.weight', expected a floating tensor [64]",
    ),
    "short norm": (
        lambda tensors, config: tensors.update(
            {"model.layers.1.input_layernorm.weight": np.ones(63, np.float32)}
        ),
        "'model.layers.1.input_layernorm.weight': expected a floating tensor [64], found F32 [63]",
    ),
    "integers": (
        lambda tensors, config: tensors.update(
            {"model.layers.1.mlp.up_proj.weight": np.ones((96, 64), np.int32)}
        ),
        "'model.layers.1.mlp.up_proj.weight': expected a floating matrix, found I32 [96, 64]",
    ),
    "narrow": (
        lambda tensors, config: tensors.update(
            {"model.layers.0.self_attn.k_proj.weight": np.ones((32, 63), np.float32)}
        ),
        "k_proj.weight': expected a floating tensor [32, 64], found F32 [32, 63]",
    ),
    "heads": (
        lambda tensors, config: config.update(num_key_value_heads=3),
        "num_key_value_heads: expected a divisor of 4 heads, got 3",
    ),
    "other heads": (
        lambda tensors, config: config.update(num_attention_heads=3, num_key_value_heads=1),
        "o_proj.weight': expected a width that is a multiple of 3 heads, found F32 [64, 64]",
    ),
    "few values": (
        lambda tensors, config: config.update(num_key_value_heads=1),
        "v_proj.weight': expected a floating tensor [16, 64], found F32 [32, 64]",
    ),
    "short bias": (
        lambda tensors, config: tensors.update(
            {"model.layers.0.self_attn.v_proj.bias": np.ones(33, np.float32)}
        ),
        "v_proj.bias': expected a floating tensor [32], found F32 [33]",
    ),
    "infinite": (
        lambda tensors, config: tensors["model.layers.1.mlp.up_proj.weight"].__setitem__(
            (3, 4), np.inf
        ),
        "'model.layers.1.mlp.up_proj.weight': expected finite values, found a NaN or an infinity",
    ),
    "adapter in a layer": (
        lambda tensors, config: tensors.update(
            {"model.layers.1.self_attn.q_proj.lora_A.weight": np.ones((4, 64), np.float32)}
        ),
        "q_proj.lora_A.weight': expected none but those of layers of llama, since it may take a "
        "scaled input, found F32 [4, 64]",
    ),
    "bias of a norm": (
        lambda tensors, config: tensors.update(
            {"model.layers.0.input_layernorm.bias": np.ones(64, np.float32)}
        ),
        "'model.layers.0.input_layernorm.bias': expected none but those of layers of llama",
    ),
    "scale of stored values": (
        lambda tensors, config: tensors.update(
            {"model.layers.0.self_attn.v_scale": np.ones(1, np.float32)}
        ),
        "'model.layers.0.self_attn.v_scale': expected none but those of layers of llama",
    ),
    "quantized": (
        lambda tensors, config: config.update(quantization_config={}),
        "already quantized",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_models_that_are_none_are_refused(tmp_path: Path, capsys: Capture, fault: str) -> None:
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    change, words = FAULTS[fault]
    break_model(tmp_path / "model", change)
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    assert words in refuse(capsys, "scale", *given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("shape", [(32, 64), (3, 5), (3,)])
def test_a_tensor_in_two_files_is_refused(
    tmp_path: Path, capsys: Capture, shape: tuple[int, ...]
) -> None:
    """A loader may take either, whatever shape they have."""
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    again = {f"model.layers.0.{QKV[2]}.weight": np.ones(shape, np.float32)}
    checkpoint(tmp_path / "model" / "more.safetensors", again)
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    words = "v_proj.weight': in model.safetensors and more.safetensors"
    assert words in refuse(capsys, "scale", *given)
    assert not (tmp_path / "out").exists()


def test_a_model_with_an_adapter_is_refused(tmp_path: Path, capsys: Capture) -> None:
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    (tmp_path / "model" / "adapter_config.json").write_text("{}")
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    assert "an adapter takes the inputs that are scaled" in refuse(capsys, "scale", *given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.pop(f"model.layers.1.{QKV[1]}.weight"), f"1.{QKV[1]}.weight', expected"),
        (
            lambda rows: rows[f"model.layers.1.{QKV[1]}.weight"].__setitem__((0, 0), 9),
            "expected the rows of 'model.layers.1.self_attn.q_proj.weight', which has the same",
        ),
        (
            lambda rows: rows.update(
                {f"model.layers.1.{QKV[0]}.weight": np.ones((63, 64), np.float32)}
            ),
            "expected F16, BF16 or F32 [64 or more, 64], found F32 [63, 64]",
        ),
        (
            lambda rows: rows.update(
                {f"model.layers.1.{QKV[0]}.weight": np.ones((64, 65), np.float32)}
            ),
            "expected F16, BF16 or F32 [64 or more, 64], found F32 [64, 65]",
        ),
        (lambda rows: rows["model.layers.0.mlp.down_proj.weight"].fill(0), "values that are not"),
        (lambda rows: rows["model.layers.0.mlp.down_proj.weight"].fill(np.nan), "finite values"),
    ],
)
def test_inputs_that_are_none_are_refused(
    tmp_path: Path, capsys: Capture, change: Any, words: str
) -> None:
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    rows = {name: values.copy() for name, values in load(inputs).tensors.items()}
    change(rows)
    checkpoint(inputs, rows)
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    assert words in refuse(capsys, "scale", *given)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--scheme", "q4_0"), "--scheme: compressed-tensors has "),
        (("--scheme", "q4_0", "--format", "gguf"), "--format: expected compressed-tensors or bits"),
        (("--scheme", "int8-channel", "--format", "plain"), "--format: expected compressed"),
        (("--scheme", "nf4", "--format", "bitsandbytes", "--search", "mse"), "--search: expected"),
        ((*GROUPS, "--exclude", "_proj"), "no layers that the options allow to scale"),
        ((*GROUPS, "--exclude", "("), "--exclude: not a regular expression"),
        (("--scheme", "int4-group"), "a width of 64 is no multiple of 128"),
    ],
)
def test_options_that_do_not_go_are_refused(
    tmp_path: Path, capsys: Capture, options: tuple[str, ...], words: str
) -> None:
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *options)
    assert words in refuse(capsys, "scale", *given)
    assert not (tmp_path / "out").exists()


def test_other_folders_are_left_alone(tmp_path: Path, capsys: Capture) -> None:
    """What planq did not make stays, and what would be lost; what it made is replaced."""
    _, inputs, first = scaled(capsys, tmp_path, "bert")
    options = ("--layer-inputs", inputs, *GROUPS)
    source, target = tmp_path / "model", tmp_path / "scaled"
    told = refuse(capsys, "scale", source / "model.safetensors", tmp_path / "out", *options)
    assert "expected a model's folder" in told
    assert "--force replaces it" in refuse(capsys, "scale", source, target, *options)
    assert report(capsys, "scale", source, target, *options, "--force")["digest"] == first["digest"]
    kept = inputs.rename(target / "inputs.st")
    told = refuse(capsys, "scale", source, target, "--layer-inputs", kept, *GROUPS, "--force")
    assert f"--layer-inputs: {kept} is in {target}, and would go with it" in told
    inputs = kept.rename(inputs)
    shutil.copyfile(source / "model.safetensors", target / "linked.safetensors")
    (source / "model.safetensors").unlink()
    (source / "model.safetensors").symlink_to(target / "linked.safetensors")
    told = refuse(capsys, "scale", source, target, *options, "--force")
    assert f"{source / 'model.safetensors'}: a link into {target}" in told
    assert (source / "model.safetensors").is_file()
    (target / "planq.json").unlink()
    (source / "model.safetensors").unlink()
    (target / "linked.safetensors").rename(source / "model.safetensors")
    told = refuse(capsys, "scale", source, target, *options, "--force")
    assert "planq did not make it" in told


def test_a_failure_while_writing_leaves_what_was_there(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last shard cannot be written, or the caller interrupts it."""
    inputs = fed(made("llama", tmp_path / "model", shard="60KB"), tmp_path / "inputs.st")
    words = ("scale", tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    first = report(capsys, *words)
    there = {path.name for path in tmp_path.iterdir()}
    shards = len(list((tmp_path / "model").glob("*.safetensors")))
    commit = CheckpointWriter.commit
    for failure in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        left = shards

        def failing(writer: CheckpointWriter, failure: BaseException = failure) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise failure
            commit(writer)

        monkeypatch.setattr(CheckpointWriter, "commit", failing)
        status = 2 if isinstance(failure, OSError) else 130
        assert main([*map(str, words), "--force"]) == status
        assert ("No space left" in capsys.readouterr().err) == (status == 2)
        assert left == 0
        assert {path.name for path in tmp_path.iterdir()} == there
        monkeypatch.undo()
        verify = ("verify", tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs)
        assert main([*map(str, verify)]) == 0
        capsys.readouterr()
    assert report(capsys, *words, "--force")["digest"] == first["digest"]


def test_weights_that_no_format_takes_are_refused_before_a_search(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of a large model takes hours."""
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    monkeypatch.setattr("planq.checkpoint.scaling._Run.search", None)
    given = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs)
    options = ("--scheme", "int4-group", "--group-size", 64)  # 64 columns, and 96 of down
    assert "down_proj.weight': compressed-tensors: a width of 96" in refuse(
        capsys, "scale", *given, *options
    )
    report_of = (*given, *GROUPS)
    monkeypatch.undo()
    report(capsys, "scale", *report_of)
    (tmp_path / "out" / "model.safetensors").unlink()
    monkeypatch.setattr("planq.checkpoint.scaling._Run.search", None)
    told = refuse(capsys, "verify", tmp_path / "model", tmp_path / "out", *given[2:])
    assert "model.safetensors: missing" in told


def test_tensors_that_take_no_input_stay(tmp_path: Path, capsys: Capture) -> None:
    """Old files of Llama have the frequencies of rotations in each layer."""
    inputs = fed(made("llama", tmp_path / "model"), tmp_path / "inputs.st")
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"
    values = np.ones(8, np.float32)
    break_model(tmp_path / "model", lambda tensors, config: tensors.update({name: values}))
    words = (tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    assert len(report(capsys, "scale", *words)["groups"]) == 8
    assert np.array_equal(load(tmp_path / "out" / "model.safetensors").tensors[name], values)


def test_some_layers_may_be_left_out(tmp_path: Path, capsys: Capture) -> None:
    options = (*GROUPS, "--exclude", r"q_proj|\.1\.mlp")
    _, _, told = scaled(capsys, tmp_path, "mistral", *options)
    firsts = [group["layers"][0] for group in told["groups"]]
    ends = ("0.self_attn.o_proj", "0.mlp.gate_proj", "0.mlp.down_proj", "1.self_attn.o_proj")
    names = [f"model.layers.{end}.weight" for end in ends]
    assert sorted(firsts) == sorted(names)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (("--scheme", "int4-group", "--group-size", "32"), ("--search", "mse")),
        (("--scheme", "int4-group"), ("--group-size", "32")),
        (("--scheme", "int8-channel"), ("--format", "bitsandbytes")),
        (("--scheme", "nf4", "--format", "bitsandbytes"), ("--block-size", "4096")),
        (("--scheme", "nf4", "--format", "bitsandbytes"), ("--nested",)),
    ],
)
def test_each_option_tells_of_other_codes(
    tmp_path: Path, capsys: Capture, options: tuple[str, ...], more: tuple[str, ...]
) -> None:
    """The error of outputs without scales is another one with the option."""
    draw = np.random.default_rng(1)
    stem, x = "encoder.layer.0.attention", draw.standard_normal((200, 128)).astype(np.float32)
    layers = (f"{stem}.self.value.weight", f"{stem}.output.dense.weight")
    tensors = {name: draw.standard_normal((128, 128)).astype(np.float32) for name in layers}
    (tmp_path / "model").mkdir()
    checkpoint(tmp_path / "model" / "model.safetensors", tensors)
    (tmp_path / "model" / "config.json").write_text(
        '{"model_type": "bert", "num_attention_heads": 4}'
    )
    inputs = ("--layer-inputs", checkpoint(tmp_path / "x.st", {layers[1]: x}))
    told = {}
    for name, given in (("less", options), ("more", (*options[:2], *more, *options[2:]))):
        words = (tmp_path / "model", tmp_path / name, *inputs, *given)
        told[name] = report(capsys, "scale", *words)["groups"][0]["relative_error_before"]
    assert told["less"] != pytest.approx(told["more"], rel=1e-5)


def test_gguf_files_of_a_scaled_model_have_the_same_numbers_but_for_powers_of_two(
    tmp_path: Path, capsys: Capture
) -> None:
    """Norms of Gemma among them, to whose weights the file adds 1."""
    model = llama_models.folder(tmp_path / "model", "gemma3")
    ids = torch.randint(1, 500, (8, 72), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    rows = load_example("layer_inputs").recorded(model, [batch])
    fed_with = {name: each.numpy().copy() for name, each in rows.items()}
    for values in fed_with.values():
        values[:, 3::16] *= 24  # columns that are far larger
    inputs = checkpoint(tmp_path / "x.st", fed_with)
    words = (tmp_path / "model", tmp_path / "scaled", "--layer-inputs", inputs, *GROUPS)
    told = report(capsys, "scale", *words)
    found = []
    for name in ("model", "scaled"):
        target = tmp_path / f"{name}.gguf"
        report(capsys, "quantize", tmp_path / name, target, "--scheme", "f32")
        with read_gguf(target) as file:
            found.append({e.name: file.tensor(e).view(np.float32).copy() for e in file.entries})
    before, after = found
    assert before.keys() == after.keys()
    assert all(
        np.array_equal(np.frexp(before[name])[0], np.frexp(after[name])[0]) for name in before
    )
    other = [name for name in before if before[name].tobytes() != after[name].tobytes()]
    moved = [group for group in told["groups"] if any(group["powers"])]
    named = {name for group in moved for name in (*group["layers"], *group["makers"])}
    assert any("norm" in name for name in other)
    assert len(other) == len(named)


@pytest.mark.parametrize("scheme", ["nf4", "int8-channel"])
def test_other_schemes_have_scales_too(tmp_path: Path, capsys: Capture, scheme: str) -> None:
    options = ("--scheme", scheme, "--format", "bitsandbytes")
    model, inputs, told = scaled(capsys, tmp_path, "llama", *options)
    assert any(any(group["powers"]) for group in told["groups"])
    assert torch.equal(answer(model), answer(again("llama", tmp_path / "scaled")))
    verify = ("verify", tmp_path / "model", tmp_path / "scaled", "--layer-inputs", inputs)
    assert main([*map(str, verify)]) == 0


def test_what_was_changed_is_found(tmp_path: Path, capsys: Capture) -> None:
    _, inputs, _ = scaled(capsys, tmp_path, "bert")
    verify = ("verify", tmp_path / "model", tmp_path / "copy", "--layer-inputs", inputs, "--json")

    def found() -> dict[str, str]:
        status = main([*map(str, verify)])
        files = json.loads(capsys.readouterr().out)["files"]
        differing = {name: what for file in files for name, what in file["differing"].items()}
        assert status == bool(differing)
        return differing

    def anew() -> Path:
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        return shutil.copytree(tmp_path / "scaled", tmp_path / "copy")

    path = anew() / "model.safetensors"
    assert found() == {}
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    last = max(load(path).offsets.items(), key=lambda item: item[1])[0]
    other = {"planq.json": "other digests than those of the files"}
    assert found() == {last: "1 byte differs", **other}
    (anew() / "config.json").write_text("{}")
    assert found() == {"config.json": "other bytes", **other}
    (anew() / "more.txt").write_text("")
    assert found() == {"more.txt": "should not be there", **other}
    path = anew() / "planq.json"
    summary = json.loads(path.read_text())
    summary["scaled"]["groups"][0]["a"] = 0.125
    path.write_text(json.dumps(summary, indent=2) + "\n")
    assert found() == {"planq.json": "scaled: not as planq writes it"}
    summary = json.loads((anew() / "planq.json").read_text())
    summary["planq"]["version"] = "0.0.1"
    path.write_text(json.dumps(summary, indent=2) + "\n")
    assert found() == other
    anew()
    told = refuse(capsys, *verify[:3])
    assert "was made with other inputs: expected SHA-256 " in told
    assert ", got none" in told
    summary["scaled"]["options"]["scheme"] = 5
    path.write_text(json.dumps(summary))
    assert "is missing or damaged" in refuse(capsys, *verify)


@pytest.mark.filterwarnings("ignore")
@fuzzing(40)
def test_nothing_that_a_folder_says_is_an_internal_error(tmp_path: Path, chaos: Chaos) -> None:
    """Scaled or refused in a sentence, verified or refused: nothing else, and no trace."""
    source, target = tmp_path / str(chaos.random()) / "in", tmp_path / str(chaos.random())
    source.mkdir(parents=True)
    stem = "encoder.layer.0.attention"
    tensors = {f"{stem}.self.value.weight": weight(8, 8)}
    tensors |= {
        f"{stem}.output.dense.weight": weight(8, 8),
        f"{stem}.self.value.bias": weight(8, 1),
    }
    tensors[f"{stem}.self.value.bias"] = tensors[f"{stem}.self.value.bias"].ravel()
    checkpoint(source / "model.safetensors", tensors)
    fed = checkpoint(source.parent / "x.st", {f"{stem}.output.dense.weight": weight(20, 8)})
    config = {"model_type": "bert", "num_attention_heads": 2, "num_key_value_heads": 2}
    chosen = chaos.choice(("config.json", "planq.json"))
    told: Any = chaos.tampered(config) if chosen == "config.json" else config
    (source / "config.json").write_text(json.dumps(told))
    given = ("--layer-inputs", fed)
    options = ("--scheme", "int8-channel", "--format", "bitsandbytes")
    status, said = quietly("scale", source, target, *given, *options)
    assert status in (0, 2)
    assert target.exists() == (status == 0)
    if status == 0:
        summary = target / "planq.json"
        made = json.loads(summary.read_text())
        told = chaos.tampered(made) if chosen == "planq.json" else made
        summary.write_text(json.dumps(told, indent=2) + "\n")
        status, more = quietly("verify", source, target, *given)
        same = json.dumps(told) == json.dumps(made)
        assert status == 0 if same else status in (1, 2), (chosen, told, more)
        said += more
    assert "internal error" not in said
    assert "out of memory" not in said


def test_the_report_is_a_table(tmp_path: Path, capsys: Capture) -> None:
    _, inputs, told = scaled(capsys, tmp_path, "bert")
    words = ("scale", tmp_path / "model", tmp_path / "other", "--layer-inputs", inputs, *GROUPS)
    assert main([*map(str, words)]) == 0
    shown = capsys.readouterr().out
    for group in told["groups"]:
        assert all(name in shown for name in (*group["layers"], *group["makers"]))
        assert f"{group['relative_error']:.4f}" in shown
    assert "2 of 2 inputs scaled for int4-group, on host" in shown
    assert f"digest of the output: {told['digest']}" in shown
    assert "left out" not in shown
    verify = ("verify", tmp_path / "model", tmp_path / "other", "--layer-inputs", inputs)
    assert main([*map(str, verify)]) == 0
    assert capsys.readouterr().out == "2 inputs scaled again: every byte is equal\n"


def test_other_files_of_weights_are_left_out_and_told(tmp_path: Path, capsys: Capture) -> None:
    """They hold the model as it was."""
    model = made("bert", tmp_path / "model")
    inputs = fed(model, tmp_path / "inputs.st")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"weights")
    (tmp_path / "model" / "modules.json").write_text('[{"path": ""}, {"path": "2_Dense"}]')
    (tmp_path / "model" / "2_Dense").mkdir()
    checkpoint(
        tmp_path / "model" / "2_Dense" / "model.safetensors", {"linear.weight": weight(8, 8)}
    )
    words = ("scale", tmp_path / "model", tmp_path / "out", "--layer-inputs", inputs, *GROUPS)
    told = report(capsys, *words)
    assert told["left_out"] == ["pytorch_model.bin"]
    assert told["carried"] == ["2_Dense/model.safetensors"]
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    assert main([*map(str, words), "--force"]) == 0
    shown = capsys.readouterr().out
    assert "files with weights, left out: pytorch_model.bin\n" in shown
    assert "copied as they are: 2_Dense/model.safetensors\n" in shown


def test_the_example_names_weights_as_files_do(tmp_path: Path) -> None:
    """A model without its head has names without the prefix that its files have."""
    made("qwen3", tmp_path / "model")
    made("bert", tmp_path / "bert")
    example = load_example("layer_inputs")
    for kind, base in (("model", "model"), ("bert", "bert")):
        body = AutoModel.from_pretrained(tmp_path / kind, dtype=torch.float32).eval()
        batch = {"input_ids": tokens(), "attention_mask": torch.ones(8, 24, dtype=torch.int64)}
        rows = example.named(example.recorded(body, [batch]), tmp_path / kind, base)
        assert set(rows) <= set(load(tmp_path / kind / "model.safetensors").tensors)
        assert len(rows) == (14 if kind == "model" else 13)


def test_the_example_takes_tokenizers_without_padding(tmp_path: Path, capsys: Capture) -> None:
    """Those of Llama and Mistral; texts of other lengths give the rows that each has alone."""
    made("llama", tmp_path / "model")
    body = again("llama", tmp_path / "model", torch.float32)
    words = {f"w{n}": n for n in range(99)} | {"</s>": 99}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")
    fast.save_pretrained(tmp_path / "model")
    texts = ("w1 w2 w3 w4 w5", "w6 w7", "w8 w9 w10")
    (tmp_path / "texts.txt").write_text("\n\n".join(texts))
    given = [str(tmp_path / name) for name in ("model", "texts.txt", "inputs.st")]
    example = load_example("layer_inputs")
    assert example.main(given) == 0
    assert "14 layers, 10 to 10 rows of 3 texts" in capsys.readouterr().out
    found = load(tmp_path / "inputs.st").tensors
    alone = [example.recorded(body, [dict(fast(text, return_tensors="pt"))]) for text in texts]
    for name, rows in found.items():
        wanted = torch.cat([each[name] for each in alone]).numpy()
        # torch adds in another order where texts are padded.
        assert np.allclose(rows, wanted, rtol=1e-5, atol=2e-5), name


def test_bytes_do_not_depend_on_what_multiplies_matrices(tmp_path: Path, capsys: Capture) -> None:
    """NumPy with other kernels of OpenBLAS, and without wide vectors."""
    _, inputs, told = scaled(capsys, tmp_path, "gemma3")
    words = ("scale", "model", tmp_path / "other", "--layer-inputs", inputs, *GROUPS, "--force")
    for core, threads, without in (("PRESCOTT", "2", "X86_V4 X86_V3"), ("HASWELL", "1", "")):
        environment = {
            **os.environ,
            "OPENBLAS_CORETYPE": core,
            "OPENBLAS_NUM_THREADS": threads,
            "NPY_DISABLE_CPU_FEATURES": without,
        }
        made = subprocess.run(
            [sys.executable, "-P", "-W", "ignore", "-m", "planq.cli", *map(str, words), "--json"],
            env=environment,
            cwd=tmp_path,
            check=True,
            stdout=subprocess.PIPE,
        )
        assert json.loads(made.stdout)["digest"] == told["digest"], core
