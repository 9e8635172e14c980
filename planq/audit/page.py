"""A report as one page of HTML that stands alone and can be printed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final

from planq.audit.report import by_operator, counts
from planq.audit.sections import HELD, NOT_TESTABLE, REFUTED

Report = dict[str, Any]

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1b1b1b; }
body { margin: 2em auto; max-width: 76em; padding: 0 1em; }
h1 { font-size: 1.6em; margin-bottom: 0.2em; }
h2 { font-size: 1.15em; margin-top: 2em; break-after: avoid; }
code { font-size: 0.92em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 0.88em; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25em 0.6em; }
th, td { text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-size: 1.3em; font-weight: 600; padding: 0.5em 0.8em; border-left: 0.5em solid; }
.held { color: #17602f; }
.refuted { color: #a11212; font-weight: 600; }
.incomplete { color: #7a5200; }
.none { color: #888; }
tr, li { break-inside: avoid; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } }
"""
_STATES: Final = (HELD, "runs", NOT_TESTABLE, REFUTED)


def page(made: Report) -> str:
    """The verdict, then claims by operator, what was audited, and how to repeat each."""
    found = made["evidence"]
    body = [
        *_verdict(made),
        *_refuted(found),
        *_operators(found),
        *_claims(found),
        *_kernels(found),
        *_made_of(made),
        *_repeat(found),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>planq audit: {escape(made['verdict'])}</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _verdict(made: Report) -> Iterator[str]:
    found, state = made["evidence"], escape(made["verdict"])
    total = counts(found["kernels"])
    yield "<h1>planq audit</h1>"
    yield (
        f'<p class="verdict {state}">{state.upper()}: {total[HELD]:,} claims about '
        f"{len(found['kernels']):,} kernels held in {total['runs']:,} runs, "
        f"{total[REFUTED]:,} refuted</p>"
    )
    if found["dropped"]:
        yield f"<p>Not audited, since the time was up: {escape(', '.join(found['dropped']))}.</p>"
    for probe in found["tensor_cores"]:
        verb = "confirms" if probe["confirmed"] else "does not confirm"
        yield f"<p>{escape(probe['device'])} {verb} the model of its tensor cores.</p>"
    yield f"<p>Evidence: SHA-256 <code>{made['evidence_sha256']}</code></p>"


def _refuted(found: Report) -> Iterator[str]:
    rows = [
        (_code(f"{kernel['sku']}:{kernel['body']}"), escape(name), escape(claim["note"]))
        for kernel in found["kernels"]
        for name, claim in kernel["claims"].items()
        if claim["state"] == REFUTED
    ]
    if rows:
        yield "<h2>Refuted</h2>"
        yield _table(("kernel", "claim", "what differs"), rows)


def _made_of(made: Report) -> Iterator[str]:
    facts = {**made["machine"], "written": made["written"], "depth": made["evidence"]["depth"]}
    devices = facts.pop("devices", {})
    facts |= {f"{name} {key}": value for name, own in devices.items() for key, value in own.items()}
    facts |= {f"build {key}": value for key, value in made["evidence"]["build"].items()}
    facts |= {f"model {name}": value for name, value in made["evidence"].get("models", {}).items()}
    yield "<h2>Build and machine</h2>"
    yield _table(("fact", ""), [(escape(key), _code(str(value))) for key, value in facts.items()])


def _claims(found: Report) -> Iterator[str]:
    yield "<h2>Claims</h2>"
    yield _table(("claim", "what is held"), [map(escape, each) for each in found["claims"].items()])


def _operators(found: Report) -> Iterator[str]:
    yield "<h2>Operators</h2>"
    rows = []
    for (device, operator), kernels in by_operator(found).items():
        total = counts(kernels)
        numbers = (f"{total[state]:,}" for state in _STATES)
        rows.append((escape(device), escape(operator), str(len(kernels)), *numbers))
    yield _table(("device", "operator", "kernels", *_STATES), rows, numbers_from=2)


def _kernels(found: Report) -> Iterator[str]:
    names = tuple(found["claims"])
    for (device, operator), kernels in by_operator(found).items():
        yield f"<h2>{escape(operator)} on {escape(device)}</h2>"
        rows = [
            (
                _code(f"{kernel['sku']}:{kernel['body']}"),
                escape(kernel["guarantee"]["determinism"]),
                *(_outcome(kernel["claims"][name]) for name in names),
            )
            for kernel in kernels
        ]
        yield _table(("kernel", "promise", *names), rows)


def _outcome(claim: Report) -> str:
    """Runs that held, in a cell; else the reason, which shows under the pointer."""
    if claim["state"] == HELD:
        return f'<span class="held">{claim["runs"]:,}</span>'
    mark, kind = ("refuted", "refuted") if claim["state"] == REFUTED else ("\N{EN DASH}", "none")
    return f'<span class="{kind}" title="{escape(claim["note"])}">{mark}</span>'


def _repeat(found: Report) -> Iterator[str]:
    yield "<h2>How to repeat it</h2>"
    commands = dict.fromkeys(kernel["repeat"] for kernel in found["kernels"])
    yield "<ul>" + "".join(f"<li>{_code(command)}</li>" for command in commands) + "</ul>"
    yield (
        "<p>Evidence of the same build on an equal machine has the same SHA-256. "
        "<code>planq audit --compare A.json B.json</code> says where two reports differ.</p>"
    )


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _table(
    headers: Iterable[str], rows: Iterable[Iterable[str]], numbers_from: int | None = None
) -> str:
    """A table of cells that are HTML already; columns from some on are numbers."""

    def cells(kind: str, each: Iterable[str]) -> str:
        made = []
        for index, text in enumerate(each):
            number = numbers_from is not None and index >= numbers_from
            made.append(f"<{kind}{' class=number' if number else ''}>{text}</{kind}>")
        return f"<tr>{''.join(made)}</tr>"

    head = cells("th", map(escape, headers))
    return (
        f"<table><thead>{head}</thead><tbody>\n"
        + "\n".join(cells("td", r) for r in rows)
        + ("\n</tbody></table>")
    )
