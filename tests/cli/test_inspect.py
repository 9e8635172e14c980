"""`planq inspect` lists the tensors and the metadata of GGUF and safetensors files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from cli.commands import refuse, report
from cli.files import checkpoint, weight
from planq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    Capture = pytest.CaptureFixture[str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a K-quant, and with names that a terminal would take for commands."""
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokens", [f"t{number}" for number in range(9)])
    writer.add_array("scores", [0.5, float("-inf")])
    writer.add_float32("eps", float("nan"))
    writer.add_string("evil", "\x1b[31m" + "x" * 90)
    kind = gguf.GGMLQuantizationType.Q4_K
    writer.add_tensor("blk.0.weight", np.zeros((3, 2 * 144), np.uint8), raw_dtype=kind)
    writer.add_tensor("norm\x1b[0m", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_tensors_and_metadata_are_listed(path: Path, capsys: Capture) -> None:
    assert main(["inspect", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    rows = [" ".join(line.split()) for line in printed.splitlines()]
    assert "general.architecture llama" in rows
    assert "tokens [t0, t1, t2, t3, ...] (9)" in rows
    assert "scores [0.5, -inf]" in rows
    assert "blk.0.weight Q4_K 3 x 512 864 B" in rows
    assert "norm\\x1b[0m F32 8 32 B" in rows
    assert next(row for row in rows if row.startswith("evil")).endswith("... (95 letters)")
    assert rows[-1] == (
        "2 tensors (1 of Q4_K, 1 of F32), 896 B; format gguf, version 3, alignment 32"
    )


def test_json_has_all(path: Path, capsys: Capture) -> None:
    """Numbers that are not finite are words, which any reader of JSON takes."""
    told = report(capsys, "inspect", path)
    assert (told["format"], told["version"], told["alignment"]) == ("gguf", 3, 32)
    assert told["metadata"]["tokens"] == [f"t{number}" for number in range(9)]
    assert told["metadata"]["scores"] == [0.5, "-inf"]
    assert told["metadata"]["eps"] == "nan"
    wanted = gguf.GGUFReader(path).tensors
    for row, tensor in zip(told["tensors"], wanted, strict=True):
        assert row == {
            "name": tensor.name,
            "type": tensor.tensor_type.name,
            "shape": tensor.shape.tolist()[::-1],
            "bytes": tensor.n_bytes,
            "file": path.name,
            "offset": tensor.data_offset,
        }


def test_a_safetensors_file_is_listed_too(tmp_path: Path, capsys: Capture) -> None:
    values = {"a": weight(2, 8), "b": np.float32(1).reshape(())}
    path = checkpoint(tmp_path / "a.safetensors", values, {"format": "pt"})
    assert main(["inspect", str(path)]) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "a F32 2 x 8 64 B" in rows
    assert "b F32 one 4 B" in rows
    assert rows[-1] == "2 tensors (2 of F32), 68 B; format safetensors"
    assert report(capsys, "inspect", path)["metadata"] == {"format": "pt"}


def test_what_is_wrong_is_one_line(path: Path, capsys: Capture) -> None:
    path.write_bytes(path.read_bytes()[:-40])
    line = refuse(capsys, "inspect", path)
    assert "not a valid GGUF file: tensor " in line
    assert "No such file" in refuse(capsys, "inspect", path.with_name("none.gguf"))
