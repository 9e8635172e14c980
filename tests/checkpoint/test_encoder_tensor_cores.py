"""examples/minilm_tensor_cores.py: MiniLM's encoder in NF4 and in bfloat16, on the host."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
import torch

import minilm_torch as encoder
from checkpoint import model as minilm
from planq.audit.ops.linear.float_sums import tensor_sm90
from support import examples

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


def test_both_schemes_have_one_digest_and_embeddings_that_are_near(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every third sentence, on a machine with neither a GPU nor transformers."""
    monkeypatch.setattr(encoder, "SENTENCES", encoder.SENTENCES[::3])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert examples.encode("minilm_tensor_cores", minilm.extract(tmp_path)) == 0
    told = capsys.readouterr().out
    parts = re.split(r"^(\d+) products in (\w+), .*\n", told, flags=re.MULTILINE)
    found = {parts[2]: int(parts[1]), parts[5]: int(parts[4])}
    assert found == examples.ENCODERS["minilm_tensor_cores"]
    for text, floor in ((parts[3], 0.97), (parts[6], 0.9999)):
        (cosine,) = re.findall(r"^cpu: cosine (\S+) on average", text, re.MULTILINE)
        assert float(cosine) >= floor
        digests = re.findall(r"^cpu, (?:alone|together|reversed): (\w{64})$", text, re.MULTILINE)
        assert len(digests) == 3
        assert len(set(digests)) == 1


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
