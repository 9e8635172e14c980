"""What the documents show runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support import docs


@pytest.mark.parametrize("document", docs.DOCUMENTS, ids=lambda path: path.name)
def test_the_code_of_a_document_runs(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks in sequence, in an empty directory; GPU blocks run in tests/gpu."""
    monkeypatch.chdir(tmp_path)
    docs.run(document, gpu=False)
    assert Path.cwd() == tmp_path
    assert os.environ.get("PLANQ_VERBOSE") is None


def test_the_readme_shows_code() -> None:
    """The five-step example at least."""
    assert docs.blocks(docs.ROOT / "README.md", gpu=True)


def test_no_block_is_marked_with_an_unknown_word() -> None:
    """A misspelt mark would keep a block from ever running."""
    for document in docs.DOCUMENTS:
        for line in document.read_text().splitlines():
            if line.startswith("```python"):
                assert line in ("```python", "```python gpu"), f"{document.name}: {line}"
