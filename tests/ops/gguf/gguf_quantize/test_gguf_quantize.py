"""`gguf_quantize` on the host: blocks written by hand, what is lost, edges, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planq
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.grids import GRIDS
from planq.audit.reference import inputs
from planq.audit.reference.formats import Array

# The bytes of a block of zeros; one stands for all.
MINUS = (0x00, 0x80)
SIGNED = ("q4_1", "q5_1")  # where a minimum of -0 is stored
ZEROS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("q4_1", "q5_1", "q8_0", "q8_1", "q8_k", "q2_k", "q4_k", "q5_k"), (0,)),
    **dict.fromkeys(("q6_k", "mxfp4", "nvfp4", "q3_k"), (0,)),
    "q4_0": (*MINUS, *[0x88] * 16),
    "q5_0": (*MINUS, *[0xFF] * 4, *[0] * 16),
    "iq4_nl": (0, 0, *[0x88] * 16),
    "iq4_xs": (*MINUS, *[0xAA] * 2, *[0] * 4, *[0x88] * 128),
    "tq1_0": (*[0x80] * 48, *[0x7F] * 4, 0, 0),
    "tq2_0": (*[0x55] * 64, 0, 0),
    "q1_0": (0, 0, *[0xFF] * 16),
    "q2_0": (0, 0, *[0x55] * 16),
}


def quantized(x: Array, kind: str, input_dtype: str = "float32") -> Array:
    """The blocks of rows of numbers."""
    form = FORMATS[kind]
    bytes_of_row = x.shape[-1] // form.elements * form.nbytes
    output = np.empty((*x.shape[:-1], bytes_of_row), np.uint8)
    desc = planq.GgufQuantizeDescriptor(shape=x.shape, input_dtype=input_dtype, type=kind)
    args = planq.GgufQuantizeArgs(input=x, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return output


def restored(blocks: Array, kind: str, shape: tuple[int, ...]) -> Array:
    """The numbers that blocks stand for."""
    output = np.empty(shape, np.float32)
    desc = planq.GgufDequantizeDescriptor(shape=shape, type=kind, output_dtype="float32")
    args = planq.GgufDequantizeArgs(input=blocks, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    return output


def test_every_type_has_its_bytes() -> None:
    """So many for each block."""
    assert {member.value for member in planq.GgufType} == FORMATS.keys() == {*ZEROS, *GRIDS}
    for kind in ZEROS:
        form = FORMATS[kind]
        shape = (3, 2 * form.elements)
        desc = planq.GgufQuantizeDescriptor(shape=shape, input_dtype="float16", type=kind)
        assert desc.operands()["output"].shape == (3, 2 * form.nbytes)
        assert desc.operands()["output"].dtype is planq.DType.UINT8


@pytest.mark.parametrize("kind", ZEROS)
def test_zeros_of_both_signs_are_blocks_of_zeros(kind: str) -> None:
    """With these bytes, which are 0 again."""
    x = np.zeros((2, FORMATS[kind].elements), np.float32)
    x[1] = -x[1]
    blocks = quantized(x, kind)
    wanted = ZEROS[kind] if len(ZEROS[kind]) > 1 else ZEROS[kind] * FORMATS[kind].nbytes
    assert blocks[0].tolist() == list(wanted)
    if kind not in SIGNED:
        assert blocks[1].tolist() == list(wanted)
    assert not restored(blocks, kind, x.shape).any()


def test_codes_of_four_bits_round_up() -> None:
    """Under a scale of 1, with halves; the largest has no code of its own."""
    halves = np.arange(-16, 16, dtype=np.float32) / 2
    block = quantized(halves, "q4_0")
    code = np.minimum((np.arange(32) + 1) // 2, 15)
    assert block[:2].view(np.float16).tolist() == [1]
    assert block[2:].tolist() == (code[:16] | code[16:] << 4).tolist()
    block = quantized(np.minimum(halves + 8, 15), "q4_1")
    assert block[:4].view(np.float16).tolist() == [1, 0]
    assert block[4:].tolist() == (code[:16] | code[16:] << 4).tolist()


def test_codes_of_eight_bits_round_away_from_zero() -> None:
    """Those of Q8_K to even, with sums of sixteen and under a scale of the other sign."""
    x = np.arange(256, dtype=np.float32) / 2
    x[1::2] *= -1
    x[0] = 127
    block = quantized(x[:32], "q8_0")
    away = np.sign(x) * np.floor(np.abs(x) + 0.5)
    assert block[:2].view(np.float16).tolist() == [1]
    assert block[2:].view(np.int8).tolist() == away[:32].tolist()
    x[255] = -127
    block = quantized(x, "q8_k")
    assert block[:4].view(np.float32).tolist() == [-1]
    codes = block[4:260].view(np.int8)
    assert codes.tolist() == (-np.rint(x)).tolist()
    assert block[260:].view(np.int16).tolist() == codes.reshape(16, 16).sum(1).tolist()


def test_the_first_of_largest_magnitude_is_the_peak() -> None:
    """And a NaN never is, an infinity always."""
    x = np.ones(32, np.float32)
    for changes, scale in (
        ({3: -2, 5: 2}, 0.25),
        ({3: 2, 5: -2}, -0.25),
        ({0: np.nan, 3: -2}, 0.25),
        ({3: -2, 4: np.inf}, -np.inf),
    ):
        own = x.copy()
        own[list(changes)] = list(changes.values())
        assert quantized(own, "q4_0")[:2].view(np.float16).tolist() == [scale]


@pytest.mark.parametrize("kind", ["q8_0", "q8_k", "tq1_0", "tq2_0", "q2_0", "mxfp4", "nvfp4"])
def test_nan_among_numbers_is_like_zero(kind: str) -> None:
    """In types whose codes are 0 for it; in others the stored code is 0."""
    x = inputs.make("normal", (4, FORMATS[kind].elements), "float32", 9)
    zero, nan = x.copy(), x.copy()
    zero[:, 7], nan[:, 7] = 0, np.nan
    assert quantized(nan, kind).tobytes() == quantized(zero, kind).tobytes()
    assert (quantized(nan[:, :32].copy(), "q4_0")[:, 9] & 15 == 0).all()


@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ZEROS)
def test_shorter_floats_have_the_bytes_of_the_same_numbers(kind: str, input_dtype: str) -> None:
    """In float32, infinities and NaN among them."""
    x = inputs.make("mixed", (5, 2 * FORMATS[kind].elements), input_dtype, 4)
    wide = quantized(x.astype(np.float32), kind)
    assert quantized(x, kind, input_dtype).tobytes() == wide.tobytes()


def test_more_bits_lose_less() -> None:
    """And a search loses less than the plain rule for as many bits."""
    x = inputs.make("normal", (64, 256), "float32", 3)

    def loss(kind: str) -> float:
        found = restored(quantized(x, kind), kind, x.shape)
        return float(np.square(found - x, dtype=np.float64).sum() / np.square(x).sum())

    kinds = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "q8_0")
    lost = [loss(kind) for kind in kinds]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] < 0.1
    assert lost[-1] < 1e-4
    for searched in ("q4_k", "iq4_nl", "iq4_xs"):
        assert loss(searched) < 0.9 * loss("q4_0")


def test_numbers_may_lie_anywhere() -> None:
    """At any address, in rows with any distance, backwards; the output likewise."""
    x = inputs.make("normal", (3, 5, 512), "float16", 5)
    wanted = quantized(x, "q5_k", "float16")
    room = np.zeros((3, 5, 520), np.float16)
    moved = room[::-1, :, 3:515]
    moved[...] = x
    output = np.zeros((5, 3, 363), np.uint8).swapaxes(0, 1)[..., 5:357]
    desc = planq.GgufQuantizeDescriptor(shape=x.shape, input_dtype="float16", type="q5_k")
    args = planq.GgufQuantizeArgs(input=moved, output=output)
    planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert output.tobytes() == wanted.tobytes()


def test_one_plan_takes_every_number_of_rows() -> None:
    """Axes before the last may be a Dim."""
    rows = planq.Dim("rows", max=9)
    desc = planq.GgufQuantizeDescriptor(shape=(rows, 512), input_dtype="bfloat16", type="q6_k")
    plan = planq.Plan.select(planq.HOST, desc)
    x = inputs.make("normal", (9, 512), "bfloat16", 6)
    for count in (0, 1, 9):
        made = plan.empty_outputs(np, rows=count)
        plan.run(planq.HOST, None, planq.GgufQuantizeArgs(input=x[:count], **made))
        assert made["output"].tobytes() == quantized(x[:count], "q6_k", "bfloat16").tobytes()


@pytest.mark.parametrize(
    ("changes", "field", "text"),
    [
        ({"shape": ()}, "shape", "expected 1 to 8 axes, got 0"),
        ({"shape": (2, 48)}, "shape", "blocks of 32 elements, as q4_0 has them, got 48 elements"),
        ({"type": "q4_k"}, "shape", "blocks of 256 elements, as q4_k has them, got 64 elements"),
        ({"shape": (2, planq.Dim("m", max=64))}, "shape", "expected an integer for the last axis"),
        ({"input_dtype": "float64"}, "input_dtype", "float64"),
        ({"input_dtype": "uint8"}, "input_dtype", "uint8"),
        ({"type": "iq2_m"}, "type", "iq2_m"),
        *(({"type": kind}, "type", f"{kind} needs an importance matrix") for kind in GRIDS),
    ],
)
def test_descriptors_that_are_refused(changes: dict[str, Any], field: str, text: str) -> None:
    """Each names its field and what came."""
    fields: dict[str, Any] = {"shape": (2, 64), "type": "q4_0", "input_dtype": "float32"}
    with pytest.raises(planq.DescriptorError) as caught:
        planq.GgufQuantizeDescriptor(**(fields | changes))
    assert caught.value.field == field
    assert text in str(caught.value)


@pytest.mark.parametrize("given", ["shape", "dtype", "strides"])
def test_bytes_that_do_not_fit_are_named_and_nothing_is_written(given: str) -> None:
    """Before anything runs."""
    output = np.full((2, 72), 7, np.uint8)
    signed = output[:, :36].view(np.int8)
    other = {"shape": output[:, :35], "dtype": signed, "strides": output[:, ::2]}
    desc = planq.GgufQuantizeDescriptor(shape=(2, 64), type="q4_0", input_dtype="float32")
    args = planq.GgufQuantizeArgs(input=np.ones((2, 64), np.float32), output=other[given])
    with pytest.raises(planq.ArgumentError, match=r"^output: "):
        planq.Plan.select(planq.HOST, desc).run(planq.HOST, None, args)
    assert (output == 7).all()
