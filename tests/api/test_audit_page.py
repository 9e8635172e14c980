"""`planq.audit.page`: a report as a page that stands alone, whatever its texts are."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from planq.audit import report, sections
from planq.audit.page import page

HOSTILE = "<script>alert('x')</script> & \"quoted\""
VOID = {"meta"}


class Page(HTMLParser):
    """Tags that are open, the text of each element, and attributes that would load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []
        self.loads: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href", "srcset")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.text.append(data.strip())


@pytest.fixture
def made() -> dict[str, Any]:
    """A report of two kernels, one claim of which is refuted by a hostile note."""
    audited = sections.audit_section(sections.Section("host", "pack_int4"), sections.QUICK)
    found = report.evidence(audited, ["cuda:0 fill"], "quick", [])
    found["kernels"][0]["claims"]["again"] = {"state": sections.REFUTED, "note": HOSTILE}
    return report.report(found, {"os": HOSTILE}, "now", 1.0)


def test_a_page_stands_alone_and_is_whole(made: dict[str, Any]) -> None:
    """Nothing is loaded or run, and every element ends."""
    text = page(made)
    parsed = Page(text)
    assert parsed.open == []
    assert parsed.loads == []
    assert "script" not in parsed.tags
    assert "http" not in text
    assert HOSTILE not in text
    assert parsed.text.count(HOSTILE) == 2  # what differs, and the machine


def test_the_verdict_comes_first_and_all_else_follows(made: dict[str, Any]) -> None:
    """What was refuted, each operator, claim and kernel, and how to repeat it."""
    told = Page(page(made)).text
    assert told[0] == "planq audit: refuted"  # the title
    verdict = next(line for line in told if line.startswith("REFUTED: "))
    assert told.index(verdict) == 2
    assert "1 refuted" in verdict
    assert any("cuda:0 fill" in line for line in told)
    evidence = made["evidence"]
    assert made["evidence_sha256"] in told
    for kernel in evidence["kernels"]:
        assert f"{kernel['sku']}:{kernel['body']}" in told
        assert kernel["repeat"] in told
    for name, says in evidence["claims"].items():
        assert name in told
        assert says in told
