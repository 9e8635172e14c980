"""examples/networks/gemma3.py on a small model: near transformers', and one digest."""

from __future__ import annotations

import hashlib
import json
import warnings
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch

import gemma3
import gemma3_check
import gemma3_products
from checkpoint.model import transformers
from checkpoint.small_gemma3 import (
    BASE,
    BLOCKS,
    EPSILON,
    HEAD,
    HEADS,
    HIDDEN,
    INNER,
    LAYERS,
    NORMS,
    WINDOW,
    WINDOWED_BASE,
    write,
)
from checkpoint.small_vocabulary import VOCABULARY
from gemma3_drawn import Drawn
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import Gemma3, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planq.checkpoint import GgufFiles

pytestmark = pytest.mark.usefixtures("one_thread")

# Of the logits of the text that main makes, on every machine.
DIGEST = "81eab4e17071cabd628acc6269fa9f2244bc4621133a6cb6fe4c3cdf87e3b2f1"
# Of the head of a drawn model, likewise.
DRAWN = "38006c92fb309f79ef65fab7f2994fed931014deb20787ac7f7a250a1ed96924"
PROMPT = "a cab<turn>\nZé"
PRODUCTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gemma3") / "small.gguf")


@pytest.fixture(scope="module")
def files(path: Path) -> Iterator[GgufFiles]:
    with read_gguf(path) as files:
        yield files


def peer(path: Path) -> Any:
    """Transformers' model with the same weights, which the package gguf dequantizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of what it imports only now.
        made = transformers.Gemma3ForCausalLM
    config = transformers.Gemma3TextConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=HEAD,
        query_pre_attn_scalar=HEAD,
        sliding_window=WINDOW,
        rms_norm_eps=EPSILON,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": BASE},
            "sliding_attention": {"rope_type": "default", "rope_theta": WINDOWED_BASE},
        },
        attn_implementation="eager",
    )
    found = {
        tensor.name.removesuffix(".weight"): torch.from_numpy(
            gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        )
        for tensor in gguf.GGUFReader(path).tensors
    }
    # A file has 1 + w for the norms.
    state = {
        "model.embed_tokens.weight": found["token_embd"],
        "lm_head.weight": found["token_embd"],
        "model.norm.weight": found["output_norm"] - 1,
    }
    for i in range(LAYERS):
        for name, theirs in PRODUCTS.items():
            state[f"model.layers.{i}.{theirs}.weight"] = found[f"blk.{i}.{name}"]
        for name, (theirs, _) in NORMS.items():
            state[f"model.layers.{i}.{theirs}.weight"] = found[f"blk.{i}.{name}"] - 1
    model = made(config).eval()
    model.load_state_dict(state)
    return model


def test_it_computes_what_transformers_does(path: Path, files: GgufFiles) -> None:
    """The program in float32 to its precision, the network but for int8 activations."""
    ids = np.random.default_rng(1).integers(0, len(VOCABULARY), 24).tolist()
    with torch.no_grad():
        exact = peer(path)(torch.tensor([ids])).logits[0].numpy()
    made = gemma3_check.Made(ids[:1], [*ids[1:], 0])
    (floating,) = gemma3_check.Floating(files).logits([made])
    assert np.abs(floating - exact).max() < 1e-4 * np.abs(exact).max()
    found = gemma3_check.logits_of(Gemma3(files, limits=Limits(texts=1)), made)
    assert found.shape == exact.shape
    difference = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 1e-4 < difference < 0.05


def test_it_prints_the_digest_of_every_machine(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for threads in ("1", "2"):
        words = [str(path), "--prompt", PROMPT, "--tokens", "9", "--threads", threads]
        assert gemma3.main(words) == 0
        told = capsys.readouterr().out
        # Control tokens have no text.
        assert told.startswith(PROMPT.replace("<turn>", ""))
        assert "prompt: 8 tokens in " in told
        assert "text: 8 tokens in " in told
        assert told.splitlines()[-1] == f"digest: {DIGEST}"


def test_it_compares_texts(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma3_check, "PROMPTS", ("cab a", PROMPT, "\n\n\nab abc", "", "aaaa"))
    # The weights are random, so the likeliest tokens are hardly likelier than others.
    monkeypatch.setattr(gemma3_check, "LEAST_EQUAL", 0.8)
    words = [str(path), "--check", "--tokens", "5"]
    assert gemma3.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("5 texts, 5 tokens made of each, in the same steps: ")
    assert lines[1:-1] == [f"{way}: 5 of 5 have the same digest" for way in gemma3_check.WAYS]
    for name, value in (("MOST_RMS", 0.0), ("LEAST_EQUAL", 1.1)):
        with monkeypatch.context() as other:
            other.setattr(gemma3_check, name, value)
            assert gemma3.main(words) == 1
    completed, calls = gemma3_check.completed, list[int]()

    def another(*args: Any, **options: Any) -> Any:
        found = completed(*args, **options)
        calls.append(len(calls))
        return [found[0]._replace(digest=str(calls)), *found[1:]]

    monkeypatch.setattr(gemma3_check, "completed", another)
    capsys.readouterr()
    assert gemma3.main(words) == 1
    assert "each alone: 3 of 5 have the same digest" in capsys.readouterr().out


def test_products_of_a_record_are_computed_again(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A weight with another bit is another product, and changes those behind it alone."""
    kept = tmp_path / "record.json"
    assert gemma3.main([str(path), "--record", str(kept), "--verify", str(kept)]) == 0
    count = LAYERS * len(BLOCKS) + 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{count} products of 64 tokens"
    assert lines[1:] == [
        f"host, {way}: {count} of {count} products have the same digest"
        for way in gemma3_products.WAYS
    ]
    told = json.loads(kept.read_text())
    with read_gguf(path) as files:
        network = Gemma3(files, limits=Limits(rows=32, texts=1, asked=32, context=64))
    names = set(told["digests"])
    assert names == {f"blk.{i}.{name}" for i in range(LAYERS) for name in BLOCKS} | {"token_embd"}
    network.weights["blk.1.ffn_up"][3, 7] ^= 1
    found = gemma3_products.differing(network, told["ids"], told["digests"])
    before = {f"blk.{i}.{name}" for i in (0, 1) for name in BLOCKS} - {
        "blk.1.ffn_up",
        "blk.1.ffn_down",
    }
    for others in found.values():
        assert others[0] == "blk.1.ffn_up"
        assert set(others) == names - before
    told["digests"]["blk.0.attn_k"] = "another"
    kept.write_text(json.dumps(told))
    assert gemma3.main([str(path), "--verify", str(kept)]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith(f"host, alone: {count - 1} of {count} products have the same digest")
    assert line.endswith("; the first other one is blk.0.attn_k")


def test_a_drawn_model_has_the_types_of_the_file() -> None:
    """Every machine draws the same weights, and runs them."""
    files = Drawn(layers=3, vocabulary=512)
    kinds = {name: entry.dtype for name, entry in files.by_name.items()}
    assert [kinds[f"blk.{i}.ffn_down.weight"] for i in range(3)] == ["Q6_K", "Q6_K", "Q4_K"]
    assert kinds["blk.2.attn_v.weight"] == "Q5_0"
    head = files.tensor(files.by_name["token_embd.weight"])
    assert hashlib.sha256(head).hexdigest() == DRAWN


def test_a_drawn_model_has_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gemma3.main(["drawn"])
    assert "it takes --record or --verify" in capsys.readouterr().err


def test_a_record_of_a_drawn_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma3, "Drawn", lambda: Drawn(layers=2, vocabulary=512))
    kept = tmp_path / "record.json"
    assert gemma3.main(["drawn", "--record", str(kept), "--verify", str(kept)]) == 0
    assert capsys.readouterr().out.count("15 of 15 products have the same digest") == 3
