"""`codebook_dequantize` on the host: its whole table and its edges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from planq.audit.memory import Host
from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.cases import BOOKS, PARAMETERS
from planq.audit.ops.codebook.codebook_dequantize.adapter import TESTS
from planq.audit.ops.codebook.codebook_dequantize.reference import CodebookDequantizeProblem
from planq.audit.ops.codebook.reference import table
from planq.audit.reference import inputs
from planq.audit.reference.formats import CANONICAL_NAN, INPUT_DTYPES, bits, narrowed

F32 = np.float32
Problem = CodebookDequantizeProblem


@pytest.mark.parametrize(("codes", "book"), BOOKS)
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_the_whole_table(dtype: str, codes: str, book: str) -> None:
    """Every way of absmax x order x number of entries; operands take turns."""
    choices = itertools.product(
        (False, True),
        (None, "float32", *(("float64",) if dtype == "float64" else ())),
        ("high_first", "low_first"),
        (None, 2, 11),
        ((0,), (1,), (5, 41), (3, 4, 2100)),
    )
    for seed, (normalized, absmax_dtype, order, entries, shape) in enumerate(choices):
        problem = Problem(
            shape=shape,
            input_dtype=codes,
            output_dtype=dtype,
            codebook=book,
            entries=entries if book == "given" else None,
            normalized=normalized,
            absmax_dtype=absmax_dtype,
            nibble_order=order,
        )
        parameters = PARAMETERS[seed % len(PARAMETERS)]
        TESTS.check(problem, **codebook_inputs.make(problem, "normal", parameters, seed))


@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_normalized_codes_are_looked_up(dtype: str) -> None:
    """The values themselves, rounded once."""
    codes = np.arange(256, dtype=np.uint8)
    values = np.sort(inputs.make("patterns", (256,), "float32", 4))
    problem = Problem(shape=(256,), output_dtype=dtype, normalized=True, input_dtype="uint8")
    found = TESTS.run(problem, input=codes, codebook=values)["output"]
    with np.errstate(over="ignore"):
        assert np.array_equal(bits(found), bits(narrowed(values.astype(problem.compute), dtype)))


@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_an_absmax_that_is_nan(dtype: str) -> None:
    """Everything is the canonical NaN, whatever its bits were."""
    for raw in (0x7FC00000, 0xFFC00001, 0x7F800001):
        absmax = np.array([raw], np.uint32).view(F32)
        problem = Problem(
            shape=(16,),
            input_dtype="uint4",
            output_dtype=dtype,
            codebook="nf4",
            absmax_dtype="float32",
        )
        given = {"input": np.arange(8, dtype=np.uint8), "absmax": absmax}
        assert (bits(TESTS.run(problem, **given)["output"]) == CANONICAL_NAN[dtype]).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_large_tensor(threads: int) -> None:
    """Chunks of all threads have the one absmax."""
    problem = Problem(
        shape=(300, 1001), input_dtype="uint8", output_dtype="float32", codebook="dynamic"
    )
    codes = inputs.hashed(1, problem.count).astype(np.uint8).reshape(problem.shape)
    absmax = np.array([0.3], F32)
    TESTS.check(problem, Host(threads), input=codes, absmax=absmax)
    found = TESTS.run(problem, Host(threads), input=codes, absmax=absmax)["output"]
    assert np.array_equal(found, table("dynamic")[codes] * absmax)
