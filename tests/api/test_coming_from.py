"""docs/coming-from.md says what docs/origins.md says, and has a program for every function.

``test_docs.py`` runs the programs.
"""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import planq

DOCS = Path(__file__).parents[2] / "docs"
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^]]+\]\(#([^)]+)\)")
OPERATORS = {info.name for info in planq.operators()}
# What a program makes, where planq has no operator of that name.
MADE = {
    "QuantState": "planq.QuantState(",
    "recipes.igemmlt": "planq.recipes.igemmlt(",
    "recipes.vectorwise_mm_dequant": "planq.recipes.vectorwise_mm_dequant(",
    "planq.torch.optim": "planq.torch.optim.Adam8bit(",
}
LIBRARIES = ("bitsandbytes", "DeepSpeed", "torchao", "vLLM")


@dataclass(frozen=True)
class Row:
    """A row of the page: names there, names here, and the program's heading."""

    library: str
    there: tuple[str, ...]
    here: tuple[str, ...]
    anchor: str

    def __str__(self) -> str:
        return self.there[0]


def sections(page: str, level: str) -> dict[str, str]:
    """The texts under headings of a level, by title; blocks of code have none."""
    text = (DOCS / page).read_text()
    parts = re.split(rf"^{level} (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def cells(text: str) -> list[list[str]]:
    """The cells of the rows of tables."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line[:2] == "| "]
    return [line for line in lines if line[0] not in ("there", "---")]


def rows() -> list[Row]:
    """All rows of the page."""
    found = []
    for library, text in sections("coming-from.md", "##").items():
        for there, here, program in cells(text):
            (anchor,) = LINK.findall(program)
            found.append(
                Row(library, tuple(CODE.findall(there)), tuple(CODE.findall(here)), anchor)
            )
    return found


def origins(library: str) -> dict[str, set[str]]:
    """What docs/origins.md has for each name of a library."""
    found: dict[str, set[str]] = {}
    for title, text in sections("origins.md", "##").items():
        if title.startswith(library):
            for there, here in cells(text):
                for name in CODE.findall(there):
                    found.setdefault(name, set()).update(CODE.findall(here))
    return found


def programs() -> dict[str, str]:
    """The programs under the headings of the page, by the links to them."""
    found: dict[str, str] = {}
    for library in sections("coming-from.md", "##").values():
        parts = re.split(r"^### (.*)$", library, flags=re.MULTILINE)
        for title, text in zip(parts[1::2], parts[2::2], strict=True):
            link = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            assert link not in found, "two headings with one link"
            found[link] = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    return found


def test_there_are_the_libraries_that_people_come_from() -> None:
    """Each with several functions."""
    listed = [row.library for row in rows()]
    assert tuple(dict.fromkeys(listed)) == LIBRARIES
    assert all(listed.count(library) >= 3 for library in LIBRARIES)


@pytest.mark.parametrize("row", rows(), ids=str)
def test_a_row_says_what_the_page_of_origins_says(row: Row) -> None:
    """The names are there, and what takes their place is the same."""
    known = origins(row.library)
    assert set(row.there) <= known.keys()
    assert set(row.here) <= set.union(*(known[name] for name in row.there))
    assert all(known[name] & set(row.here) for name in row.there)


@pytest.mark.parametrize("row", rows(), ids=str)
def test_the_program_of_a_row_calls_all_that_it_names(row: Row) -> None:
    """Operators, or what else is made."""
    code = programs()[row.anchor]
    assert "assert " in code
    for name in row.here:
        assert name in OPERATORS or name in MADE, name
        assert MADE.get(name, f"OPS.{name}(") in code, name


def test_every_program_belongs_to_a_row() -> None:
    """And every row has one."""
    assert programs().keys() == {row.anchor for row in rows()}


def test_names_of_torchao_are_there() -> None:
    """In the version that the tests have."""
    places = (
        "torchao.quantization",
        "torchao.quantization.quant_primitives",
        "torchao.prototype.mx_formats.mx_tensor",
        "torchao.prototype.mx_formats.nvfp4_tensor",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchao's own
        modules = [importlib.import_module(place) for place in places]
    for name in origins("torchao"):
        assert any(hasattr(module, name) for module in modules), name
