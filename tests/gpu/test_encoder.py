"""The examples of MiniLM's encoder on a GPU: the products' digests are the host's."""

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a model that takes no network."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    return demo_model.write(tmp_path).parent


@pytest.mark.parametrize("name", examples.ENCODERS)
def test_each_scheme_has_one_digest_on_both_devices(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examples.encode(name, folder) == 0
    told = capsys.readouterr().out
    _, *parts = re.split(r"^\d+ products in (\w+), .*\n", told, flags=re.MULTILINE)
    assert parts[::2] == list(examples.ENCODERS[name])
    for text in parts[1::2]:
        assert re.findall(r"^(cpu|cuda): cosine 0\.9", text, re.MULTILINE) == ["cpu", "cuda"]
        ways = r"^(?:cpu|cuda), (?:alone|together|reversed): (\w{64})$"
        digests = re.findall(ways, text, re.MULTILINE)
        assert len(digests) == 6
        assert len(set(digests)) == 1


@pytest.mark.parametrize("name", examples.ENCODERS)
def test_a_gpu_checks_what_a_host_recorded(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "minilm.npz"
    with monkeypatch.context() as without:
        without.setattr("torch.cuda.is_available", lambda: False)
        assert examples.encode(name, folder, "--record", file) == 0
    capsys.readouterr()
    assert examples.encode(name, "--check", file, "--device", "cuda") == 0
    assert capsys.readouterr().out.splitlines() == examples.checked(name, "cuda")
