"""What the documents show runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from planq.audit import kernels
from support import docs


@pytest.mark.parametrize("document", docs.DOCUMENTS, ids=docs.name)
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


def anchors(document: Path) -> set[str]:
    """What a link can name in a document: its headings, as GitHub spells them."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document",
    [*docs.DOCUMENTS, docs.ROOT / "CONTRIBUTING.md", docs.ROOT / "SECURITY.md"],
    ids=docs.name,
)
def test_links_lead_somewhere(document: Path) -> None:
    """To files of the repository, and to headings in them."""
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", document.read_text()):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_no_block_is_marked_with_an_unknown_word() -> None:
    """A misspelt mark would keep a block from ever running."""
    for document in docs.DOCUMENTS:
        for line in document.read_text().splitlines():
            if line.startswith("```python"):
                assert line in ("```python", "```python gpu"), f"{docs.name(document)}: {line}"


@pytest.mark.parametrize(
    ("document", "title"),
    [("README.md", "Operators"), ("docs/concepts.md", "The operators")],
    ids=["readme", "concepts"],
)
def test_the_tables_of_operators_have_each_of_the_registry_once(document: str, title: str) -> None:
    """In the first column of the first table under the title."""
    section = (docs.ROOT / document).read_text().split(f"\n## {title}\n")[1]
    table = section.lstrip().split("\n\n")[0].splitlines()[2:]
    listed = [name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(operator.name for operator in kernels.operators())
