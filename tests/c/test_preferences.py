"""What planq.h and docs/c.md say of the keys of a preference, and what the library has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import planq
from c.programs import ROOT, place
from support import c_library as c
from support.samples import make_descriptor

Rows = dict[str, tuple[str, str]]
DEFAULTS = planq.PlanPreference().to_dict()
# Values that the tables name, of each type; and what they do not name, which is refused.
NAMED = {
    "determinism": [rung.name.lower() for rung in planq.Determinism],
    "batch_invariant": [True, False],
    "max_ulp": [0, None],
    "max_workspace_bytes": [0, None],
    "backend": [*(backend.value for backend in planq.Backend), None],
    "sku": [None],
    "body": [None],
}


def header_rows() -> Rows:
    """The values and the default of each key, as the header's table has them."""
    text = (place("--include-dir") / "planq.h").read_text()
    table = text[text.index("*   key   ") : text.index("* - determinism:")]
    rows: Rows = {}
    for line in table.splitlines()[1:]:
        cells = re.split(r"\s{2,}", line.strip(" *"))
        if len(cells) == 3:
            key = json.loads(cells[0])
            rows[key] = (cells[1], cells[2])
        elif cells != [""]:
            rows[key] = (f"{rows[key][0]} {cells[0]}", rows[key][1])
    return rows


def page_rows() -> Rows:
    """The same of the page's table."""
    text = (ROOT / "docs" / "c.md").read_text().partition("## Preferences")[2].partition("\n## ")[0]
    found = re.findall(r'^\| `"(\w+)"` \| (.*) \| (.*) \|$', text, re.MULTILINE)
    return {key: (values, default.strip("`")) for key, values, default in found}


@pytest.mark.parametrize("rows", [header_rows, page_rows])
def test_every_key_is_listed_with_its_values_and_its_default(rows: Callable[[], Rows]) -> None:
    """In the order of the native table."""
    found = rows()
    assert list(found) == list(DEFAULTS) == list(NAMED)
    for key, (values, default) in found.items():
        assert json.loads(default.partition(":")[0].strip("`")) == DEFAULTS[key]
        words = re.findall(r'"\w+"|\btrue\b|\bfalse\b|\bnull\b', values)
        named = [json.loads(word) for word in words]
        assert named == [value for value in NAMED[key] if value != 0 or value is False]


@pytest.mark.parametrize("key", NAMED)
def test_a_key_takes_the_values_that_are_listed(key: str) -> None:
    """And its default changes nothing."""
    desc = make_descriptor().to_json()
    stored = c.Plan.select(desc).text("to_json")
    assert c.Plan.select(desc, json.dumps({key: DEFAULTS[key]})).text("to_json") == stored
    for value in NAMED[key]:
        made = c.Plan.foresee(c.device_named("sm_90" if value == "cuda" else "host"), desc,
                              json.dumps({key: value}))  # fmt: skip
        assert json.loads(made.text("to_json"))["preference"] == DEFAULTS | {key: value}
    with pytest.raises(c.Refused) as refused:
        c.Plan.select(desc, json.dumps({key: ["none of them"]}))
    assert refused.value.message.startswith(f"{key}: expected ")
