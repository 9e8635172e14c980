"""What the documents show runs, the blocks for a GPU included."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import docs


@pytest.mark.parametrize("document", docs.DOCUMENTS, ids=docs.name)
def test_the_code_of_a_document_runs_on_a_gpu(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks of a file in sequence, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    assert docs.run(document, gpu=True) == len(docs.blocks(document, gpu=True))
