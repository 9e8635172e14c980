"""What selection answers for the fixed cases, on the host and on GPUs that need not be there.

The file has one entry for each operator:

    {"build": ..., "elsewhere": {device: what kernels of the other backend say},
     "operators": {name: {
       "kernels": [the name of every kernel of the operator, in the order of preference],
       "lines": [what one candidate answers, ...],
       "refused": [what all candidates refused out of hand answer, ...],
       "groups": [{"skus": "min_max.token/*/f32", "refused": {device: number, ...},
                   "cases": {"0|7 2|7 3": "key key ..."}}]}}}

A name is "SKU:body". A line is "name: verdict; bytes of workspace", where the SKU is without its
ends if these are the two that its group names. The numbers of a case are those of its lines on the
host, on sm_80 and on sm_90, in the order of preference. Candidates that were written for another
device, dtype or scope are hundreds for each case: of them the file has the number of each kind, and
a digest of names and reasons. Keys are the first eight digits of the SHA-256 of a case's id.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import planq
from planq.audit.operators import OPERATORS, Case, all_cases, name_of

RECORD = Path(__file__).parent / "selections.json"
DEVICES = ("host", "sm_80", "sm_90")
BACKENDS = tuple(backend.value for backend in planq.Backend)
# Reasons that follow from what a kernel was written for, not from the case's shape or fields.
DIGESTED = ("device", "dtype", "scope")


@dataclass(frozen=True)
class Table:
    """The answer for one case on one device.

    Attributes:
        lines: Of each candidate that is not refused out of hand, its name and what became of it.
        refused: The others, as their numbers and a digest.
        elsewhere: What kernels of the other backend say; empty in a build without any.
        reasons: How often each reason behind `refused` was given; not recorded.
    """

    lines: tuple[tuple[str, str], ...]
    refused: str
    elsewhere: frozenset[str]
    reasons: str = ""

    @property
    def chosen(self) -> tuple[str, str]:
        """The kernel that runs, and its workspace; empty where none does."""
        found = (line for line in self.lines if line[1].startswith("chosen; "))
        return next(found, ("", ""))

    @cached_property
    def takers(self) -> frozenset[str]:
        """The kernels that could run."""
        return frozenset(
            name for name, text in self.lines if text.startswith(("chosen; ", "accepted; "))
        )


def key(case: Case) -> str:
    """What the file calls a case."""
    return hashlib.sha256(case.id.encode()).hexdigest()[:8]


def answer(candidate: planq.Candidate) -> str:
    """What became of a candidate, in words."""
    verdict = f"{candidate.reason_kind}: {candidate.reason}"
    if not candidate.reason:
        verdict = "chosen" if candidate.chosen else "accepted"
    return f"{verdict}; {candidate.workspace} bytes"


def explained(desc: planq.Descriptor, device: str, names: frozenset[str]) -> Table:
    """The current answer, as far as it is about some kernels or the one that is chosen."""
    answers = [
        (candidate.reason_kind, name, answer(candidate))
        for candidate in planq.explain(desc, device=device).candidates
        if (name := name_of(candidate)) in names or candidate.chosen
    ]
    digested = [each for each in answers if each[0] in DIGESTED]
    said = "\n".join(f"{name}: {text}" for _, name, text in digested)
    kinds = sorted(Counter(kind for kind, _, _ in digested).items())
    counts = "".join(f", {count} for another {kind}" for kind, count in kinds)
    listed = (*DIGESTED, "backend")
    return Table(
        lines=tuple((name, text) for kind, name, text in answers if kind not in listed),
        refused=hashlib.sha256(said.encode()).hexdigest()[:16] + counts,
        elsewhere=frozenset(text for kind, _, text in answers if kind == "backend"),
        reasons="\n".join(f"{n} x {t}" for t, n in Counter(t for _, _, t in digested).items()),
    )


def difference(recorded: Table, found: Table) -> str:
    """The first thing that differs, in words; empty where nothing does."""
    for before, now in zip_longest(recorded.lines, found.lines, fillvalue=("nothing more", "")):
        if before != now:
            return f"recorded: {' '.join(before)}\nnow: {' '.join(now)}"
    if not found.elsewhere <= recorded.elsewhere:
        told = (" | ".join(sorted(table.elsewhere)) for table in (recorded, found))
        return "kernels of the other backend\nrecorded: {}\nnow: {}".format(*told)
    if recorded.refused != found.refused:
        return (
            "names or reasons of kernels for another device, dtype or scope\n"
            f"recorded: {recorded.refused}\nnow: {found.refused}\n{found.reasons}"
        )
    return ""


def built_names(operator: str) -> list[str]:
    """The operator's kernels in this build, in the order of preference."""
    desc = OPERATORS[operator].descriptor(all_cases(operator)[0].problem)
    return [name_of(c) for c in planq.explain(desc).candidates]


class Numbers(dict[str, int]):
    """Texts and the numbers that stand for them, in the order of their first use."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _star(name: str, ends: tuple[str, str]) -> str:
    """The name without the ends of its SKU, where it has these and something between them."""
    sku, _, body = name.partition(":")
    first, _, rest = sku.partition("/")
    middle, _, last = rest.rpartition("/")
    return f"{middle}:{body}" if middle and (first, last) == ends else name


def _record_operator(operator: str) -> tuple[dict[str, Any], dict[str, set[str]]]:
    """The file's entry for an operator, and what kernels elsewhere say on each device."""
    names, cases = built_names(operator), all_cases(operator)
    lines, refused = Numbers(), Numbers()
    elsewhere: dict[str, set[str]] = {device: set() for device in DEVICES}
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for case in cases:
        desc = OPERATORS[operator].descriptor(case.problem)
        tables = [explained(desc, device, frozenset(names)) for device in DEVICES]
        sku = tables[0].chosen[0].partition(":")[0].split("/")
        ends = (sku[0], sku[-1])
        for device, table in zip(DEVICES, tables, strict=True):
            elsewhere[device] |= table.elsewhere
        outcome = "|".join(
            " ".join(str(lines[f"{_star(name, ends)}: {text}"]) for name, text in table.lines)
            for table in tables
        )
        group = (*ends, *(table.refused for table in tables))
        groups.setdefault(group, {}).setdefault(outcome, []).append(key(case))
    entry = {
        "kernels": names,
        "groups": [
            {
                "skus": f"{first}/*/{last}",
                "refused": {d: refused[text] for d, text in zip(DEVICES, texts, strict=True)},
                "cases": {outcome: " ".join(keys) for outcome, keys in outcomes.items()},
            }
            for (first, last, *texts), outcomes in groups.items()
        ],
    }
    return {**entry, "lines": list(lines), "refused": list(refused)}, elsewhere


def record() -> dict[str, Any]:
    """The whole file's content; takes two minutes."""
    assert planq.build_info().cuda, "selections are recorded by a build with CUDA kernels"
    elsewhere: dict[str, set[str]] = {device: set() for device in DEVICES}
    operators = {}
    for operator in sorted(OPERATORS):
        operators[operator], found = _record_operator(operator)
        for device in DEVICES:
            elsewhere[device] |= found[device]
    return {
        "build": planq.build_info().build_id,
        "elsewhere": {device: sorted(texts) for device, texts in elsewhere.items()},
        "operators": operators,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    """Writes the file, with each line, name and list of cases on a line of its own."""
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


@cache
def read() -> dict[str, Any]:
    """The recorded content."""
    content: dict[str, Any] = json.loads(RECORD.read_text())
    return content


@cache
def recorded_names(operator: str) -> tuple[str, ...]:
    """The recorded kernels that this build should have, in the order of preference."""
    cuda = planq.build_info().cuda
    names: list[str] = read()["operators"][operator]["kernels"]
    return tuple(name for name in names if cuda or "cuda" not in re.split("[/:]", name))


@cache
def recorded_name(device: str) -> str:
    """What the record calls a device: GPUs go by their architecture."""
    archs = {f"cuda:{each.index}": f"sm_{each.arch}" for each in planq.devices()}
    return archs.get(device, device)


@cache
def names_on(operator: str, device: str) -> frozenset[str]:
    """The kernels whose answers on a device are recorded; none where it is new."""
    if device not in DEVICES or operator not in read()["operators"]:
        return frozenset()
    return frozenset(recorded_names(operator))


@cache
def recorded(operator: str, device: str) -> dict[str, Table]:
    """The recorded answers by the keys of the cases."""
    entry = read()["operators"][operator]
    elsewhere = frozenset(read()["elsewhere"][device])
    tables: dict[str, Table] = {}
    for group in entry["groups"]:
        refused = entry["refused"][group["refused"][device]]
        for outcome, keys in group["cases"].items():
            numbers = outcome.split("|")[DEVICES.index(device)].split()
            lines = tuple(_whole(entry["lines"][int(n)], group["skus"]) for n in numbers)
            tables |= dict.fromkeys(keys.split(), Table(lines, refused, elsewhere))
    return tables


def _whole(line: str, skus: str) -> tuple[str, str]:
    """The name of a line with the ends that its group gives its SKU, and the rest of the line."""
    name, _, text = line.partition(": ")
    middle, _, body = name.partition(":")
    between = middle.partition("/")[0] in BACKENDS
    return f"{skus.replace('*', middle)}:{body}" if between else name, text


def _kind(name: str) -> tuple[str, ...]:
    """The arithmetic and the body of a kernel, without the types that end most SKUs."""
    sku, _, body = name.partition(":")
    return *sku.split("/")[1:-1], body


def cover(operator: str, device: str) -> Iterator[Case]:
    """Cases that between them have every answer in the record.

    Every kernel that is chosen, every workspace and every kind of sentence of each body whatever
    its types, and every group of kernels refused out of hand.
    """
    seen: set[object] = set()
    tables = recorded(operator, device)
    for case in all_cases(operator):
        table = tables[key(case)]
        # The number of elements differs from case to case, what it is compared with does not.
        answers = {
            (_kind(name), re.sub(r"\d+( consecutive)? elements", "elements", text))
            for name, text in table.lines
        }
        new = {table.refused, table.chosen[0], *answers}
        if not new <= seen:
            seen |= new
            yield case


@cache
def takers(operator: str, device: str, *, empty: bool) -> tuple[frozenset[str] | None, ...]:
    """Of each of an operator's cases the recorded kernels that take it; None where it is new."""
    tests, known = OPERATORS[operator], recorded(operator, recorded_name(device))
    cases = tests.empty_cases() if empty else tests.cases()
    tables = [known.get(key(case)) for case in cases]
    return tuple(table.takers if table else None for table in tables)


def knows(operator: str, name: str, device: str) -> bool:
    """Whether the record has what a kernel answers on a device."""
    return operator in OPERATORS and name in names_on(operator, recorded_name(device))


def takes(operator: str, name: str, case: Case, device: str) -> bool | None:
    """Whether a kernel takes a case, where the record knows; None elsewhere."""
    if not knows(operator, name, device):
        return None
    table = recorded(operator, recorded_name(device)).get(key(case))
    return name in table.takers if table else None
