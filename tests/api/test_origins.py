"""docs/origins.md names nothing of planq that is not there."""

from __future__ import annotations

import enum
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import planq
from support.own import PRIVATE

PAGE = Path(__file__).parents[2] / "docs" / "origins.md"
OPERATORS = {info.name: info for info in planq.operators()}
FIELDS = {
    name
    for info in OPERATORS.values()
    for made in (info.descriptor, info.args)
    for name in inspect.signature(made).parameters
}
ENUMERATIONS = [value for value in vars(planq).values() if isinstance(value, enum.EnumMeta)]
MEMBERS = {name for each in ENUMERATIONS for name in each.__members__}
VALUES = {member.value for each in ENUMERATIONS for member in each}
# Of QuantState, of a tensor of planq.memory, an argument of optimizers, and their module.
METHODS = {"from_dict", "to_dict", "prefetch", "paged", "planq.torch.optim"}
HERE = re.compile(r"`([^`]+)`")


def rows() -> list[tuple[str, str]]:
    """The two cells of every row."""
    lines = PAGE.read_text().splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [(there, here) for there, here in cells if there not in ("there", "---")]


def names() -> list[str]:
    """What stands in code in the second cells, without pages."""
    return sorted({name for _, here in rows() for name in HERE.findall(here)})


def attribute(owner: Any, path: str) -> bool:
    """Whether an object has an attribute, of which a call is left out."""
    for part in path.partition("(")[0].split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


@pytest.mark.parametrize("name", names())
def test_a_name_of_planq_is_there(name: str) -> None:
    """An operator, an attribute, a field or an operand, with a value if it has one."""
    field, _, value = name.partition("=")
    if value:
        assert field in FIELDS | METHODS
        assert value == "True" or attribute(planq, value)
        return
    owner, _, rest = name.partition(".")
    if owner in ("plan", "desc"):
        assert attribute({"plan": planq.Plan, "desc": planq.Descriptor}[owner], rest)
        return
    known = OPERATORS.keys() | FIELDS | MEMBERS | VALUES | METHODS
    assert name in known or attribute(planq, name.removeprefix("planq."))


def test_every_function_has_an_equivalent_or_a_reason() -> None:
    """A row that says neither is none."""
    for there, here in rows():
        assert there, here
        assert HERE.search(here) or here.startswith(("not needed: ", "not there: ")), there


def test_the_operators_that_come_from_elsewhere_are_all_named() -> None:
    """Those that are planq's own have no name there."""
    own = {
        *("matmul", "grouped_linear", "code_sum", "add", "unary", "pack_weight_4bit", "norm"),
        *("square_sum", "quantize_backward", "dequantize_backward", "rotary_kv_cache_append"),
        *("argmax", "embedding", "gguf_quantize", "layer_norm", "linear_gguf_merged", "sample"),
    }
    assert OPERATORS.keys() - PRIVATE - set(names()) == own
