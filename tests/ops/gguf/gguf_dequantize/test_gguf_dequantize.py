"""`gguf_dequantize` on the host: the package `gguf`, edges, what it refuses."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

import planq
from planq.audit.ops.gguf.grids import GRIDS, grid
from planq.audit.reference import inputs
from planq.audit.reference.formats import STORAGE, Array

# Elements and bytes of a block.
BLOCKS = {
    **dict.fromkeys(("q4_0", "iq4_nl"), (32, 18)),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q8_1": (32, 36),
    "q8_k": (256, 292),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq4_xs": (256, 136),
    "mxfp4": (32, 17),
    "nvfp4": (64, 36),
    "tq1_0": (256, 54),
    "tq2_0": (256, 66),
    "q1_0": (128, 18),
    "q2_0": (64, 18),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
}
# Where blocks have float16 numbers; of iq1_m, the upper half of the last byte has the exponent, and
# that of the byte two before the rest of it.
HALVES = {
    **dict.fromkeys(("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s"), (0,)),
    **dict.fromkeys(("q4_0", "q5_0", "q8_0", "iq4_nl", "iq4_xs", "q1_0", "q2_0", "q8_1"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2)),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q6_k": (208,),
    "tq1_0": (52,),
    "tq2_0": (64,),
}
PACKAGED = sorted(BLOCKS.keys() - {"q8_1", "q8_k", "q1_0", "q2_0"})
OUTPUTS = ("float16", "bfloat16", "float32")


def random_blocks(kind: str, count: int) -> Array:
    """Bytes of any value, but that float16 numbers are finite."""
    nbytes = BLOCKS[kind][1]
    words = inputs.hashed(11, count * nbytes).view(np.uint64)
    blocks: Array = (words >> np.uint64(40)).astype(np.uint8).reshape(count, nbytes)
    for at in HALVES.get(kind, ()):
        infinite = blocks[:, at + 1] & 0x7C == 0x7C
        blocks[infinite, at + 1] ^= 0x40
    if kind == "iq1_m":
        infinite = (blocks[:, 55] & 0x70 == 0x70) & (blocks[:, 53] & 0xC0 == 0xC0)
        blocks[infinite, 55] ^= 0x40
    return blocks


def dequantized(blocks: Array, kind: str, output_dtype: str = "float32") -> Array:
    """The numbers of rows of bytes."""
    elements, nbytes = BLOCKS[kind]
    shape = (*blocks.shape[:-1], blocks.shape[-1] // nbytes * elements)
    desc = planq.GgufDequantizeDescriptor(shape=shape, type=kind, output_dtype=output_dtype)
    output = np.empty(shape, STORAGE[output_dtype])
    args = planq.GgufDequantizeArgs(input=blocks, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return output


def test_every_type_is_known() -> None:
    """With its sizes."""
    assert {member.value for member in planq.GgufType} == BLOCKS.keys()
    for kind, (elements, nbytes) in BLOCKS.items():
        desc = planq.GgufDequantizeDescriptor(
            shape=(3, 2 * elements), type=kind, output_dtype="float16"
        )
        assert desc.operands()["input"].shape == (3, 2 * nbytes)
        assert desc.operands()["input"].dtype is planq.DType.UINT8


@pytest.mark.parametrize("kind", PACKAGED)
def test_values_are_those_of_the_package(kind: str) -> None:
    """All bits of many random blocks."""
    blocks = random_blocks(kind, 4000)
    known = gguf.GGMLQuantizationType[kind.upper()]
    assert gguf.GGML_QUANT_SIZES[known] == BLOCKS[kind]
    with np.errstate(over="ignore"):  # of exponents up to 127
        wanted = gguf.quants.dequantize(blocks, known)
    assert not np.isnan(wanted).any()
    found = dequantized(blocks, kind)
    assert found.tobytes() == wanted.astype(np.float32).tobytes()


@pytest.mark.parametrize("kind", GRIDS)
def test_every_point_of_a_grid_is_that_of_the_package(kind: str) -> None:
    """In order: the set that planq has is the published one."""
    known = getattr(gguf.quants, kind.upper())
    known.init_grid()
    own = grid("iq1" if kind.startswith("iq1") else kind)
    scale = 8 if kind.startswith("iq1") else 1
    assert (own == scale * known.grid.reshape(own.shape)).all()


@pytest.mark.parametrize("kind", GRIDS)
def test_scales_without_a_number_are_of_their_class(kind: str) -> None:
    """Infinite ones keep the signs of codes, NaN is the canonical one."""
    blocks = random_blocks(kind, 64)
    places = [(at, 4 * i) for i, at in enumerate((49, 51, 53, 55))]
    for bits in (0x7C00, 0xFC00, 0x7E00, 0xFFFF):
        if kind == "iq1_m":
            for at, shift in places:
                blocks[:, at] = blocks[:, at] & 15 | (bits >> shift & 15) << 4
        else:
            blocks[:, :2] = np.array([bits], "<u2").view(np.uint8)
        with np.errstate(all="ignore"):
            wanted = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind.upper()])
        found = dequantized(blocks, kind)
        nan = np.isnan(wanted)
        assert nan.all() == (bits & 0x3FF != 0)
        assert (found[~nan] == wanted[~nan]).all()
        assert (found.view(np.uint32)[nan] == 0x7FC00000).all()


def test_blocks_of_8_bits_are_products() -> None:
    """Of two types that the package lacks: the sums in them count for nothing."""
    codes = np.arange(-128, 128, dtype=np.int8)
    scale = np.float32(0.1)
    block = np.concatenate([scale.reshape(1).view(np.uint8), codes.view(np.uint8)])
    block = np.concatenate([block, np.full(32, 0xFF, np.uint8)])
    assert dequantized(block, "q8_k").tolist() == (scale * codes.astype(np.float32)).tolist()
    half = np.float16(0.1)
    parts = [half.reshape(1).view(np.uint8), np.full(2, 0xFF, np.uint8), codes[:32].view(np.uint8)]
    found = dequantized(np.concatenate(parts), "q8_1")
    assert found.tolist() == (np.float32(half) * codes[:32].astype(np.float32)).tolist()


def test_codes_of_one_and_two_bits_come_lowest_first() -> None:
    """Of the other two."""
    one = np.float16(1).reshape(1).view(np.uint8)
    bits = np.arange(16, dtype=np.uint8) * 17
    found = dequantized(np.concatenate([one, bits]), "q1_0")
    assert found.tolist() == (2.0 * np.unpackbits(bits, bitorder="little") - 1).tolist()
    found = dequantized(np.concatenate([one, bits]), "q2_0")
    wanted = [(int(byte) >> 2 * place & 3) - 1 for byte in bits for place in range(4)]
    assert found.tolist() == wanted


def test_a_nan_becomes_the_canonical_one() -> None:
    """And an infinite scale times 0; a code of 0 keeps the sign of its scale."""
    for bits, code, wanted in (
        (0xFFFF, 1, 0x7FC0),
        (0x7C00, 0, 0x7FC0),
        (0xFC00, 1, 0xFF80),
        (0x8000, 0, 0x8000),
        (0x8000, 0xFF, 0x0000),
    ):
        block = np.full(34, code, np.uint8)
        block[:2] = np.array([bits], np.uint16).view(np.uint8)
        found = dequantized(block, "q8_0", "bfloat16").view(np.uint16)
        assert found.tolist() == [wanted] * 32


@pytest.mark.parametrize("output_dtype", OUTPUTS)
@pytest.mark.parametrize("kind", BLOCKS)
def test_the_last_rounding_is_to_the_nearest(kind: str, output_dtype: str) -> None:
    """Of what float32 has."""
    blocks = random_blocks(kind, 64)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = dequantized(blocks, kind).astype(STORAGE[output_dtype])
    same = dequantized(blocks, kind, output_dtype)
    finite = ~np.isnan(wanted.astype(np.float32))
    assert finite.mean() > 0.9
    assert same[finite].tobytes() == wanted[finite].tobytes()


def test_bytes_may_lie_anywhere() -> None:
    """At any address, in rows with any distance, backwards; the output likewise."""
    blocks = random_blocks("q8_0", 3 * 5 * 4).reshape(3, 5, 4 * 34)
    wanted = dequantized(blocks, "q8_0")
    room = np.zeros((3, 5, 4 * 34 + 7), np.uint8)
    moved = room[::-1, :, 3 : 3 + 4 * 34]
    moved[...] = blocks
    desc = planq.GgufDequantizeDescriptor(shape=(3, 5, 128), type="q8_0", output_dtype="float32")
    output = np.zeros((5, 3, 131), np.float32).swapaxes(0, 1)[..., 1:129]
    args = planq.GgufDequantizeArgs(input=moved, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert output.tobytes() == wanted.tobytes()


def test_one_plan_takes_every_number_of_rows() -> None:
    """Axes before the last may be a Dim."""
    rows = planq.Dim("rows", max=9)
    desc = planq.GgufDequantizeDescriptor(shape=(rows, 512), type="q6_k", output_dtype="float16")
    plan = planq.Plan.select(planq.HOST, desc)
    blocks = random_blocks("q6_k", 18).reshape(9, 420)
    for count in (0, 1, 9):
        made = plan.empty_outputs(np, rows=count)
        plan.run(planq.HOST, None, planq.GgufDequantizeArgs(input=blocks[:count], **made))
        wanted = dequantized(blocks[:count], "q6_k", "float16")
        assert made["output"].tobytes() == wanted.tobytes()


def rows_by_index(
    blocks: Array, kind: str, index: Array, invalid: Array | None = None, rows: Any = None
) -> Array:
    """Rows of blocks as float32; `rows`: a Dim for the extent of the index."""
    elements, nbytes = BLOCKS[kind]
    width = blocks.shape[1] // nbytes * elements
    desc = planq.GgufDequantizeDescriptor(
        shape=(rows, width) if rows else (*index.shape, width),
        type=kind,
        output_dtype="float32",
        table_rows=len(blocks),
        index_dtype=index.dtype.name,
    )
    output = np.full((*index.shape, width), np.nan, np.float32)
    args = planq.GgufDequantizeArgs(input=blocks, output=output, index=index, invalid=invalid)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return output


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["q8_0", "q6_k", "iq2_s"])
def test_rows_by_index_are_those_of_the_whole(kind: str, index_dtype: str) -> None:
    """Twice, backwards, out of rows that are apart; and +0 where there is none."""
    nbytes = BLOCKS[kind][1]
    room = np.zeros((9, 3 * nbytes + 5), np.uint8)
    blocks = room[::-1, 1 : 1 + 3 * nbytes]
    blocks[...] = random_blocks(kind, 27).reshape(9, -1)
    whole = dequantized(blocks, kind)
    index = np.array([[8, 0, 0], [-1, 9, 5], [2**31 - 1, -(2**31), 1]], index_dtype)
    named = (index >= 0) & (index < 9)
    wanted = np.where(named[..., None], whole[np.where(named, index, 0)], np.float32(0))
    invalid = np.full(1, 77, np.int64)
    assert rows_by_index(blocks, kind, index, invalid).tobytes() == wanted.tobytes()
    assert invalid.tolist() == [4]
    assert rows_by_index(blocks, kind, index).tobytes() == wanted.tobytes()
    strided = np.repeat(index, 2, axis=0)[::2]
    assert rows_by_index(blocks, kind, strided).tobytes() == wanted.tobytes()


def test_one_plan_takes_every_number_of_indices() -> None:
    """A Dim of the output's shape; far beyond 32 bits no index names a row."""
    tokens = planq.Dim("tokens", max=9)
    blocks = random_blocks("q4_0", 20).reshape(10, 36)
    whole = dequantized(blocks, "q4_0")
    index = np.array([3, 2**32 + 3, 9, -(2**63), 0], np.int64)
    wanted = np.stack([whole[3], whole[3] * 0, whole[9], whole[9] * 0, whole[0]])
    found = rows_by_index(blocks, "q4_0", index, rows=tokens)
    assert found.tolist() == wanted.tolist()
    assert rows_by_index(blocks, "q4_0", index[:0], np.ones(1, np.int64), tokens).size == 0


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
        ({"shape": (2, 48)}, "shape", "blocks of 32 elements, as q4_0 has them, got 48 elements"),
        ({"type": "q4_k"}, "shape", "blocks of 256 elements, as q4_k has them, got 64 elements"),
        ({"shape": (2, planq.Dim("m", max=64))}, "shape", "expected an integer for the last axis"),
        ({"output_dtype": "float64"}, "output_dtype", "float64"),
        ({"output_dtype": "int8"}, "output_dtype", "int8"),
        ({"type": "iq2_m"}, "type", "iq2_m"),
        ({"index_dtype": "int64"}, "index_dtype", "only rows by index have it, got int64"),
        ({"table_rows": 3, "index_dtype": "uint8"}, "index_dtype", "uint8"),
        ({"table_rows": 0}, "table_rows", "0"),
        ({"table_rows": 3, "shape": (64,)}, "shape", "expected 2 to 8 axes, got 1"),
        ({"table_rows": 2**62}, "table_rows", "more than 2^60 elements"),
    ],
)
def test_descriptors_that_are_refused(changes: dict[str, Any], field: str, text: str) -> None:
    """Each names its field and what came."""
    fields: dict[str, Any] = {"shape": (2, 64), "type": "q4_0", "output_dtype": "float32"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.GgufDequantizeDescriptor(**(fields | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [np.zeros((2, 37), np.uint8), np.zeros((2, 36), np.int8), np.zeros((2, 72), np.uint8)[:, ::2]],
)
def test_bytes_that_do_not_fit_are_named_and_nothing_is_written(other: Array) -> None:
    """Before anything runs."""
    desc = planq.GgufDequantizeDescriptor(shape=(2, 64), type="q4_0", output_dtype="float32")
    output = np.full((2, 64), 7, np.float32)
    with pytest.raises(planq.ArgumentError, match=r"^input: "):
        planq.Plan.select(planq.HOST, desc).run(
            planq.HOST, None, planq.GgufDequantizeArgs(input=other, output=output)
        )
    assert (output == 7).all()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("index", None),
        ("index", np.zeros(3, np.int64)),
        ("index", np.zeros(2, np.int32)),
        ("input", np.zeros((4, 72), np.uint8)),
        ("invalid", np.zeros(1, np.int32)),
        ("invalid", np.zeros(2, np.int64)),
    ],
)
def test_operands_of_rows_by_index_that_do_not_fit_are_named(name: str, other: Any) -> None:
    """Before anything runs."""
    desc = planq.GgufDequantizeDescriptor(
        shape=(2, 64), type="q4_0", output_dtype="float32", table_rows=5
    )
    assert desc.index_dtype is planq.DType.INT64
    given = {"input": np.zeros((5, 36), np.uint8), "index": np.zeros(2, np.int64)}
    output = np.full((2, 64), 7, np.float32)
    args = planq.GgufDequantizeArgs(**(given | {name: other}), output=output)
    with pytest.raises(planq.ArgumentError, match=rf"^{name}: "):
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert (output == 7).all()


def test_an_index_that_nothing_asks_for_is_refused() -> None:
    """Of all rows."""
    desc = planq.GgufDequantizeDescriptor(shape=(2, 64), type="q4_0", output_dtype="float32")
    args = planq.GgufDequantizeArgs(
        input=np.zeros((2, 36), np.uint8),
        output=np.zeros((2, 64), np.float32),
        index=np.zeros(2, np.int64),
    )
    with pytest.raises(planq.ArgumentError, match=r"^index: "):
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
