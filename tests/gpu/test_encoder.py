"""examples/minilm_w8a8.py on a GPU: the products' digest is the host's."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from cli import demo_model
from support import examples

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


def test_the_example_in_torch_has_one_digest_on_both_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    folder = demo_model.write(tmp_path).parent
    assert examples.load("minilm_w8a8").main(folder) == 0
    told = capsys.readouterr().out
    assert re.findall(r"^(cpu|cuda): cosine 0\.99", told, re.MULTILINE) == ["cpu", "cuda"]
    ways = r"^(?:cpu|cuda), (?:alone|together|reversed): (\w{64})$"
    digests = re.findall(ways, told, re.MULTILINE)
    assert len(digests) == 6
    assert len(set(digests)) == 1
