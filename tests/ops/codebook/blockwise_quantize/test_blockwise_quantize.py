"""`blockwise_quantize` on the host: its whole table, blocks of every size, nested statistics.

==============================  ====================================================================
bitsandbytes' CPU backend       what is left of a difference
==============================  ====================================================================
quantize_4bit, nf4              the codes of four floats under RECIPROCAL, which lie at thresholds:
                                planq has those of its CUDA kernels; it divides in a last block that
                                is shorter, as DIVIDE does everywhere
quantize_4bit, fp4              which of the two zeros a small element has
quantize_blockwise              it looks the code up by the first 16 bits of a fixed-point quotient:
                                near a threshold it is not the nearest, and +0 has the code of 2e-5
a block of zeros                the code of -1 (8 bits); none for nf4
a block with a NaN              a code of its own for NaN, and of 8 bits the absmax of the others
a block with an infinity        absmax infinite, so that all else decodes to NaN
a block of subnormals           absmax below 1e-38 counts as 1e-38 (4 bits); its reciprocal is
                                infinite (8 bits)
==============================  ====================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import planq
from planq.audit.memory import Host
from planq.audit.ops.codebook import inputs as codebook_inputs
from planq.audit.ops.codebook.blockwise_quantize.adapter import TESTS
from planq.audit.ops.codebook.blockwise_quantize.reference import BlockwiseQuantizeProblem
from planq.audit.ops.codebook.cases import BOOKS, DATA, PARAMETERS
from planq.audit.ops.codebook.reference import NF4_THRESHOLDS, table
from planq.audit.reference import inputs
from planq.audit.reference.formats import INPUT_DTYPES, STORAGE, Array, bits, unpack_nibbles
from support.bitsandbytes_host import bnb
from support.tables import share

F32 = np.float32
INF, NAN = float("inf"), float("nan")
Problem = BlockwiseQuantizeProblem


def nf4(shape: tuple[int, ...], block_size: int, dtype: str = "float32", **fields: Any) -> Problem:
    """NF4 codes."""
    return Problem(
        shape=shape,
        input_dtype=dtype,
        output_dtype="uint4",
        codebook="nf4",
        block_size=block_size,
        **fields,
    )


def dynamic(shape: tuple[int, ...], block_size: int, **fields: Any) -> Problem:
    """Codes of the dynamic map."""
    return Problem(
        shape=shape, input_dtype="float32", codebook="dynamic", block_size=block_size, **fields
    )


def nibbles(packed: Array, count: int) -> Array:
    """The codes of packed bytes."""
    return unpack_nibbles(packed, count, "high_first")


@pytest.mark.parametrize(("codes", "book"), BOOKS)
@pytest.mark.parametrize("dtype", INPUT_DTYPES)
def test_the_whole_table(dtype: str, codes: str, book: str) -> None:
    """Every absmax x quotient x NonFinite x rounding x block size; operands take turns.

    Of these a type of input has a third.
    """
    choices = share(
        INPUT_DTYPES.index(dtype),
        ("measured", "given", 1, 5),
        ("reciprocal", "divide"),
        ("propagate", "saturate"),
        ("nearest_even", "stochastic"),
        (1, 3, 8, 41, 64, 1000),
    )
    for seed, (absmax, quotient, nonfinite, rounding, size) in enumerate(choices):
        problem = Problem(
            shape=(3, 4, 41),
            input_dtype=dtype,
            output_dtype=codes,
            codebook=book,
            block_size=size,
            absmax_given=absmax == "given",
            nested_block_size=absmax if isinstance(absmax, int) else None,
            quotient=quotient,
            nonfinite=nonfinite,
            rounding=rounding,
            nibble_order=("high_first", "low_first")[seed % 2],
        )
        data, parameters = DATA[seed % len(DATA)], PARAMETERS[seed // 5 % len(PARAMETERS)]
        TESTS.check(problem, **codebook_inputs.make(problem, data, parameters, seed))


@st.composite
def problems(draw: Any) -> Problem:
    """Any shape with any block size."""
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)))
    codes, book = draw(st.sampled_from(BOOKS))
    given = draw(st.booleans())
    return Problem(
        shape=shape,
        input_dtype=draw(st.sampled_from(INPUT_DTYPES)),
        output_dtype=codes,
        codebook=book,
        block_size=draw(st.integers(1, 200) | st.just(2**62)),
        absmax_given=given,
        nested_block_size=None if given else draw(st.none() | st.integers(1, 50)),
        quotient=draw(st.sampled_from(("reciprocal", "divide"))),
        nonfinite=draw(st.sampled_from(("propagate", "saturate"))),
        rounding=draw(st.sampled_from(("nearest_even", "stochastic"))),
        nibble_order=draw(st.sampled_from(("high_first", "low_first"))),
    )


@settings(deadline=None, max_examples=200)
@given(problem=problems(), seed=st.integers(0, 10**6), turn=st.integers(0, 100))
def test_any_problem(problem: Problem, seed: int, turn: int) -> None:
    """Small tensors of any rank, empty ones among them."""
    data, parameters = DATA[turn % len(DATA)], PARAMETERS[turn % len(PARAMETERS)]
    TESTS.check(problem, **codebook_inputs.make(problem, data, parameters, seed))


class TestBlocks:
    """How a tensor is cut."""

    @pytest.mark.parametrize("size", [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 2**17])
    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    def test_bytes_of_large_blocks_hold_two_codes_each(self, dtype: str, size: int) -> None:
        """Nothing of a byte is left in the next one, and no size is another type's."""
        problem = nf4((2 * size + 6,), size, dtype)
        x = inputs.make("normal", problem.shape, dtype, size)
        TESTS.check(problem, input=x)
        packed = nibbles(TESTS.run(problem, input=x)["output"], x.size)
        for first in range(0, x.size, size):
            part = x[first : first + size]
            alone = TESTS.run(nf4(part.shape, size, dtype), input=part)["output"]
            assert np.array_equal(nibbles(alone, part.size), packed[first : first + size])

    @pytest.mark.parametrize("threads", [1, 2, 5])
    @pytest.mark.parametrize("size", [1, 3, 63, 2047, 2049, 4095, 65535, 65537])
    def test_blocks_that_share_bytes(self, size: int, threads: int) -> None:
        """Odd blocks on several threads."""
        problem = nf4((150_001,), size)
        TESTS.check(problem, Host(threads), input=inputs.make("normal", problem.shape, "float32"))

    @pytest.mark.parametrize("count", [1, 2, 3, 5, 15, 63, 64, 65, 127, 4095, 4097, 8191])
    @pytest.mark.parametrize("order", ["high_first", "low_first"])
    def test_an_odd_count_writes_no_byte_too_many(self, count: int, order: str) -> None:
        """Guard bytes lie behind the last one, whose spare nibble is 0."""
        x = inputs.make("normal", (count,), "bfloat16", count)
        for book in ("nf4", "fp4", "int4", "af4"):
            problem = Problem(
                shape=(count,),
                input_dtype="bfloat16",
                output_dtype="uint4",
                codebook=book,
                block_size=64,
                nibble_order=order,
            )
            TESTS.check(problem, input=x)
            last = TESTS.run(problem, input=x)["output"][-1]
            if count % 2:
                assert (last & 15 if order == "high_first" else last >> 4) == 0

    def test_blocks_go_across_the_ends_of_rows(self) -> None:
        """And the shape changes nothing: one row is not a column."""
        x = inputs.make("normal", (960,), "float32", 3)
        flat = TESTS.run(nf4((960,), 64), input=x)
        for shape in ((1, 960), (960, 1), (1, 1, 960), (30, 32), (4, 1, 240), (2, 3, 4, 40)):
            found = TESTS.run(nf4(shape, 64), input=x.reshape(shape))
            assert found["output"].tobytes() == flat["output"].tobytes()
            assert found["absmax"].tobytes() == flat["absmax"].tobytes()

    @pytest.mark.parametrize("rows", [(slice(None, None, -1),), (slice(None, None, 3),)])
    def test_strides_do_not_matter(self, rows: tuple[slice, ...]) -> None:
        """Rows backwards and with others in between, in both operands."""
        x = inputs.make("normal", (90, 7, 33), "float32", 4)[rows]
        wide = np.full((90, 7, 40), 77, np.uint8)
        output = wide[rows][..., :33]
        problem = dynamic(x.shape, 50)
        wanted = problem.expected({"input": np.ascontiguousarray(x)})
        absmax = np.empty(problem.blocks, F32)
        args = planq.BlockwiseQuantizeArgs(input=x, output=output, absmax=absmax)
        planq.Plan.select(planq.HOST, TESTS.descriptor(problem)).run(planq.HOST, None, args)
        assert np.array_equal(output, wanted["output"])
        assert np.array_equal(absmax, wanted["absmax"])
        output[...] = 77
        assert (wide == 77).all()

    def test_more_than_two_to_the_thirty_one_elements(self) -> None:
        """Zeros with values planted before, at and after 2^31."""
        count = 2**31 + 2**20 + 23
        x = np.zeros(count, np.float16)
        where = np.array([0, 2**31 - 1, 2**31, 2**31 + 1, count - 1])
        x[where] = np.array([1, -2, 3, -3, 5])
        output = np.empty(-(-count // 2), np.uint8)
        absmax = np.empty(-(-count // 4096), F32)
        desc = TESTS.descriptor(nf4((count,), 4096, "float16"))
        args = planq.BlockwiseQuantizeArgs(input=x, output=output, absmax=absmax)
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
        assert np.flatnonzero(absmax).tolist() == np.unique(where // 4096).tolist()
        assert absmax[where // 4096].tolist() == [1, 2, 3, 3, 5]
        marked = np.flatnonzero(output != 0x77)
        assert marked.tolist() == np.unique(where // 2).tolist()
        assert output[marked].tolist() == [0xF7, 0x70, 0xF0, 0xF0]


class TestBadBlocks:
    """What happens to a block stays in it."""

    @pytest.mark.parametrize("dtype", INPUT_DTYPES)
    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    @pytest.mark.parametrize("codes", ["uint8", "uint4"])
    def test_one_bad_element(self, codes: str, value: float, dtype: str) -> None:
        """PROPAGATE: absmax NaN, so that it decodes to NaN, not to the end of the codebook."""
        book = "dynamic" if codes == "uint8" else "nf4"
        problem = Problem(
            shape=(640,), input_dtype=dtype, output_dtype=codes, codebook=book, block_size=64
        )
        x = inputs.make("normal", (640,), dtype, 8)
        clean = TESTS.run(problem, input=x)
        x[200] = value
        TESTS.check(problem, input=x)
        found = TESTS.run(problem, input=x)
        assert np.flatnonzero(np.isnan(found["absmax"])).tolist() == [3]
        zero = {"uint8": 127, "uint4": 0x77}[codes]
        per = len(found["output"]) // 10
        assert (found["output"][3 * per : 4 * per] == zero).all()
        rest = np.delete(np.arange(10), 3)
        same = found["output"].reshape(10, per)[rest] == clean["output"].reshape(10, per)[rest]
        assert same.all()

    def test_an_infinity_keeps_its_sign_when_it_saturates(self) -> None:
        """At the end on its side, over the absmax of the finite elements."""
        x = np.array([INF, -INF, NAN, 2, -2, 1, 0, -0.0], F32)
        found = TESTS.run(nf4((8,), 8, nonfinite="saturate"), input=x)
        assert found["absmax"].tolist() == [2]
        assert nibbles(found["output"], 8).tolist() == [15, 0, 7, 15, 0, 12, 7, 7]

    @pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
    @pytest.mark.parametrize("quotient", ["reciprocal", "divide"])
    def test_a_block_of_subnormals_is_divided(self, dtype: str, quotient: str) -> None:
        """Where 1 / absmax overflows, codes are still the nearest."""
        tiny = np.finfo(F32 if dtype != "float64" else np.float64).smallest_normal
        x = (np.array([1, 0.5, -1, 0.25, 0]) * tiny / 8).astype(STORAGE[dtype])
        found = TESTS.run(nf4((5,), 64, dtype, quotient=quotient), input=x)
        assert nibbles(found["output"], 5).tolist() == [15, 12, 0, 10, 7]

    def test_a_block_of_zeros_decodes_to_zeros(self) -> None:
        """absmax 0 and the code of +0; -0 counts as 0."""
        for name, zero in (("nf4", 7), ("fp4", 0), ("int4", 7), ("af4", 8)):
            problem = Problem(
                shape=(64,),
                input_dtype="float32",
                output_dtype="uint4",
                codebook=name,
                block_size=64,
            )
            for x in (np.zeros(64, F32), -np.zeros(64, F32)):
                found = TESTS.run(problem, input=x)
                assert (nibbles(found["output"], 64) == zero).all()
                assert bits(found["absmax"]).tolist() == [0]


class TestNested:
    """Statistics of statistics."""

    @pytest.mark.parametrize("blocks", [1, 2, 3, 1023, 1024, 1025, 2049, 5000, 2**20 + 2**11 + 3])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_mean_is_a_fixed_tree(self, dtype: str, blocks: int) -> None:
        """Leaves of 1024, and leaves of leaves; on any number of threads."""
        problem = Problem(
            shape=(blocks,),
            input_dtype=dtype,
            output_dtype="uint4",
            codebook="nf4",
            block_size=1,
            nested_block_size=256,
        )
        x = inputs.make("normal", (blocks,), dtype, blocks)
        for threads in (1, 3):
            TESTS.check(problem, Host(threads), input=x)

    def test_the_mean_of_nothing_is_zero(self) -> None:
        """A tensor without elements has no blocks, but a mean."""
        found = TESTS.run(nf4((0, 5), 64, nested_block_size=4), input=np.zeros((0, 5), F32))
        assert bits(found["nested_offset"]).tolist() == [0]
        assert found["absmax"].shape == found["nested_absmax"].shape == (0,)

    def test_one_nan_makes_all_statistics_nan(self) -> None:
        """The mean is everyone's: bad data are not turned into good-looking ones."""
        x = inputs.make("normal", (1000,), "float32", 2)
        x[700] = NAN
        found = TESTS.run(nf4((1000,), 10, nested_block_size=30), input=x)
        assert bits(found["nested_offset"]).tolist() == [0x7FC00000]
        assert (bits(found["nested_absmax"]) == 0x7FC00000).all()
        assert (found["absmax"] == 127).all()

    def test_a_mean_that_overflows(self) -> None:
        """Sums go to infinity, and what is left of absmax with them."""
        x = inputs.make("constant", (64,), "float32", 2) * 0 + np.finfo(F32).max
        TESTS.check(nf4((64,), 1, nested_block_size=7), input=x)

    def test_statistics_are_those_of_the_parts(self) -> None:
        """Codes are the same with and without nesting."""
        x = inputs.make("normal", (77, 130), "float32", 5)
        plain = TESTS.run(nf4(x.shape, 64), input=x)
        nested = TESTS.run(nf4(x.shape, 64, nested_block_size=256), input=x)
        assert plain["output"].tobytes() == nested["output"].tobytes()
        offset, absmax = nested["nested_offset"], nested["nested_absmax"]
        restored = table("dynamic")[nested["absmax"]] * absmax[0] + offset
        assert np.abs(restored - plain["absmax"]).max() <= 0.02 * absmax[0]


class TestBitsandbytes:
    """Against its CPU backend: see the table at the top."""

    COUNT = 2**18

    def sample(self, dtype: str = "float32", seed: int = 1) -> Array:
        """Blocks without a zero, subnormal or non-finite absmax."""
        return inputs.make("normal", (self.COUNT,), dtype, seed)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    @pytest.mark.parametrize("size", [64, 128, 1024, 2048, 4096])
    def test_nf4_is_the_same(self, size: int, dtype: str) -> None:
        """Byte for byte under RECIPROCAL: no quotient here is one of the four that differ."""
        x = self.sample(dtype)
        tensor = torch.from_numpy(x.view(np.uint8).copy()).view(getattr(torch, dtype))
        packed, state = bnb.quantize_4bit(tensor, blocksize=size, quant_type="nf4")
        ours = TESTS.run(nf4(x.shape, size, dtype), input=x)
        assert np.array_equal(ours["output"], packed.numpy().ravel())
        assert np.array_equal(ours["absmax"], state.absmax.numpy())

    def test_nf4_of_four_floats_differs(self) -> None:
        """Its midpoints are rounded sums. 31 floats around each threshold."""
        y = bits(NF4_THRESHOLDS)[:, None] + np.arange(-15, 16, dtype=np.int32)
        x = np.ones((y.size, 64), F32)
        x[:, 1] = y.astype(np.uint32).view(F32).ravel()
        packed, _ = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
        ours = nibbles(TESTS.run(nf4((x.size,), 64), input=x.ravel())["output"], x.size)
        theirs = nibbles(packed.numpy().ravel(), x.size)
        other = np.flatnonzero(ours != theirs)
        assert other.size == 4
        assert ours[other].tolist() == [1, 8, 13, 15]
        assert theirs[other].tolist() == [0, 9, 12, 14]
        # The second one equals a decimal that was rounded up, past the middle of 8 and 9.
        distance = np.abs(table("nf4").astype(float)[:, None] - x.ravel()[other].astype(float))
        assert distance.argmin(axis=0).tolist() == [1, 9, 13, 15]

    @pytest.mark.parametrize("count", [5, 100, 4097])
    def test_nf4_of_a_shorter_last_block_is_divided(self, count: int) -> None:
        """Which is DIVIDE; an odd count leaves the code of 0 in the spare nibble."""
        x = self.sample()[:count]
        packed, _ = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="nf4")
        theirs = packed.numpy().ravel()
        whole = count // 64 * 64
        reciprocal = TESTS.run(nf4((count,), 64), input=x)["output"]
        divided = TESTS.run(nf4((count,), 64, quotient="divide"), input=x)["output"]
        assert np.array_equal(nibbles(theirs, whole), nibbles(reciprocal, whole))
        assert np.array_equal(nibbles(theirs, count)[whole:], nibbles(divided, count)[whole:])
        if count % 2:
            assert theirs[-1] & 15 == 7
            assert reciprocal[-1] & 15 == 0

    def test_fp4_differs_in_its_zeros_alone(self) -> None:
        """Its CPU backend orders the two zeros in a way of its own."""
        x = self.sample()
        packed, _ = bnb.quantize_4bit(torch.from_numpy(x), blocksize=64, quant_type="fp4")
        problem = Problem(
            shape=x.shape,
            input_dtype="float32",
            output_dtype="uint4",
            codebook="fp4",
            block_size=64,
        )
        ours = nibbles(TESTS.run(problem, input=x)["output"], x.size)
        theirs = nibbles(packed.numpy().ravel(), x.size)
        other = ours != theirs
        assert 0 < other.sum() < 0.01 * x.size
        assert np.isin(ours[other], (0, 8)).all()
        assert np.isin(theirs[other], (0, 8)).all()

    @pytest.mark.parametrize("size", [64, 256, 4096])
    def test_8_bit_codes_differ_near_thresholds_alone(self, size: int) -> None:
        """Where they do, planq's are the nearer ones."""
        x = self.sample()
        codes, state = bnb.quantize_blockwise(torch.from_numpy(x), blocksize=size)
        ours = TESTS.run(dynamic(x.shape, size, quotient="divide"), input=x)
        assert np.array_equal(ours["absmax"], state.absmax.numpy())
        values = table("dynamic").astype(np.float64)
        y = x.astype(np.float64) / np.repeat(ours["absmax"], size).astype(np.float64)
        mine, theirs = values[ours["output"]], values[codes.numpy()]
        other = np.flatnonzero(ours["output"] != codes.numpy())
        assert 0 < len(other) < 0.05 * x.size
        assert (np.abs(mine - y)[other] <= np.abs(theirs - y)[other] + 1e-7).all()
        # Its fixed point has steps of 2^-15.
        beside = np.abs(np.abs(mine - y) - np.abs(theirs - y))[other]
        assert (beside <= 2 * 2.0**-15).all()

    def test_what_it_does_to_other_blocks(self) -> None:
        """Zeros, NaN, infinities, subnormals: what is written at the top."""

        def both(*x: float) -> tuple[list[int], float, list[int], float]:
            block = torch.zeros(64)
            block[: len(x)] = torch.tensor(x)
            codes, state = bnb.quantize_blockwise(block, blocksize=64)
            packed, state4 = bnb.quantize_4bit(block, blocksize=64, quant_type="nf4")
            eight = codes[: len(x)].tolist(), float(state.absmax[0])
            four = nibbles(packed.numpy().ravel(), 64)[: len(x)].tolist(), float(state4.absmax[0])
            return *eight, *four

        assert both(0.0, -0.0) == ([0, 0], 0.0, [7, 7], 0.0)
        eight, absmax, _, absmax4 = both(1.0, NAN)
        assert (eight[1], absmax) == (0, 1.0)
        assert np.isnan(absmax4)
        _, absmax, _, absmax4 = both(1.0, INF)
        assert absmax == absmax4 == INF
        eight, _, four, _ = both(1e-40, -5e-41, 2e-41)
        assert eight == [255, 0, 255]
        assert four == [7, 7, 7]
