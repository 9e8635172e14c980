"""Code blocks of the documents, run as they stand.

A block under ```python runs on any machine, one under ```python gpu on a machine with a GPU. The
blocks of one file share a namespace and run from top to bottom; those of a page beside a README.md
go on from the blocks of that.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```python(?P<gpu> gpu)?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: Path, *, gpu: bool) -> list[tuple[int, str]]:
    """Line numbers and code of the blocks to run; with a GPU that is all of them."""
    text = document.read_text()
    return [
        (text.count("\n", 0, match.start("code")), match["code"])
        for match in FENCE.finditer(text)
        if gpu or not match["gpu"]
    ]


def name(document: Path) -> str:
    """Its path in the repository."""
    return str(document.relative_to(ROOT))


def run(document: Path, *, gpu: bool) -> int:
    """Runs the blocks in one namespace, and counts them; errors point at the document's lines."""
    if not Path("docs").exists():  # what a page shows of a checkout
        Path("docs").symlink_to(ROOT / "docs")
    namespace: dict[str, Any] = {"__name__": document.stem}
    shared = document.with_name("README.md")
    for page in (shared, document) if shared.exists() and shared != document else (document,):
        found = blocks(page, gpu=gpu)
        for line, code in found:
            exec(compile("\n" * line + code, str(page), "exec"), namespace)
    return len(found)


def fenced(document: Path, language: str) -> list[str]:
    """The code of a document's blocks of another language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, document.read_text(), re.MULTILINE | re.DOTALL)
