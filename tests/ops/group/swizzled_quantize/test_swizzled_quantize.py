"""`swizzled_quantize` on the host: DeepSpeed's order, its defects, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from ops.group.swizzled_quantize.adapter import TESTS
from ops.group.swizzled_quantize.reference import SwizzledQuantizeProblem
from reference import inputs
from support.memory import Host

# DeepSpeed's places of 32 groups for two nodes of four devices and two slices.
PLACES = """
 0  1 16 17  4  5 20 21  8  9 24 25 12 13 28 29  2  3 18 19  6  7 22 23 10 11 26 27 14 15 30 31
"""
FIELDS: dict[str, Any] = {
    "shape": (64,),
    "input_dtype": "float16",
    "output_dtype": "int8",
    "group_size": 2,
    "nodes": 2,
    "devices_per_node": 4,
}


def sent(groups: int, **fields: Any) -> list[int]:
    """Which group stands at each place, by parameters that tell them apart."""
    problem = SwizzledQuantizeProblem(**{**FIELDS, "shape": (2 * groups,), **fields})
    x = np.repeat(np.arange(1, groups + 1), 2).astype(np.float16)
    parameters = TESTS.run(problem, input=x)["parameters"].ravel()
    return [round(each * 128) - 1 for each in parameters.tolist()]


def test_the_order_is_deepspeeds() -> None:
    """As it is written down, group by group."""
    to = [int(each) for each in PLACES.split()]
    assert np.argsort(to).tolist() == sent(32, pipelining=2)
    assert sent(8) == [0, 4, 1, 5, 2, 6, 3, 7]


def test_one_device_changes_no_order() -> None:
    """Nor do nodes of one device each, or one node."""
    for fields in ({"nodes": 1, "devices_per_node": 1}, {"nodes": 4, "devices_per_node": 1}):
        assert sent(12, **fields) == list(range(12))
    assert sent(12, nodes=1) == list(range(12))


@pytest.mark.parametrize("codes", ["int8", "int4"])
def test_groups_of_more_than_40960_elements(codes: str) -> None:
    """Nothing was launched for them; threads share them here."""
    sizes = {"shape": (4 * 41000,), "group_size": 41000, "devices_per_node": 2}
    fields = {**FIELDS, **sizes, "output_dtype": codes, "mode": "asymmetric"}
    problem = SwizzledQuantizeProblem(**fields)
    x = inputs.make("normal", problem.shape, "float16", 2)
    TESTS.check(problem, Host(3), input=x)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("group_size", {"shape": (63,)}, "63 elements are no whole groups of 2"),
    (
        "group_size",
        {"shape": (48,), "output_dtype": "int4", "group_size": 3},
        "groups of int4 have an even size, got 3",
    ),
    (
        "group_size",
        {"shape": (24,)},
        "12 groups are not divisible by nodes x devices_per_node x pipelining = 8",
    ),
    ("nodes", {"nodes": 0}, "expected 1 to 2^20, got 0"),
    ("devices_per_node", {"devices_per_node": -1}, "expected 1 to 2^20, got -1"),
    ("pipelining", {"pipelining": 2**20 + 1}, "expected 1 to 2^20, got 1048577"),
    ("output_dtype", {"output_dtype": "uint8"}, "expected one of int8, int4, got uint8"),
]


@pytest.mark.parametrize(("field", "change", "text"), REFUSED)
def test_bad_fields_are_refused(field: str, change: dict[str, Any], text: str) -> None:
    """By name; DeepSpeed checked none of them."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.SwizzledQuantizeDescriptor(**{**FIELDS, **change})
    assert str(caught.value) == f"{field}: {text}"
