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


@pytest.mark.parametrize(
    ("name", "schemes"), [("minilm_w8a8", ["W8A8"]), ("minilm_tensor_cores", ["NF4", "bfloat16"])]
)
def test_each_scheme_has_one_digest_on_both_devices(
    name: str, schemes: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert examples.load(name).main(folder) == 0
    told = capsys.readouterr().out
    _, *parts = re.split(r"^\d+ products in (\w+), .*\n", told, flags=re.MULTILINE)
    assert parts[::2] == schemes
    for text in parts[1::2]:
        assert re.findall(r"^(cpu|cuda): cosine 0\.9", text, re.MULTILINE) == ["cpu", "cuda"]
        ways = r"^(?:cpu|cuda), (?:alone|together|reversed): (\w{64})$"
        digests = re.findall(ways, text, re.MULTILINE)
        assert len(digests) == 6
        assert len(set(digests)) == 1


def test_a_gpu_checks_what_a_host_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, file = examples.load("minilm_tensor_cores"), folder / "minilm.npz"
    with monkeypatch.context() as without:
        without.setattr("torch.cuda.is_available", lambda: False)
        assert program.main(folder, file) == 0
    capsys.readouterr()
    assert program.check(file, "cuda") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all(re.search(r": (36|48) of \1 products are the host's$", line) for line in lines)
