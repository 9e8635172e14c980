"""`pack_weight_4bit` on the host: what threads hold, the way back, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.memory import Host
from planq.audit.ops.packing.int4 import DTYPES, ORDERS, random_bytes
from planq.audit.ops.packing.pack_weight_4bit.adapter import TESTS
from planq.audit.ops.packing.pack_weight_4bit.reference import PackProblem
from planq.audit.reference.formats import pack_nibbles


@pytest.mark.parametrize("nibble_order", ORDERS)
@pytest.mark.parametrize("code_dtype", DTYPES)
def test_back_and_forth(code_dtype: str, nibble_order: str) -> None:
    """The inverse restores every code; spare nibbles become 0."""
    for n, k in ((64, 64), (1, 1), (65, 130), (130, 77), (63, 191)):
        there = PackProblem((n, k), code_dtype, nibble_order=nibble_order)
        codes = np.arange(n * k).reshape(n, k) % 16
        matrix = pack_nibbles(codes, nibble_order)
        packed = TESTS.run(there, input=matrix)["output"]
        back = TESTS.run(replace(there, inverse=True), input=packed)["output"]
        assert np.array_equal(back, matrix)


def test_a_thread_has_its_fragments_side_by_side() -> None:
    """Thread 6 of warp 1, at terms 32 to 47: rows 17 and 25, terms 36, 37, 44 and 45."""
    codes = np.zeros((64, 64), np.uint8)
    codes[17, [36, 37, 44, 45]] = 1, 5, 3, 7
    codes[25, [36, 37, 44, 45]] = 2, 6, 4, 8
    problem = PackProblem((64, 64))
    packed = TESTS.run(problem, input=pack_nibbles(codes, "low_first"))["output"]
    words = packed.reshape(-1).view("<u4")
    assert words[4 * (32 + 6) + 2] == 0x87654321
    assert np.count_nonzero(words) == 1


def test_codes_beyond_the_weight_are_zero() -> None:
    """Signed ones as they are stored: 8."""
    for code_dtype, byte in (("uint4", 0x00), ("int4", 0x88)):
        packed = TESTS.run(PackProblem((1, 2), code_dtype), input=np.full((1, 1), 0xFF, np.uint8))
        assert packed["output"].shape == (1, 2048)
        assert np.count_nonzero(packed["output"] != byte) == 2


def test_threads_change_no_bit() -> None:
    """One thread, or many."""
    problem = PackProblem((500, 700), "int4")
    given = {"input": random_bytes((500, 350), 1)}
    whole = TESTS.run(problem, **given)["output"]
    assert (TESTS.run(problem, Host(7), **given)["output"] == whole).all()


@pytest.mark.parametrize(
    ("fields", "name", "text"),
    [
        ({"weight_shape": (64,)}, "weight_shape", r"expected \(n, k\), got 1"),
        ({"weight_shape": (-1, 64)}, "weight_shape", "-1"),
        ({"weight_shape": (1, 2**58)}, "weight_shape", r"2\^60"),
        ({"weight_shape": (0, 2**60)}, "weight_shape", r"2\^60"),
        ({"code_dtype": "int8"}, "code_dtype", "uint4, int4"),
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, Any], name: str, text: str) -> None:
    """With the field, before anything runs."""
    with pytest.raises(planq.DescriptorError, match=text) as caught:
        planq.PackWeight4BitDescriptor(**{"weight_shape": (64, 64), **fields})
    assert caught.value.field == name
