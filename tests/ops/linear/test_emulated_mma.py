"""The CUDA kernels of products on any GPU's tensor cores, run on a processor.

There the tensor cores are those of sm_90, by their model, so that bits can be compared.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.linear.test_emulated_codes import aligned
from planq.audit.ops.linear.float_sums import SLICE, slices, tensor_sm90
from planq.audit.ops.linear.products import fused
from planq.audit.reference.formats import FLOATS, STORAGE, Array, narrowed
from planq.audit.reference.inputs import make
from support.emulation import emulated

EXTENTS = (
    *("m", "n", "k", "batch", "multiprocessors"),
    *("input_batch", "input_row", "input_term", "weight_batch", "weight_row", "weight_term"),
    *("output_batch", "output_row", "scale_row", "weight_scale_row"),
)
DTYPES = ("input_dtype", "weight_dtype", "output_dtype")
TENSORS = ("input", "weight", "bias", "residual", "input_scale", "weight_scale", "output")
# Few rows, some and many: each is for a tile of its own, as are few tiles for a GPU.
SHAPES = ((1, 40, 64), (5, 33, 130), (16, 7, 1), (17, 70, 200), (60, 20, 0), (66, 130, 72))
GPU, TINY_GPU = 132, 1


class Given(ctypes.Structure):
    """The structure of emulated_mma.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in EXTENTS),
        *((name, ctypes.c_char_p) for name in DTYPES),
        *((name, ctypes.c_void_p) for name in TENSORS),
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, compiled for the host."""
    source = Path(__file__).with_name("emulated_mma.cpp")
    return emulated(source, tmp_path_factory.mktemp("emulated"))


def laid_out(values: Array, turned: bool, gap: int | None, offset: int) -> Array:
    """A copy of matrices whose lines are apart, and which begin `offset` elements beyond a vector.

    Turned ones have their columns as lines. Without a gap of their own, lines are whole vectors.
    """
    lines = np.swapaxes(values, -1, -2) if turned else values
    vector = 16 // values.itemsize
    pitch = lines.shape[-1] + (-lines.shape[-1] % vector if gap is None else gap)
    count = lines.shape[0] * lines.shape[1] * pitch
    room = aligned(np.full(count + offset, 7, values.dtype)).view(values.dtype)[offset:]
    placed = room.reshape(*lines.shape[:2], pitch)[..., : lines.shape[-1]]
    placed[...] = lines
    return np.swapaxes(placed, -1, -2) if turned else placed


def run(
    kernels: ctypes.CDLL, multiprocessors: int, sides: tuple[Array, Array], **own: Any
) -> Array:
    """The products of matrices (batch, m, k) and (batch, n, k) that lie in any way."""
    a, w = sides
    output = np.full((len(a), a.shape[1], w.shape[1]), 3, STORAGE[own.pop("output_dtype")])
    tensors = {"input": a, "weight": w, "output": output, **own}
    given = Given(
        m=a.shape[1],
        n=w.shape[1],
        k=a.shape[2],
        batch=len(a),
        multiprocessors=multiprocessors,
        output_batch=output.shape[1] * output.shape[2],
        output_row=output.shape[2],
    )
    for name, side in (("input", a), ("weight", w)):
        steps = (stride // side.itemsize for stride in side.strides)
        for axis, extent, stride in zip(("batch", "row", "term"), side.shape, steps, strict=True):
            setattr(given, f"{name}_{axis}", stride if extent > 1 or axis == "term" else 0)
    if "input_scale" in own:
        given.scale_row = own["input_scale"].shape[-1]
        given.weight_scale_row = own["weight_scale"].shape[-1]
    for name, tensor in tensors.items():
        setattr(given, name, tensor.ctypes.data)
        if name in {"input", "weight", "output"}:
            setattr(given, f"{name}_dtype", tensor.dtype.name.encode())
    kernels.run_product(ctypes.byref(given))
    return output


@pytest.mark.parametrize("number", range(48))
def test_numbers_that_lie_in_any_way(kernels: ctypes.CDLL, number: int) -> None:
    """Vectors, rows that begin anywhere, and transposed sides; whole tiles and cut ones."""
    m, n, k = SHAPES[number % len(SHAPES)]
    dtype = ("bfloat16", "float16")[number // 2 % 2]
    turned = ((False, False), (True, True), (False, True), (True, False))[number // 6 % 4]
    gaps = ((None, 0), (3, 1), (None, 8), (5, 0))[number // len(SHAPES) // 4 + number % 2 * 2]
    batch = 1 + number % 2
    kind = ("normal", "patterns", "mixed", "subnormal")[number % 4]
    a, w = make(kind, (batch, m, k), dtype, number), make(kind, (batch, n, k), dtype, number + 50)
    output_dtype = ("float32", "bfloat16", "float16")[number % 3]
    own = {"bias": make("normal", (n,), "float32", 1)} if number % 2 else {}
    if number % 3 == 0:
        own["residual"] = make("normal", (batch, m, n), "float32", 2)
    sides = (laid_out(a, turned[0], *gaps), laid_out(w, turned[1], *gaps))
    with np.errstate(all="ignore"):
        t = np.stack([tensor_sm90(*pair) for pair in zip(a, w, strict=True)])
        for addend in own.values():
            t = t + addend
        wanted = narrowed(t, output_dtype).astype(STORAGE[output_dtype])
    for multiprocessors in (GPU, TINY_GPU):
        found = run(kernels, multiprocessors, sides, output_dtype=output_dtype, **own)
        assert found.tobytes() == wanted.tobytes()


def in_float16(codes: Array) -> Array:
    """The numbers that 8-bit floating codes stand for."""
    return codes.astype(np.float32).astype(np.float16)


@pytest.mark.parametrize("number", range(8))
def test_floating_codes_are_numbers_of_float16(kernels: ctypes.CDLL, number: int) -> None:
    """Of both types, aligned and not; slices alone, and under the scales of their blocks."""
    m, n, k = ((3, 20, 160), (18, 140, 77), (65, 66, 300), (1, 7, 128))[number % 4]
    types = ("float8_e4m3fn", "float8_e5m2")
    dtypes = types if number % 2 else types[::-1]
    a, w = (
        make("patterns" if number < 2 else "normal", (1, rows, k), dtype, number + rows)
        for rows, dtype in zip((m, n), dtypes, strict=True)
    )
    gap, offset = ((None, 0), (3, 1))[number // 2 % 2]
    sides = (laid_out(a, False, gap, offset), laid_out(w, False, gap, offset))
    numbers = in_float16(a[0]), in_float16(w[0])
    with np.errstate(all="ignore"):
        found = run(kernels, GPU, sides, output_dtype="float32")
        wanted = narrowed(tensor_sm90(*numbers), "float32")
        assert found[0].tobytes() == wanted.tobytes()
        of_k = -(-k // SLICE)
        scales = make("normal", (m, of_k), "float32", 8), make("normal", (2, of_k), "float32", 9)
        own = {"input_scale": scales[0], "weight_scale": scales[1]}
        found = run(kernels, TINY_GPU, sides, output_dtype="float32", **own)
        t = np.zeros((m, n), np.float32)
        columns = scales[1].repeat(SLICE, axis=0)[:n]
        for s, each in enumerate(slices(*numbers)):
            t = fused(each, scales[0][:, None, s] * columns[None, :, s], t)
        assert found[0].tobytes() == narrowed(t, "float32").tobytes()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_every_floating_code_is_exact(kernels: ctypes.CDLL, dtype: str) -> None:
    """Times 1: the code's own value."""
    every = np.arange(256, dtype=np.uint8).view(FLOATS[dtype].dtype).reshape(1, 256, 1)
    one = np.ones((1, 1, 1), FLOATS[dtype].dtype)
    found = run(kernels, GPU, (every, one), output_dtype="float32")
    wanted = narrowed(every.astype(np.float32), "float32") + np.float32(0)
    assert found.tobytes() == wanted.tobytes()


def test_rows_have_the_same_bits_in_every_tile(kernels: ctypes.CDLL) -> None:
    """Alone, in some and in many: what batch invariance is made of."""
    a, w = (make("normal", (1, rows, 200), "bfloat16", rows) for rows in (140, 130))
    whole = run(kernels, TINY_GPU, (a, w), output_dtype="float32")
    for rows in (1, 16, 17, 64, 65, 129):
        few = run(kernels, TINY_GPU, (a[:, :rows], w), output_dtype="float32")
        assert few.tobytes() == whole[:, :rows].tobytes(), rows
