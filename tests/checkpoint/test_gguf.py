"""GGUF files of planq in llama.cpp, and in the package gguf; files of others back."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from checkpoint import llama_models
from checkpoint import model as minilm
from checkpoint.llama_cpp import Server
from cli.commands import marked, quietly, refuse, report
from cli.files import Array, checkpoint, load
from planq.checkpoint import read_gguf
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_mix import FILE_TYPES, Mix
from planq.checkpoint.schemes import Scheme
from planq.cli import main
from support.hostile import Chaos, fuzzing

Capture = pytest.CaptureFixture[str]
VOCABULARY = llama_models.VOCABULARY
TEXTS = (
    "Tests compare with independent references: NumPy, 12 34! \u00e9 \u00fc",
    "a  b\n\nc </s> d's IT'S",
    "\t\u4f60\u597d \U0001f600",
)
RECORDED = json.loads(Path(__file__).with_name("llama_quantize.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """The folder of each small model, and the model as transformers has it."""
    root = tmp_path_factory.mktemp("models")
    return {
        name: (root / name, llama_models.folder(root / name, name)) for name in llama_models.MODELS
    }


def cosine(first: Array, second: Array) -> float:
    """How alike two arrays are, as vectors."""
    return float((first * second).sum() / np.linalg.norm(first) / np.linalg.norm(second))


def wanted(found: Any, tokens: list[int]) -> Array:
    """What transformers makes of tokens: of the last one logarithms, of a text its vector."""
    with torch.inference_mode():
        told = found(torch.tensor([tokens]))
    if hasattr(told, "logits"):
        return np.asarray(told.logits[0, -1].double().log_softmax(-1).numpy())
    mean = told.last_hidden_state[0].mean(0).double().numpy()
    return np.asarray(mean / np.linalg.norm(mean))


def of_llama_cpp(path: Path, name: str, prompts: list[list[int]]) -> list[Array]:
    """The same of llama.cpp, with a file."""
    server = Server(path, embedding=name == "bert")
    if name == "bert":
        return [server.embedding(tokens) for tokens in prompts]
    return [server.logarithms(tokens, VOCABULARY) for tokens in prompts]


# llama.cpp looks GELU up in a table of float16. With blocks of 8 bits, it rounds activations too.
@pytest.mark.parametrize(
    ("name", "scheme", "bound"),
    [
        *(("llama", "f32", 2e-5), ("llama", "f16", 0.02), ("llama", "q8_0", 0.3)),
        *(("gemma3", "f32", 0.01), ("gemma3", "q8_0", 0.4)),
        *(("qwen3", "f32", 2e-5), ("qwen3", "q8_0", 0.4)),
        *(("bert", "f32", 2e-4), ("bert", "q8_0", 0.01)),
    ],
)
def test_llama_cpp_computes_what_transformers_does(
    tmp_path: Path, capsys: Capture, made: Any, name: str, scheme: str, bound: float
) -> None:
    """Prompts longer than Gemma's window; q8_0 is far from a wrong order of rows all the same."""
    source, transformer = made[name]
    target = tmp_path / "out.gguf"
    report(capsys, "quantize", source, target, "--scheme", scheme)
    prompts = list(llama_models.prompts(2, 20))
    for tokens, found in zip(prompts, of_llama_cpp(target, name, prompts), strict=True):
        expected = wanted(transformer, tokens)
        assert np.abs(found - expected).max() < bound
        if name != "bert":
            assert expected.std() > 0.5


def with_weights_of(transformer: Any, path: Path) -> Any:
    """A Llama of transformers with the weights that planq restores of a file."""
    found = {name: torch.from_numpy(values.copy()) for name, values in load(path).tensors.items()}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    state = {}
    for key in transformer.state_dict():
        values = found[names.get_name(key, (".weight",))].float()
        if "q_proj" in key or "k_proj" in key:
            values = values.reshape(-1, 32, 2, 256).swapaxes(1, 2).reshape(values.shape)
        state[key] = values
    made = copy.deepcopy(transformer)
    made.load_state_dict(state)
    return made


@pytest.mark.parametrize("scheme", [scheme.value for scheme in FILE_TYPES])
def test_llama_cpp_runs_every_scheme(
    tmp_path: Path, capsys: Capture, made: Any, scheme: str
) -> None:
    """With the weights that planq restores of the file, but for what it rounds of activations."""
    source, transformer = made["llama"]
    target, back = tmp_path / "out.gguf", tmp_path / "back.st"
    told = report(capsys, "quantize", source, target, "--scheme", scheme)
    plain = scheme in ("f32", "f16", "bf16")
    assert len(told["tensors"]) == (0 if plain else 16)
    with read_gguf(target) as files:
        assert files.metadata["general.architecture"] == "llama"
        assert files.metadata["general.file_type"] == FILE_TYPES[Scheme(scheme)].number
    if not plain:
        report(capsys, "dequantize", target, back)
        transformer = with_weights_of(transformer, back)
    (tokens,) = llama_models.prompts(1, 20)
    (found,) = of_llama_cpp(target, "llama", [tokens])
    assert np.corrcoef(found, wanted(transformer, tokens))[0, 1] > 0.99


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3"])
def test_llama_cpp_cuts_text_as_the_tokenizer_does(
    tmp_path: Path, capsys: Capture, made: Any, name: str
) -> None:
    source, _ = made[name]
    target = tmp_path / "out.gguf"
    report(capsys, "quantize", source, target, "--scheme", "q8_0")
    server = Server(target)
    if name == "gemma3":  # which has pieces: the same in JSON, and without a space at the start
        llama_models.TOKENIZERS["llama"](tmp_path)
        values = json.loads((tmp_path / "tokenizer.json").read_text())
        values["normalizer"]["normalizers"].pop(0)
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
        source = tmp_path
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    for text in TEXTS:
        expected = tokenizer.encode(text, add_special_tokens=False).ids
        assert server.tokens(text) == expected, text


def test_the_package_reads_what_planq_wrote(tmp_path: Path, capsys: Capture, made: Any) -> None:
    """Names, shapes and values: those of safetensors, with rows reordered and norms raised by 1."""
    for name in ("llama", "gemma3"):
        source, transformer = made[name]
        target = tmp_path / f"{name}.gguf"
        told = report(capsys, "quantize", source, target, "--scheme", "q5_0", "--evaluate")
        reader = gguf.GGUFReader(target)
        assert reader.fields["planq.digest"].contents() == told["digest"]
        assert reader.fields["tokenizer.ggml.bos_token_id"].contents() == 1
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        state = {key: value.numpy() for key, value in transformer.state_dict().items()}
        keys = state["model.layers.1.self_attn.k_proj.weight"]
        if name == "llama":
            heads = [keys[at : at + 64] for at in range(0, len(keys), 64)]
            keys = np.concatenate([np.stack([h[:32], h[32:]], 1).reshape(64, -1) for h in heads])
        norm = state["model.layers.1.post_attention_layernorm.weight"] + (name == "gemma3")
        found = tensors["blk.1.attn_k.weight"]
        assert found.data.tobytes() == gguf.quants.quantize(keys, found.tensor_type).tobytes()
        row = next(row for row in told["tensors"] if row["name"] == found.name)
        back = gguf.quants.dequantize(found.data, found.tensor_type).astype(np.float64)
        error = np.linalg.norm(keys - back) / np.linalg.norm(keys.astype(np.float64))
        assert row["relative_error"] == pytest.approx(error, rel=1e-6)
        assert row["cosine"] == pytest.approx(cosine(keys.astype(np.float64), back), rel=1e-9)
        place = "ffn_norm" if name == "llama" else "post_attention_norm"
        assert tensors[f"blk.1.{place}.weight"].data.tobytes() == norm.tobytes()


def types(line: str) -> list[str]:
    """Types of layers, as the record has them: ``Q6_K*2 Q4_K``."""
    found: list[str] = []
    for run in line.split():
        kind, _, count = run.partition("*")
        found += [kind] * int(count or 1)
    return found


# Layers, heads that share one of values, whether the output layer is the embedding, and the width.
SHAPES = {
    "deep": (17, 4, False, 256, 256),
    "tied": (9, 1, True, 256, 512),
    "odd": (16, 1, False, 320, 288),
    "odd_tied": (8, 4, True, 256, 288),
    "large": (80, 2, False, 256, 256),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_types_are_those_of_llama_quantize(name: str) -> None:
    """Recorded from `llama_model_quantize` of llama.cpp b11739, on Llamas of these shapes.

    It refuses what has None. Its mxfp4 is of experts alone, and it makes no nvfp4.
    """
    layers, shared, tied, width, inner = SHAPES[name]
    for scheme, parts in RECORDED[name].items():
        mix = Mix(Scheme(scheme), layers, shared, tied, large=name == "large")
        if parts is None:
            with pytest.raises(CheckpointError, match="expected rows of a multiple of"):
                mix.type_of("blk.0.ffn_down.weight", inner)
            continue
        for part, line in parts.items():
            row = inner if part == "ffn_down" else width
            for layer, kind in enumerate(types(line)):
                outer = part in ("token_embd", "output")
                where = f"{part}.weight" if outer else f"blk.{layer}.{part}.weight"
                assert mix.type_of(where, row) == kind, (scheme, where)


def test_sentences_have_the_vectors_that_they_had(tmp_path: Path, capsys: Capture) -> None:
    """MiniLM with llama.cpp and its own tokenizer, whose rows are no multiple of 256."""
    source, target = minilm.extract(tmp_path), tmp_path / "minilm.gguf"
    told = report(capsys, "quantize", source, target, "--scheme", "q4_k_m")
    assert told["left_out"][-1] == "pooler.dense.weight"
    expected = minilm.embeddings(minilm.load(source), source).numpy()
    server = Server(target, embedding=True)
    found = np.stack([server.embedding(sentence) for sentence in minilm.sentences()])
    assert (found * expected).sum(-1).min() > 0.98


def tiny(path: Path, **changes: Any) -> Path:
    """A folder of one layer with weights of each type, and one of a block of zeros."""
    path.mkdir()
    width, values = 64, {}
    generator = np.random.default_rng(0)
    shapes = {
        **dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj"), (width, width)),
        **dict.fromkeys(("self_attn.v_proj", "self_attn.o_proj"), (width, width)),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj"), (32, width)),
        "mlp.down_proj": (width, 32),
        **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (width,)),
    }
    names = {f"model.layers.0.{name}.weight": shape for name, shape in shapes.items()}
    names |= {"model.embed_tokens.weight": (40, width), "model.norm.weight": (width,)}
    for number, (name, shape) in enumerate(names.items()):
        dtype = (np.float32, np.float16, np.float64)[number % 3]
        values[name] = generator.standard_normal(shape).astype(dtype)
    values["model.embed_tokens.weight"][3] = 0
    config = {
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 40,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
    }
    config = {key: value for key, value in (config | changes).items() if value is not None}
    checkpoint(path / "model.safetensors", values)
    (path / "config.json").write_text(json.dumps(config))
    vocabulary = {"<unk>": 0, "<s>": 1} | {chr(97 + at): 2 + at for at in range(26)}
    steps = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    tokenizer = {
        "added_tokens": [{"id": 1, "content": "<s>", "special": True}],
        "pre_tokenizer": steps,
        "decoder": steps,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    return path


def test_one_flipped_bit_is_found(tmp_path: Path, capsys: Capture) -> None:
    """By a comparison with the source, and by the file's own digest of all that it holds."""
    source, target = tiny(tmp_path / "in"), tmp_path / "out.gguf"
    back = tmp_path / "back.st"
    told = report(capsys, "quantize", source, target, "--scheme", "q4_0", "--verify")
    assert all(0 <= row["max_error"] < 2 for row in told["tensors"])
    assert report(capsys, "verify", source, target)["equal"]
    assert report(capsys, "dequantize", target, back)["verified"]
    restored = load(back).tensors
    sound = target.read_bytes()
    places = {tensor.name: int(tensor.data_offset) for tensor in gguf.GGUFReader(target).tensors}
    assert restored.keys() == places.keys()
    places["header"] = sound.index(b"llama.context_length") + len("llama.context_length") + 4
    chosen = ("token_embd.weight", "blk.0.attn_norm.weight", "header")
    for name in chosen:
        content = bytearray(sound)
        content[places[name]] ^= 1
        target.write_bytes(content)
        assert main(["verify", str(source), str(target), "--json"]) == 1
        (file,) = json.loads(capsys.readouterr().out)["files"]
        what = "other metadata: llama.context_length" if name == "header" else "1 byte differs"
        assert file["differing"] == {name: what}
        line = refuse(capsys, "dequantize", target, tmp_path / "no.st")
        assert "content: expected SHA-256" in line, name
        assert main(["dequantize", str(target), str(back), "--json", "--force"]) == 1
        assert json.loads(capsys.readouterr().out)["damaged"]
    target.write_bytes(sound.replace(b"planq.digest", b"planq.digesX"))
    line = refuse(capsys, "dequantize", target, tmp_path / "no.st")
    assert "metadata planq.digest is missing or damaged" in line


def test_some_weights_stay_and_marked_ones_are_told(tmp_path: Path, capsys: Capture) -> None:
    source, target = tiny(tmp_path / "in"), tmp_path / "out.gguf"
    options = ("--scheme", "q8_0", "--include", "mlp|q_proj", "--exclude", "up_proj")
    told = report(capsys, "quantize", source, target, *options)
    assert {row["name"].split(".")[2] for row in told["tensors"]} == {
        "attn_q",
        "ffn_gate",
        "ffn_down",
    }
    floating = {row["name"]: row["why"] for row in told["floating"]}
    assert floating["blk.0.ffn_up.weight"] == "--exclude finds it"
    assert floating["token_embd.weight"] == "--include does not find it"
    with read_gguf(target) as files:
        kinds = {name: entry.dtype for name, entry in files.by_name.items()}
    assert (kinds["blk.0.ffn_up.weight"], kinds["output_norm.weight"]) == ("F32", "F32")
    assert report(capsys, "verify", source, target)["equal"]
    stored = load(source / "model.safetensors").tensors
    stored = {name: values.copy() for name, values in stored.items()}
    stored["model.layers.0.mlp.down_proj.weight"][1, 1] = np.inf
    checkpoint(source / "model.safetensors", stored)
    told = marked(capsys, "quantize", source, tmp_path / "b.gguf", *options)
    counts = {row["name"]: row["non_finite_values"] for row in told["tensors"]}
    assert counts["blk.0.ffn_down.weight"] == 1


# What is wrong with a folder, and what is said of it.
CONFIGS = {
    "model_type: expected an architecture that planq writes as GGUF "
    "(llama, gemma3_text, qwen3, bert), got 'gpt2'": {"model_type": "gpt2"},
    "hidden_act: expected 'silu', got 'relu'": {"hidden_act": "relu"},
    "num_attention_heads: expected a number from 1 on, got nothing": {"num_attention_heads": None},
    "expected 4 heads of 32 rows, an even number": {"num_attention_heads": 4, "head_dim": 32},
    "a tensor for llama.cpp's blk.1.attn_k.weight, found none": {"num_hidden_layers": 2},
    "a rope_type of default or linear, or for Llama llama3, got 'yarn'": {
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}
    },
    "use_sliding_window: expected False, got True": {
        "model_type": "qwen3",
        "use_sliding_window": True,
    },
    "layer_types: expected full_attention in each sixth layer": {
        "model_type": "gemma3_text",
        "layer_types": ["full_attention"],
    },
    "already quantized": {"quantization_config": {}},
    "tie_word_embeddings: expected True, as there is no lm_head.weight, got False": {
        "tie_word_embeddings": False
    },
}


@pytest.mark.parametrize("said", CONFIGS)
def test_what_llama_cpp_would_compute_otherwise_is_refused(
    tmp_path: Path, capsys: Capture, said: str
) -> None:
    source = tiny(tmp_path / "in", **CONFIGS[said])
    line = refuse(capsys, "quantize", source, tmp_path / "out.gguf", "--scheme", "q8_0")
    assert said in line
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_damaged_folder_is_refused(tmp_path: Path, capsys: Capture) -> None:
    """Nothing is written, and an output that stands there stays."""
    source, target = tiny(tmp_path / "in"), tmp_path / "out.gguf"
    options = ("--scheme", "q8_0")

    def refused() -> str:
        line = refuse(capsys, "quantize", source, target, *options)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
        return line

    tokenizer = source / "tokenizer.json"
    sound = tokenizer.read_text()
    for old, new, said in (
        ('"BPE"', '"Unigram"', "model: expected the type BPE, got 'Unigram'"),
        ('"ByteLevel"', '"Whitespace"', "pre_tokenizer: expected that of llama-bpe, qwen2, gpt-2"),
        ('"z": 27', '"z": 40', "expected tokens below 40, the rows of the embedding, got 40"),
        ('"z": 27', '"z": "27"', "damaged: TypeError"),
        ('"z"', r'"\ud800"', "expected Unicode"),
    ):
        assert sound.count(old)
        tokenizer.write_text(sound.replace(old, new))
        assert said in refused()
    tokenizer.unlink()
    assert "holds neither tokenizer.model nor tokenizer.json" in refused()
    for content in (b"\x0a\x05abc", b"\x0a", b"", b"\xff" * 12):
        (source / "tokenizer.model").write_bytes(content)
        assert "tokenizer.model: " in refused()
    (source / "tokenizer.model").unlink()
    tokenizer.write_text(sound)
    stored = dict(load(source / "model.safetensors").tensors)
    checkpoint(
        source / "model.safetensors", stored | {"score.weight": np.ones((2, 64), np.float32)}
    )
    assert "tensor 'score.weight': expected a tensor of the architecture" in refused()
    checkpoint(source / "model.safetensors", stored)
    target.write_text("precious")
    assert "exists; --force replaces it" in refuse(capsys, "quantize", source, target, *options)
    assert target.read_text() == "precious"


@fuzzing(25)
def test_nothing_that_a_folder_says_is_an_internal_error(tmp_path: Path, chaos: Chaos) -> None:
    """Written or refused in a sentence; what is written reads back, and is the same again."""
    source = tiny(tmp_path / str(chaos.random()))
    target = tmp_path / f"{source.name}.gguf"
    names = ("config.json", "tokenizer.json")
    texts = {name: json.loads((source / name).read_text()) for name in names}
    settings = {"bos_token": "<s>", "added_tokens_decoder": {"2": {"content": "a"}}}
    texts["tokenizer_config.json"] = {**settings, "add_prefix_space": True, "chat_template": "{}"}
    texts["tokenizer.json"]["model"]["merges"] = ["a b"]
    if chaos.random() < 0.3:
        texts["tokenizer.json"]["model"] |= {"byte_fallback": True, "unk_token": "<unk>"}
    chosen = chaos.choice((*texts, "tokenizer.model"))
    for name, values in texts.items():
        told = chaos.tampered(values) if name == chosen else values
        (source / name).write_text(json.dumps(told))
    if chosen == "tokenizer.model":
        piece = b"\x0a\x0a\x0a\x01a\x15\x00\x00\x80\xbf\x18\x01"
        (source / chosen).write_bytes(chaos.spliced(piece * 3 + b"\x1a\x02\x18\x00"))
    status, said = quietly("quantize", source, target, "--scheme", "q4_0")
    assert status in (0, 2), said
    assert "internal error" not in said
    assert target.exists() == (status == 0)
    if status == 0:
        status, said = quietly("verify", source, target)
        assert status == 0, said
        assert gguf.GGUFReader(target).tensors


def test_options_that_do_not_go_with_gguf_are_refused(tmp_path: Path, capsys: Capture) -> None:
    source, target = tiny(tmp_path / "in"), tmp_path / "out.gguf"
    start = ("quantize", source, target, "--scheme")
    assert "--scheme: gguf has f32, f16" in refuse(capsys, *start, "nf4")
    assert "gguf leaves nothing out" in refuse(capsys, *start, "q8_0", "--no-default-excludes")
    assert "--block-size: expected one of" in refuse(capsys, *start, "q8_0", "--block-size", "32")
    assert "no weight that the options allow" in refuse(capsys, *start, "q8_0", "--include", "no")
    file = source / "model.safetensors"
    line = refuse(capsys, "quantize", file, target, "--scheme", "q8_0")
    assert "expected a model's folder" in line
    assert "plain has int8-channel" in refuse(
        capsys, "quantize", file, "out.st", "--scheme", "q8_0"
    )
    shutil.copy(file, target)
    assert "not a valid GGUF file" in refuse(capsys, "verify", source, target)
    assert "not a valid GGUF file" in refuse(capsys, "dequantize", target, tmp_path / "back.st")


def written(path: Path, tensors: dict[str, tuple[Array, str]]) -> None:
    """A file that the package made: blocks, or float32."""
    writer = gguf.GGUFWriter(path, "llama")
    for name, (values, kind) in tensors.items():
        writer.add_tensor(name, values, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# Of each kind of layout some; tests/ops/gguf has the values of all.
OTHER_BLOCKS = ("Q4_1", "Q5_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4", "TQ1_0")
OTHER_BLOCKS += ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_files_of_others_are_restored(tmp_path: Path, capsys: Capture, dtype: str) -> None:
    """As the package does, then rounded; low bytes have no infinite scale among them."""
    source, target = tmp_path / "in.gguf", tmp_path / "back.st"
    expected, tensors = {}, {}
    for seed, name in enumerate(OTHER_BLOCKS):
        kind = gguf.GGMLQuantizationType[name]
        _, nbytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.random.default_rng(seed).integers(0, 0x38, (5, 3 * nbytes), dtype=np.uint8)
        tensors[name] = blocks, name
        values = gguf.quants.dequantize(blocks, kind)
        expected[name] = torch.from_numpy(values).to(getattr(torch, dtype))
    bias = np.arange(7, dtype=np.float32)
    written(source, tensors | {"bias": (bias, "F32")})
    told = report(capsys, "dequantize", source, target, "--dtype", dtype)
    assert (told["verified"], told["damaged"]) == (False, False)
    assert {t["sku"].partition("/")[0] for t in told["tensors"]} == {"gguf_dequantize"}
    with safe_open(target, "pt") as restored:
        assert set(restored.keys()) == {*expected, "bias"}
        for name, values in expected.items():
            assert torch.equal(restored.get_tensor(name), values), name
        assert torch.equal(restored.get_tensor("bias"), torch.from_numpy(bias))
