"""Whether the recorded digests are of the present kernels is found out from the sources alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import planq
from support import golden


def test_a_kernel_that_changed_since_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte of a source, and a new file; the bindings are no kernels."""
    source = tmp_path / "src" / "ops" / "kernel.cu"
    for folder in ("core", "ops", "bindings"):
        (tmp_path / "src" / folder).mkdir(parents=True)
    source.write_text("one")
    monkeypatch.setattr(golden, "ROOT", tmp_path)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    monkeypatch.setattr(golden, "UNDIGESTED", tmp_path / "undigested.txt")
    golden.UNDIGESTED.write_text("# none\n")
    content = {"build_id": "0123", "device": "a GPU", "source_id": golden.source_id()}
    (tmp_path / "older.json").write_text(json.dumps({**content, "source_id": "others"}))
    (tmp_path / "gpu.json").write_text(json.dumps(content))
    (tmp_path / "src" / "bindings" / "module.cpp").write_text("other")
    assert golden.unrecorded() is None
    source.write_text("two")
    assert "were digested: 0123 on a GPU" in str(golden.unrecorded())
    source.write_text("one")
    source.with_name("another.cu").write_text("")
    assert golden.unrecorded() is not None
    source.with_name("another.cu").unlink()
    golden.UNDIGESTED.write_text("# one\n\nnew_operator.token/cuda/rows/bf16_s8\n")
    assert golden.unrecorded() == "no GPU has digested 1 kernels of new_operator; record them"
    golden.UNDIGESTED.write_text("# one\n\nold_operator convention=new\n")
    assert golden.unrecorded() == "no GPU has digested new cases of old_operator; record them"


def test_a_build_says_the_digest_of_its_sources() -> None:
    """By the recipe that the docs give."""
    assert planq.build_info().source_id == golden.source_id()
