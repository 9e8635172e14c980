"""`code_sum` on the host: its limits, its axes, and the spare nibble."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.linear.code_sum.adapter import TESTS
from planq.audit.ops.linear.code_sum.reference import SumProblem
from planq.audit.ops.linear.products import CODES

LARGEST = {"int8": 128, "uint8": 255, "int4": 8, "uint4": 15}


@pytest.mark.parametrize("dtype", CODES)
def test_as_many_terms_as_int32_holds_and_no_more(dtype: str) -> None:
    """On either axis."""
    most = (2**31 - 1) // LARGEST[dtype]
    for shape, axis in (((1, most), -1), ((most, 1), -2)):
        planq.CodeSumDescriptor(shape=shape, input_dtype=dtype, axis=axis)
        larger = tuple(extent + (extent == most) for extent in shape)
        with pytest.raises(planq.DescriptorError, match=f"more than {most} terms") as caught:
            planq.CodeSumDescriptor(shape=larger, input_dtype=dtype, axis=axis)
        assert caught.value.field == "shape"


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"axis": 0}, "axis"),
        ({"axis": 3}, "axis"),
        ({"axis": -4}, "axis"),
        ({"shape": ()}, "shape"),
        ({"input_dtype": "int32"}, "input_dtype"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str) -> None:
    """With the name of the field."""
    with pytest.raises(planq.DescriptorError) as caught:
        planq.CodeSumDescriptor(**{"shape": (2, 3, 4), **fields})
    assert caught.value.field == name


@pytest.mark.parametrize("dtype", CODES)
def test_every_length(dtype: str) -> None:
    """Vectors leave tails on either axis."""
    for extent, axis in itertools.product((1, 2, 3, 15, 16, 17, 63, 64, 65, 129, 1000), (-1, -2)):
        for other in (1, 5, 70):
            shape = (other, extent) if axis == -1 else (extent, other)
            problem = SumProblem(shape, dtype, axis)
            TESTS.check(problem, Host(2), **problem.inputs("ends", extent))


def test_the_spare_nibble_is_not_looked_at() -> None:
    """Behind an odd axis, summed or not."""
    for axis in (-1, -2):
        problem = SumProblem((5, 7), "int4", axis)
        given = problem.inputs("any", 1)["input"]
        dirty = given.copy()
        dirty[:, -1] |= 0xF0
        assert (dirty != given).any()
        got = TESTS.run(problem, input=dirty)["output"]
        assert (got == problem.expected({"input": given})["output"]).all()


def test_long_sums_are_exact() -> None:
    """Sums of lines that are longer than 8 and 16 bits hold."""
    for dtype, value in (("int8", -128), ("uint8", 255)):
        for axis in (-1, -2):
            shape = (3, 300000) if axis == -1 else (300000, 3)
            given = np.full(shape, value, dtype)
            got = TESTS.run(SumProblem(shape, dtype, axis), input=given)["output"]
            assert (got == value * 300000).all()
