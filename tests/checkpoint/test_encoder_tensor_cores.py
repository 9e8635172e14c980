"""examples/minilm_tensor_cores.py: MiniLM's encoder in NF4 and in bfloat16, on the host."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import torch

import minilm as shared
from checkpoint import model as minilm
from cli import demo_model
from ops.linear.float_sums import tensor_sm90
from support import examples

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
PRODUCTS = {"NF4": 36, "bfloat16": 48}


@pytest.fixture(autouse=True)
def host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a GPU nor transformers."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "transformers", None)


def test_both_schemes_have_one_digest_and_embeddings_that_are_near(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examples.load("minilm_tensor_cores").main(minilm.extract(tmp_path)) == 0
    told = capsys.readouterr().out
    parts = re.split(r"^(\d+) products in (\w+), .*\n", told, flags=re.MULTILINE)
    assert {parts[2]: int(parts[1]), parts[5]: int(parts[4])} == PRODUCTS
    for text, floor in ((parts[3], 0.97), (parts[6], 0.9999)):
        (cosine,) = re.findall(r"^cpu: cosine (\S+) on average", text, re.MULTILINE)
        assert float(cosine) >= floor
        digests = re.findall(r"^cpu, (?:alone|together|reversed): (\w{64})$", text, re.MULTILINE)
        assert len(digests) == 3
        assert len(set(digests)) == 1


def test_what_one_machine_recorded_another_checks_without_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, file = examples.load("minilm_tensor_cores"), tmp_path / "minilm.npz"
    assert program.main(demo_model.write(tmp_path).parent, file) == 0
    for name in ("safetensors", "safetensors.torch", "tokenizers"):
        monkeypatch.setitem(sys.modules, name, None)
    capsys.readouterr()
    assert program.check(file, "cpu") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"cpu, {scheme}, {way}: {count} of {count} products are the host's"
        for scheme, count in PRODUCTS.items()
        for way in ("alone", "together", "reversed")
    ]
    recording = program.Recording.read(file)
    entry = recording.products[-1]
    recording.arrays[entry["operands"][0]][0, 0, 0, 0] ^= 0x80  # a sign
    recording.write(file)
    assert program.check(file, "cpu") == 1
    told = capsys.readouterr().out
    assert told.count("47 of 48 products are the host's\n") == 3
    assert told.count(f"  another digest: {entry['name']}\n") == 3


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("digest", lambda fed, lengths, batches, device: len(batches)),
        ("embeddings", lambda states, mask: torch.full((1, 1), torch.nan)),
    ],
)
def test_it_fails_where_digests_or_embeddings_differ(
    name: str, damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, name, damage)
    assert examples.load("minilm_tensor_cores").main(demo_model.write(tmp_path).parent) == 1


@pytest.mark.parametrize("padding", [0, 3, 15, 120])
def test_padding_has_no_part_in_attention(padding: int) -> None:
    """Neither in the same group of a tensor core, nor as groups and slices of their own."""
    program, drawn = examples.load("minilm_tensor_cores"), np.random.default_rng(padding)
    tokens, width = 13, 32
    query, key, value = drawn.standard_normal((3, tokens + padding, width)) * 2.0 ** drawn.integers(
        -60, 4, (3, 1, width)
    )
    share = np.zeros((tokens + padding, tokens + padding))
    share[:tokens, :tokens] = drawn.random((tokens, tokens)) ** 30
    factors = [each.astype(ml_dtypes.bfloat16) for each in (query, key, share, value)]
    made = [torch.from_numpy(each.astype(np.float32)) for each in factors]
    scores = program.Scores()(*made[:2])[:tokens, :tokens].numpy()
    heard = program.Heard()(*made[2:])[:tokens].numpy()
    query, key, share, value = (each[:tokens] for each in factors)
    assert scores.tobytes() == tensor_sm90(query, key).tobytes()
    expected = tensor_sm90(share[:, :tokens], np.ascontiguousarray(value.T))
    assert heard.tobytes() == expected.tobytes()


@pytest.mark.parametrize("words", [[], ["model", "--check", "minilm.npz"]])
def test_it_takes_a_folder_or_a_file(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        examples.load("minilm_tensor_cores").arguments(words)
