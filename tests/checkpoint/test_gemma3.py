"""examples/gemma3.py on a small model: near transformers', tokens by the rule, one digest."""

from __future__ import annotations

import hashlib
import itertools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch

import gemma3
import gemma3_attention
import gemma3_check
import gemma3_drawn
import gemma3_model
import gemma3_products
import gemma3_tokenizer
import planq
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
    METADATA,
    NORMS,
    VOCABULARY,
    WINDOW,
    WINDOWED_BASE,
    write,
)
from planq.checkpoint import read_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from planq.checkpoint import GgufFiles

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.usefixtures("one_thread")

# Of all products of the text that main makes, on every machine.
DIGEST = "cd4a43ef13f0a8e45f6d757c6573cf2b28ae5891a7195da56d926b1baba91b76"
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

IDS = {token: i for i, (token, _, _) in enumerate(VOCABULARY)}


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


# --- The program


def test_it_computes_what_transformers_does(path: Path, files: GgufFiles) -> None:
    """The program in float32 to its precision, that of plans but for int8 activations."""
    ids = np.random.default_rng(1).integers(0, len(VOCABULARY), 24).tolist()
    with torch.no_grad():
        exact = peer(path)(torch.tensor([ids])).logits[0].numpy()
    made = gemma3_check.Made(ids[:1], [*ids[1:], 0])
    (floating,) = gemma3_check.Floating(files).logits([made])
    assert np.abs(floating - exact).max() < 1e-4 * np.abs(exact).max()
    found, _ = gemma3_check.alone(gemma3_model.Model(files), made, len(ids))
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
        assert told.startswith(PROMPT)
        assert "prompt: 8 tokens in " in told
        assert "text: 8 tokens in " in told
        assert told.splitlines()[-1] == f"digest of all products: {DIGEST}"


def test_a_text_has_one_digest_in_any_batch_and_any_pieces(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemma3_check, "PROMPTS", ("cab a", PROMPT, "\n\n\nab abc", "", "aaaa"))
    # The weights are random, so the likeliest tokens are hardly likelier than others.
    monkeypatch.setattr(gemma3_check, "LEAST_EQUAL", 0.8)
    assert gemma3.main([str(path), "--check", "--tokens", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:-1] == [
        "alone, in one step: 5 of 5 have the same digest",
        "alone, 1 token at a time: 2 of 2 have the same digest",
        "alone, 7 tokens at a time: 3 of 3 have the same digest",
    ]
    for name, value in (("MOST_RMS", 0.0), ("LEAST_EQUAL", 1.1)):
        with monkeypatch.context() as other:
            other.setattr(gemma3_check, name, value)
            assert gemma3.main([str(path), "--check", "--tokens", "1"]) == 1
    monkeypatch.setattr(gemma3_model.Text, "digest", lambda text: str(id(text)))
    assert gemma3.main([str(path), "--check", "--tokens", "1"]) == 1
    assert "0 of 5 have the same digest" in capsys.readouterr().out


def test_products_of_a_record_are_computed_again(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a file, and by the program; a weight with another bit is another digest."""
    kept = tmp_path / "record.npz"
    assert gemma3.main([str(path), "--record", str(kept), "--verify", str(kept)]) == 0
    count = LAYERS * len(BLOCKS) + 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{count} products of 64 tokens"
    assert lines[1:] == [
        f"host, {way}: {count} of {count} products have the same digest"
        for way in gemma3_products.WAYS
    ]
    with read_gguf(path) as files:
        model = gemma3_model.Model(files)
    model.weights["blk.1.ffn_up.weight"][3, 7] ^= 1
    record = gemma3_products.read(kept)
    found = gemma3_products.differing(model, record, gemma3_products.Host())
    assert {name for names in found.values() for name in names} == {"blk.1.ffn_up"}
    assert gemma3_products.told(record, found, "host")[0].startswith(f"host, alone: {count - 1} of")


def test_a_drawn_model_has_the_types_of_the_file() -> None:
    """Every machine draws the same weights, and runs them."""
    files = gemma3_drawn.Drawn(layers=3, vocabulary=512)
    kinds = {name: entry.dtype for name, entry in files.by_name.items()}
    assert [kinds[f"blk.{i}.ffn_down.weight"] for i in range(3)] == ["Q6_K", "Q6_K", "Q4_K"]
    assert kinds["blk.2.attn_v.weight"] == "Q5_0"
    head = files.tensor(files.by_name["token_embd.weight"])
    assert hashlib.sha256(head).hexdigest() == DRAWN
    model = gemma3_model.Model(files, context=16, rows=8)
    record = gemma3_products.recorded(model, range(5), 3)
    assert len(record["blk.0.qkv"].operands["input"]) == 8
    found = gemma3_products.differing(model, record, gemma3_products.Host())
    assert found == {way: [] for way in gemma3_products.WAYS}


def test_a_digest_has_every_product(files: GgufFiles) -> None:
    """A bit of any result is another digest, and so is another order of tokens."""
    model = gemma3_model.Model(files, rows=8)
    text = gemma3_model.Text(model.sizes, 2, digested=True)
    model.step([gemma3_model.Part(text, [5, 6])])
    names = {f"blk.{i}.{name}" for i in range(LAYERS) for name in BLOCKS} | {"token_embd"}
    assert text.digests is not None
    assert set(text.digests) == names
    before = text.digest()
    text.digests["blk.3.attn_k"].update(b"\0")
    assert text.digest() != before


def test_steps_are_refused_that_do_not_fit(files: GgufFiles) -> None:
    model = gemma3_model.Model(files, rows=3, context=8)
    text = gemma3_model.Text(model.sizes, 2)
    with pytest.raises(ValueError, match="a sequence of 2 tokens has no room for more"):
        model.step([gemma3_model.Part(text, [1, 2, 3])])
    with pytest.raises(ValueError, match="a step takes 3 tokens at most, got 4"):
        model.step([gemma3_model.Part(text, [1, 2, 3, 4])])
    model = gemma3_model.Model(files, context=1)
    with pytest.raises(ValueError, match="a sequence of 1 tokens has no room for more"):
        model.step([gemma3_model.Part(gemma3_model.Text(model.sizes, 5), [1, 2])])


def test_other_files_are_refused(tmp_path: Path) -> None:
    with (
        read_gguf(write(tmp_path / "a.gguf", architecture="llama")) as files,
        pytest.raises(ValueError, match="expected 'gemma3', got 'llama'"),
    ):
        gemma3_model.Model(files)
    with (
        read_gguf(write(tmp_path / "b.gguf", norms=np.float16)) as files,
        pytest.raises(ValueError, match=r"'output_norm.weight': expected F32 .*, got F16"),
    ):
        gemma3_model.Model(files)


@dataclass(frozen=True)
class Heads:
    """Of a model with attention alone."""

    heads: int = 4
    key_heads: int = 2
    head: int = HEAD
    window: int = 9


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e4, 0.0])
def test_attention_is_nearly_that_of_real_numbers(scale: float, windowed: bool) -> None:
    """Of float16 numbers; and a token alone has the bits that it has among others."""
    sizes, draw, count = Heads(), np.random.default_rng(7), 40
    query, keys, values = (
        draw.standard_normal((count, heads, HEAD)).astype(np.float16)
        for heads in (sizes.heads, sizes.key_heads, sizes.key_heads)
    )
    values = (values * np.float32(scale)).astype(np.float16)
    attention = gemma3_attention.Attention(sizes, count, planq.HOST)

    def attend(cuts: list[int]) -> np.ndarray[Any, Any]:
        held = gemma3_attention.Cache.of(sizes, count)
        found = np.empty((count, sizes.heads * HEAD), np.float32)
        for first, end in itertools.pairwise(cuts):
            rows = [x[first:end].reshape(end - first, -1) for x in (query, keys, values)]
            new = gemma3_attention.New(*rows)
            attention.attend(new, held, first, found[first:end], windowed=windowed)
        return found

    found = attend([0, count])
    assert attend([0, 30, *range(31, count + 1)]).tobytes() == found.tobytes()
    own = np.arange(count)[:, None] - np.arange(count)
    visible = (own >= 0) & (own < sizes.window) if windowed else own >= 0
    for head in range(sizes.heads):
        of_keys = head // (sizes.heads // sizes.key_heads)
        q, k, v = (
            x[:, i].astype(float) for x, i in ((query, head), (keys, of_keys), (values, of_keys))
        )
        scores = np.where(visible, q @ k.T / np.sqrt(HEAD), -np.inf)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact = powers @ v / powers.sum(axis=1, keepdims=True)
        mine = found[:, head * HEAD : (head + 1) * HEAD]
        assert np.abs(mine - exact).max() <= 2e-3 * np.abs(v).max()


# --- Tokens


def joined(text: str) -> list[str]:
    """By the rule as it is written: all neighbours are looked at before each join."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [first + second for first, second in itertools.pairwise(parts)]
        scores = [VOCABULARY[IDS[pair]][2] if pair in IDS else -np.inf for pair in pairs]
        if max(scores, default=-np.inf) == -np.inf:
            return parts
        at = scores.index(max(scores))
        parts[at : at + 2] = [pairs[at]]


def test_neighbours_join_by_their_score() -> None:
    tokenizer = gemma3_tokenizer.Tokenizer(METADATA)
    draw = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(draw.choice(list("aaabbc  Zé€\x01"), draw.integers(0, 24)))
        first, *ids = tokenizer.encode(text)
        assert first == IDS["<bos>"]
        expected = [
            each
            for part in joined(text)
            for each in ([part] if part in IDS else [f"<0x{byte:02X}>" for byte in part.encode()])
        ]
        assert [VOCABULARY[i][0] for i in ids] == expected, text
        assert tokenizer.decode(ids) == text


def test_what_the_vocabulary_says() -> None:
    tokenizer = gemma3_tokenizer.Tokenizer(METADATA)

    def encoded(text: str) -> list[str]:
        first, *ids = tokenizer.encode(text)
        assert first == IDS["<bos>"]
        return [VOCABULARY[i][0] for i in ids]

    assert encoded("") == []
    # "ab" and "ba" have one score: the leftmost joins first. Then "aba" is a token.
    assert encoded("ababa") == ["ab", "aba"]
    assert encoded("baba") == ["ba", "ba"]
    # No space is put before a text, and each becomes a character of its own kind.
    assert encoded("a a") == ["a", "▁a"]
    # Tokens that are not made by joining are cut out, the longest first.
    assert encoded("\n\n\n\n") == ["\n\n\n", "\n"]
    assert encoded("aa<b><b>") == ["a", "a<b>", "<b>"]
    assert encoded("<turn>ab<turn>") == ["<turn>", "ab", "<turn>"]
    # What is no token becomes the bytes of UTF-8.
    assert encoded("a€") == ["a", "<0xE2>", "<0x82>", "<0xAC>"]
    assert tokenizer.decode(tokenizer.encode("<turn>a €\n\n<b>")) == "a €\n\n<b>"
    assert tokenizer.decode([IDS["<0xE2>"], IDS["a"]]) == "\ufffda"
    assert tokenizer.ends == {IDS["<eos>"], IDS["<end_of_turn>"]}


def test_another_kind_of_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 'llama', got 'gpt2'"):
        gemma3_tokenizer.Tokenizer(METADATA | {"tokenizer.ggml.model": "gpt2"})
