"""`fill`, `arange` and `multiply` on the host: numbers by value, other libraries, edges."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from planq.audit.ops.memory.elements import DTYPES, INTEGERS
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, STORAGE, Array, bits

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
HALVES = ("float16", "bfloat16")


def fill(output: Array, value: Any) -> Array:
    """By planq."""
    desc = planq.FillDescriptor(shape=output.shape, output_dtype=output.dtype)
    planq.Plan.select(planq.HOST, desc).run(
        planq.HOST, None, planq.FillArgs(output=output, value=value)
    )
    return output


def arange(output: Array, **numbers: Any) -> Array:
    """By planq."""
    desc = planq.ArangeDescriptor(shape=output.shape, output_dtype=output.dtype)
    args = planq.ArangeArgs(output=output, **numbers)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return output


def multiply(x: Array, y: Array, output: Array | None = None, threads: int = 1) -> Array:
    """By planq."""
    output = np.empty_like(x) if output is None else output
    plan = planq.Plan.select(
        planq.HOST, planq.MultiplyDescriptor(shape=x.shape, input_dtype=x.dtype)
    )
    args = planq.MultiplyArgs(input=x, other=y, output=output)
    plan.run(planq.host_stream(threads=threads), None, args)
    return output


@every_dtype
def test_numbers_by_value_and_in_memory_are_one(dtype: str) -> None:
    """And the least that either can be told: 0, 0, 1."""
    value = -7 if dtype in INTEGERS else -7.25
    held = np.array([value], np.int64 if dtype in INTEGERS else np.float64)
    made = [np.empty(9, STORAGE[dtype]) for _ in range(4)]
    assert bits(fill(made[0], value)).tolist() == bits(fill(made[1], held)).tolist()
    assert arange(made[2]).astype(np.float64).tolist() == list(range(9))
    arange(made[3], start=held, step=0 if dtype in INTEGERS else 0.0)
    assert bits(made[3]).tolist() == bits(made[0]).tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_every_narrow_number_times_some(dtype: str) -> None:
    """Of few enough bits for all of them; ml_dtypes rounds the product of float32 once, too."""
    storage = STORAGE[dtype]
    x = np.arange(2 ** (8 * storage.itemsize)).astype(f"u{storage.itemsize}").view(storage)
    for factor in (1.0, -3.0, 0.3, 2.0**-7):
        y = np.full_like(x, factor)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float32) * y.astype(np.float32)
            largest = FLOATS[dtype].largest
            theirs = (wide if dtype in HALVES else np.clip(wide, -largest, largest)).astype(storage)
        ours, known = multiply(x, y), ~np.isnan(wide)
        assert np.array_equal(bits(ours)[known], bits(theirs)[known])
        assert np.isnan(ours[~known].astype(np.float32)).all()


@pytest.mark.parametrize("name", ["float32", "float64", "int32", "int64", "uint8", "int8"])
def test_torch_has_the_same_products(name: str) -> None:
    """Integers wrap there, too."""
    words = inputs.hashed(3, 4000)
    floats = name in FLOATS
    x = inputs.make("finite", (4000,), name, 5) if floats else words.astype(STORAGE[name])
    y = x[::-1].copy()
    theirs = (torch.from_numpy(x) * torch.from_numpy(y)).numpy()
    assert np.array_equal(bits(multiply(x, y)), bits(theirs))


def test_in_place_and_by_any_number_of_threads() -> None:
    """An output may be the input itself."""
    x, y = (inputs.make("tiled", (301, 1001), "float32", seed) for seed in (1, 2))
    with np.errstate(all="ignore"):
        wanted = x * y
    for threads in (1, 3):
        own = x.copy()
        multiply(own, y, own, threads)
        assert np.array_equal(bits(own), bits(wanted))


def test_what_overflows() -> None:
    """Infinity in wide types, the largest number in fp8, the low bits of integers."""
    assert fill(np.empty(1, np.float16), 1e9).tolist() == [np.inf]
    assert fill(np.empty(1, np.float32), -1e300).tolist() == [-np.inf]
    assert fill(np.empty(1, ml_dtypes.float8_e5m2), np.inf).astype(float).tolist() == [57344]
    assert fill(np.empty(1, np.uint8), -1).tolist() == [255]
    assert arange(np.empty(3, np.int8), start=126).tolist() == [126, 127, -128]


def test_one_rounding_to_the_type() -> None:
    """1 + 2^-11 + 2^-40 goes up in float16; by way of float32 it would be a tie that goes down."""
    assert fill(np.empty(1, np.float16), 1 + 2.0**-11 + 2.0**-40).tolist() == [1 + 2.0**-10]


def test_what_is_refused() -> None:
    """Types with fewer than 8 bits, and numbers of the other kind."""
    with pytest.raises(planq.DescriptorError) as error:
        planq.FillDescriptor(shape=(4,), output_dtype="int4")
    assert error.value.field == "output_dtype"
    with pytest.raises(planq.ArgumentError) as refused:
        fill(np.empty(3, np.int32), 1.5)
    assert refused.value.operand == "value"
