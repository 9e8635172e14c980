"""The linear family on a GPU: every tile and way to load against exact products in float64.

The references are torch's, on the same GPU: float64 holds every sum here exactly.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from ops.linear.batch_rows import BY_ROW, IDS, PROBLEMS, check_rows
from planq.audit import kernels
from planq.audit.from_reference import HOST_DEVICE
from planq.audit.operators import OPERATORS, name_of
from planq.audit.ops.linear.linear_4bit.reference import FourBitProblem
from planq.audit.runner import Bench
from support.gpu import Cuda, cuda

DEVICE = "cuda:0"
CODES = ("int8", "uint8", "int4", "uint4")
FLOATS = ("float16", "bfloat16", "float32", "float64")
# Rows of input at which launches change their tile, and beyond.
ROWS = (1, 8, 9, 16, 17, 64, 65, 129, 1100)


def stream() -> Any:
    """Where everything runs."""
    return torch.cuda.current_stream()


def names(operator: str) -> list[str]:
    """The kernels of an operator."""
    return [name_of(k) for of, k in kernels.kernels(planq.Backend.CUDA) if of == operator]


def names_and_rows(operator: str) -> list[tuple[str, int]]:
    """With the rows of input that they take."""
    every = [(name, m) for name in names(operator) for m in ROWS]
    return [(name, m) for name, m in every if m <= 16 or "few_rows" not in name]


def takes(desc: planq.Descriptor, name: str) -> bool:
    """Whether the kernel does, by the library's own explanation."""
    candidates = planq.explain(desc, kernels.ANYTHING, device=DEVICE).candidates
    return any(name_of(c) == name and (c.chosen or not c.reason) for c in candidates)


@dataclass
class Codes:
    """Random codes in memory, and what they are."""

    stored: torch.Tensor
    values: torch.Tensor  # float64, of the logical shape


def codes(shape: tuple[int, ...], dtype: str, *, gap: int = 0, offset: int = 0) -> Codes:
    """Rows that are `gap` bytes apart and begin `offset` bytes after an aligned address."""
    four = dtype.endswith("4")
    last = (shape[-1] + 1) // 2 if four else shape[-1]
    stored_shape = (*shape[:-1], last)
    strides = [1]
    for extent, extra in zip(stored_shape[:0:-1], (gap, *[0] * 8), strict=False):
        strides.insert(0, strides[0] * max(extent, 1) + (extra if len(strides) == 1 else 0))
    count = strides[0] * max(shape[0], 1)
    memory = torch.randint(0, 256, (count + offset,), dtype=torch.uint8, device=DEVICE)
    stored = memory[offset:].as_strided(stored_shape, strides)
    values = stored.to(torch.int16)
    if four:
        values = torch.stack([values & 15, values >> 4], -1).flatten(-2)[..., : shape[-1]]
    if not dtype.startswith("u"):
        half = 8 if four else 128
        values = torch.where(values >= half, values - 2 * half, values)
    view = stored if four or dtype == "uint8" else stored.view(torch.int8)
    return Codes(view, values.double())


def aligned_gap(shape: tuple[int, ...], dtype: str) -> int:
    """What makes rows whole vectors."""
    return -((shape[-1] + 1) // 2 if dtype.endswith("4") else shape[-1]) % 16


def turned(values: torch.Tensor, transposed: bool) -> torch.Tensor:
    """With k as the last axis."""
    return values.transpose(-1, -2) if transposed else values


def product(a: Codes, w: Codes, transposed: tuple[bool, bool] = (False, False)) -> torch.Tensor:
    """The exact sums."""
    return (turned(a.values, transposed[0]) @ turned(w.values, transposed[1]).mT).to(torch.int64)


def wrapped(sums: torch.Tensor) -> torch.Tensor:
    """Modulo 2^32, as int32 has it."""
    return ((sums + 2**31) & 0xFFFFFFFF) - 2**31


def select(desc: planq.Descriptor, name: str | None) -> planq.Plan:
    """A plan of that kernel, or of the one that selection prefers."""
    pref = kernels.pinned(name) if name else kernels.PROMISE
    return planq.Plan.select(stream(), desc, pref)


def guarded(shape: tuple[int, ...], dtype: torch.dtype, gap: int) -> tuple[torch.Tensor, Any]:
    """An output whose rows have gaps, and a check that nothing wrote there."""
    row = shape[-1] + gap
    count = row
    for extent in shape[:-1]:
        count *= extent
    memory = torch.full((count + 1,), 77, device=DEVICE).to(dtype)
    strides = [1]
    for extent in shape[:0:-1]:
        strides.insert(0, row if len(strides) == 1 else strides[0] * extent)
    view = memory[1:] if gap else memory
    output = view.as_strided(shape, strides)

    def check() -> None:
        found = output.clone()
        output.fill_(77)
        assert bool((memory == 77).all()), "a gap was written"
        output.copy_(found)

    return output, check


# --- Products -----------------------------------------------------------------------------------


def check_matmul(
    name: str | None,
    m: int,
    n: int,
    k: int,
    types: tuple[str, str, str],
    *,
    transposed: tuple[bool, bool] = (False, False),
    aligned: bool = True,
    batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
) -> bool:
    """One product; False where the kernel does not take it."""
    shapes = [
        (*batch[0], k, m) if transposed[0] else (*batch[0], m, k),
        (*batch[1], k, n) if transposed[1] else (*batch[1], n, k),
    ]
    desc = planq.MatmulInt8Descriptor(
        input_shape=shapes[0],
        weight_shape=shapes[1],
        input_dtype=types[0],
        weight_dtype=types[1],
        output_dtype=types[2],
        transpose_input=transposed[0],
        transpose_weight=transposed[1],
    )
    if name and not takes(desc, name):
        return False
    sides = [
        codes(shape, dtype, gap=aligned_gap(shape, dtype), offset=0)
        if aligned
        else codes(shape, dtype, gap=3, offset=1 + place)
        for place, (shape, dtype) in enumerate(zip(shapes, types, strict=False))
    ]
    a, w = sides
    out_shape = desc.operands()["output"].shape
    output, check = guarded(out_shape, getattr(torch, types[2]), 0 if aligned else 3)
    args = planq.MatmulInt8Args(input=a.stored, weight=w.stored, output=output)
    select(desc, name).run(stream(), None, args)
    sums = wrapped(product(a, w, transposed))
    wanted = sums.clamp(-128, 127) if types[2] == "int8" else sums
    assert torch.equal(output, wanted.to(output.dtype)), (name, desc)
    check()
    return True


@pytest.mark.parametrize(("name", "m"), names_and_rows("matmul_int8"))
def test_every_tile_of_every_side(name: str, m: int) -> None:
    """Around the tiles' edges; types, transposes and alignments in turn."""
    kinds = itertools.cycle(
        [
            (types, transposed, aligned)
            for types in itertools.product(CODES, CODES, ("int32", "int8"))
            for transposed in itertools.product((False, True), repeat=2)
            for aligned in (True, False)
        ][::7]
    )
    plain = ("int8", "int8", "int32")
    taken = 0
    for n, k in itertools.product((1, 31, 64, 129, 700), (1, 15, 64, 65, 272, 1040, 3000)):
        taken += check_matmul(name, m, n, k, plain)
        taken += check_matmul(name, m, n, k, plain, aligned=False)
        types, transposed, aligned = next(kinds)
        taken += check_matmul(name, m, n, k, types, transposed=transposed, aligned=aligned)
    assert taken


@pytest.mark.parametrize("m", [16, 64, 200])
def test_every_pair_of_types_and_every_transpose(m: int) -> None:
    """Of the kernel that takes everything."""
    for input_dtype, weight_dtype in itertools.product(CODES, CODES):
        for transposed in itertools.product((False, True), repeat=2):
            for aligned in (True, False):
                types = (input_dtype, weight_dtype, "int32")
                name = "matmul_int8/cuda:mma"
                assert check_matmul(
                    name, m, 131, 333, types, transposed=transposed, aligned=aligned
                )


@pytest.mark.parametrize(
    "batch",
    [((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((4, 1), (4, 2))],
)
def test_batches(batch: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Equal, repeated on either side; rows of a batch of single rows that are transposed."""
    for m, n, k in ((1, 70, 100), (5, 33, 64), (150, 140, 200)):
        for transposed in ((False, False), (True, False), (False, True), (True, True)):
            for aligned in (True, False):
                types = ("int8", "uint8", "int32")
                check_matmul(
                    None, m, n, k, types, transposed=transposed, aligned=aligned, batch=batch
                )


@pytest.mark.parametrize(
    ("m", "n", "k"), [(4096, 4096, 4096), (2048, 8192, 8192), (17, 28672, 8192), (300, 1000, 1024)]
)
def test_torchs_int_mm(m: int, n: int, k: int) -> None:
    """Every kernel at sizes of models."""
    a, w = codes((m, k), "int8"), codes((n, k), "int8")
    wanted = torch._int_mm(a.stored, w.stored.t())
    desc = planq.MatmulInt8Descriptor(input_shape=(m, k), weight_shape=(n, k))
    for name in names("matmul_int8"):
        if not takes(desc, name):
            continue
        output = torch.zeros(m, n, dtype=torch.int32, device=DEVICE)
        args = planq.MatmulInt8Args(input=a.stored, weight=w.stored, output=output)
        select(desc, name).run(stream(), None, args)
        assert torch.equal(output, wanted), name


# Weights for which tiles, clusters and splits of k differ, one below a wave of multiprocessors, one
# of several, and between them; and rows of input on both sides of every width.
LAYERS = ((1000, 1040), (1024, 8192), (4096, 4096), (8192, 2048), (28672, 512))
WIDTHS = (1, 16, 17, 32, 33, 64, 65, 128, 129, 200, 256, 257, 520, 1100, 2300)


@pytest.mark.parametrize(("n", "k"), LAYERS)
def test_every_tile_and_split_of_a_layer(n: int, k: int) -> None:
    """By the kernel that selection prefers, with codes of either sign on either side."""
    signs = itertools.cycle(itertools.product(CODES[:2], CODES[:2], ("int32",)))
    for m in WIDTHS:
        assert check_matmul(None, m, n, k, next(signs))
        assert check_matmul(None, m, n, k, ("int8", "int8", "int32"))


def test_a_product_again_and_again() -> None:
    """What waits for nothing it should wait for gives other sums at times."""
    for m, n, k in ((16, 4096, 4096), (128, 8192, 4096), (300, 4096, 4096), (2048, 4096, 2048)):
        a, w = codes((m, k), "int8"), codes((n, k), "int8")
        desc = planq.MatmulInt8Descriptor(input_shape=(m, k), weight_shape=(n, k))
        plan = select(desc, None)
        output = torch.zeros(m, n, dtype=torch.int32, device=DEVICE)
        args = planq.MatmulInt8Args(input=a.stored, weight=w.stored, output=output)
        wanted = product(a, w).int()
        for _ in range(50):
            output.fill_(-1)
            plan.run(stream(), None, args)
            assert torch.equal(output, wanted), (m, n, k)


# --- Linear layers ------------------------------------------------------------------------------


def rounded(values: torch.Tensor, dtype: str) -> torch.Tensor:
    """To the nearest, ties to even."""
    return values.to(getattr(torch, dtype))


def check_linear(name: str, rng: random.Random, m: int, n: int, k: int, aligned: bool) -> bool:
    """Zero points, bias, residual and types at random, line by line in torch; False: not taken."""
    output_dtype = rng.choice(FLOATS)
    c = torch.float64 if output_dtype == "float64" else torch.float32
    modes = [rng.choice((planq.Mode.SYMMETRIC, planq.Mode.ASYMMETRIC)) for _ in range(2)]
    bias_dtype, residual_dtype = (rng.choice((None, *FLOATS)) for _ in range(2))
    baracuda = modes == [planq.Mode.SYMMETRIC] * 2 and rng.random() < 0.5
    desc = planq.LinearW8A8Descriptor(
        input_shape=(m, k),
        weight_shape=(n, k),
        output_dtype=output_dtype,
        input_mode=modes[0],
        weight_mode=modes[1],
        bias_dtype=bias_dtype,
        residual_dtype=residual_dtype,
        convention=planq.Convention.BARACUDA if baracuda else planq.Convention.PLANQ,
    )
    if not takes(desc, name):
        return False
    gap, offset = (-k % 16, 0) if aligned else (5, 1)
    a = codes((m, k), "int8", gap=gap, offset=offset)
    w = codes((n, k), "int8", gap=gap, offset=offset)

    def integers(count: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31, (count,), dtype=torch.int64, device=DEVICE)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE, dtype=c)

    row, column = normal(m), normal(n)
    operands: dict[str, Any] = {"input_scale": row, "weight_scale": column}
    d = product(a, w)
    za, zw = torch.zeros_like(integers(m)), torch.zeros_like(integers(n))
    if modes[0] == planq.Mode.ASYMMETRIC:
        za, of_weight = integers(m), w.values.sum(1).to(torch.int64)
        operands |= {"input_zero_point": za.int(), "weight_sum": of_weight.int()}
        d = d - za[:, None] * of_weight
    if modes[1] == planq.Mode.ASYMMETRIC:
        zw, of_input = integers(n), a.values.sum(1).to(torch.int64)
        operands |= {"weight_zero_point": zw.int(), "input_sum": of_input.int()}
        d = d - zw * of_input[:, None]
    t = wrapped(d + k * za[:, None] * zw).to(c)
    t = row[:, None] * column * t if baracuda else t * row[:, None] * column
    if bias_dtype:
        operands["bias"] = rounded(normal(n), bias_dtype)
        t = t + operands["bias"].to(c)
    if residual_dtype:
        operands["residual"] = rounded(normal(m, n + 5), residual_dtype)[:, :n]
        t = t + operands["residual"].to(c)
    output, check = guarded((m, n), getattr(torch, output_dtype), 0 if aligned else 3)
    args = planq.LinearW8A8Args(input=a.stored, weight=w.stored, output=output, **operands)
    select(desc, name).run(stream(), None, args)
    assert torch.equal(output, rounded(t, output_dtype)), (name, desc)
    check()
    return True


@pytest.mark.parametrize(("name", "m"), names_and_rows("linear_w8a8"))
def test_every_line_of_the_epilogue(name: str, m: int) -> None:
    """At every tile, whole and cut."""
    rng = random.Random(f"{name} {m}")
    taken = 0
    for n, k in ((1, 16), (33, 100), (128, 64), (130, 1000), (500, 272)):
        for aligned in (True, False):
            for _ in range(3):
                taken += check_linear(name, rng, m, n, k, aligned)
    assert taken


@pytest.mark.parametrize(("name", "m"), names_and_rows("linear_w8a8"))
def test_bitsandbytes_in_float64(name: str, m: int) -> None:
    """The bits of the host, which the host's tests compare with fractions."""
    taken = 0
    for (n, k), bias in itertools.product(((33, 100), (128, 64), (500, 272)), (None, "float64")):
        desc = planq.LinearW8A8Descriptor(
            input_shape=(m, k),
            weight_shape=(n, k),
            output_dtype="float64",
            bias_dtype=bias,
            convention=planq.Convention.BITSANDBYTES,
        )
        if not takes(desc, name):
            continue
        operands = {
            "input": codes((m, k), "int8").stored,
            "weight": codes((n, k), "int8").stored,
            "output": torch.zeros(m, n, dtype=torch.float64, device=DEVICE),
            "input_scale": torch.randn(m, dtype=torch.float64, device=DEVICE),
            "weight_scale": torch.randn(n, dtype=torch.float64, device=DEVICE),
        }
        if bias:
            operands["bias"] = torch.randn(n, dtype=torch.float64, device=DEVICE)
        select(desc, name).run(stream(), None, planq.LinearW8A8Args(**operands))
        host = {name: operand.cpu() for name, operand in operands.items()}
        host["output"] = torch.zeros(m, n, dtype=torch.float64)
        plan = planq.Plan.select(planq.HOST, desc)
        plan.run(planq.HOST, None, planq.LinearW8A8Args(**host))
        assert torch.equal(operands["output"].cpu(), host["output"]), desc
        taken += 1
    assert taken


# --- Extents that are known at run, graphs ------------------------------------------------------


def linear_call(desc: planq.Descriptor, m: int, n: int, k: int) -> tuple[Codes, Codes, Any]:
    """Operands of a layer with bfloat16 outputs."""
    a, w = codes((m, k), "int8"), codes((n, k), "int8")
    row, column = torch.rand(m, device=DEVICE), torch.rand(n, device=DEVICE)
    output = torch.zeros(m, n, dtype=torch.bfloat16, device=DEVICE)
    args = planq.LinearW8A8Args(
        input=a.stored, weight=w.stored, output=output, input_scale=row, weight_scale=column
    )
    return a, w, args


def linear_wanted(a: Codes, w: Codes, args: Any) -> torch.Tensor:
    """What such a layer gives."""
    t = product(a, w).float() * args.input_scale[:, None] * args.weight_scale
    return t.bfloat16()


def test_one_plan_of_a_layer_is_captured_at_every_extent() -> None:
    """Kernels change with the rows of input."""
    n, k = 4096, 1024
    desc = planq.LinearW8A8Descriptor(
        input_shape=(planq.Dim("m", 2048), k), weight_shape=(n, k), output_dtype="bfloat16"
    )
    plan = planq.Plan.select(stream(), desc)
    recorded = []
    for m in (1, 16, 17, 128, 2048):
        a, w, args = linear_call(desc, m, n, k)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(stream(), None, args)
        recorded.append((graph, a, w, args))
    for graph, a, w, args in recorded:
        a.stored.neg_()
        a.values.copy_(a.stored.double())
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(args.output, linear_wanted(a, w, args))


# --- Sizes --------------------------------------------------------------------------------------


@pytest.fixture
def release() -> Iterator[None]:
    """What torch keeps of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


def check_pieces(
    desc: planq.Descriptor, args: Any, wanted: Callable[[slice], torch.Tensor]
) -> None:
    """Columns of the first, the last and some others."""
    columns = args.output.shape[1]
    for first in (0, columns // 2, columns - 100):
        piece = slice(first, first + 100)
        assert torch.equal(args.output[:, piece], wanted(piece)), desc


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
@pytest.mark.parametrize("m", [1, 16, 100])
def test_a_weight_of_more_than_four_gigabytes(m: int) -> None:
    """Offsets beyond 32 bits, by every kernel that takes it, aligned and not."""
    n, k = 600_000, 8192
    memory = torch.randint(-128, 128, (n * k + 1,), dtype=torch.int8, device=DEVICE)
    desc = planq.MatmulInt8Descriptor(input_shape=(m, k), weight_shape=(n, k))
    a = codes((m, k), "int8")
    for name in names("matmul_int8"):
        if not takes(desc, name):
            continue
        for offset in (0, 1):
            weight = memory[offset : offset + n * k].view(n, k)
            output = torch.zeros(m, n, dtype=torch.int32, device=DEVICE)
            args = planq.MatmulInt8Args(input=a.stored, weight=weight, output=output)
            select(desc, name).run(stream(), None, args)

            def wanted(piece: slice, weight: torch.Tensor = weight) -> torch.Tensor:
                return (a.values @ weight[piece].double().mT).int()

            check_pieces(desc, args, wanted)


@pytest.mark.xdist_group("sizes")
@pytest.mark.usefixtures("release")
def test_more_outputs_than_32_bits_count() -> None:
    """Of few terms, so that it does not take long."""
    m, n, k = 70_000, 65_536, 16
    a, w = codes((m, k), "int8"), codes((n, k), "int8")
    output = torch.zeros(m, n, dtype=torch.int8, device=DEVICE)
    desc = planq.MatmulInt8Descriptor(input_shape=(m, k), weight_shape=(n, k), output_dtype="int8")
    args = planq.MatmulInt8Args(input=a.stored, weight=w.stored, output=output)
    select(desc, None).run(stream(), None, args)

    def wanted(piece: slice) -> torch.Tensor:
        return (a.values @ w.values[piece].mT).clamp(-128, 127).to(torch.int8)

    check_pieces(desc, args, wanted)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("axis", [-1, -2])
def test_code_sums(dtype: str, axis: int) -> None:
    """Rows of a batch that begin anywhere."""
    for shape in ((1, 1), (3, 5, 33), (2, 100, 4097), (700, 31), (4096, 8192), (2, 0, 5)):
        for gap, offset in ((aligned_gap(shape, dtype), 0), (3, 1)):
            given = codes(shape, dtype, gap=gap, offset=offset)
            desc = planq.CodeSumDescriptor(shape=shape, input_dtype=dtype, axis=axis)
            output = torch.zeros(desc.operands()["output"].shape, dtype=torch.int32, device=DEVICE)
            args = planq.CodeSumArgs(input=given.stored, output=output)
            select(desc, None).run(stream(), None, args)
            assert torch.equal(output, given.values.sum(axis).int()), (shape, gap)


# Floating weights of few blocks and of several for each multiprocessor, where no side is whole
# tiles, and of more slices than a ring has stages.
FLOAT_LAYERS = ((1, 4096), (200, 8224), (8200, 1040), (28_680, 272))
FLOAT_TYPES = (
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
    ("float8_e4m3fn", "float8_e5m2"),
    ("float8_e5m2", "float8_e4m3fn"),
)
MANY_TOKENS = 500  # of 16 bits under 8200 columns, tall tiles on an H200


def float_layer(types: tuple[str, str], m: int, n: int, k: int, blocks: bool) -> Any:
    """With a bias and a residual; of 8-bit codes under scales of rows or of blocks."""
    fields: dict[str, Any] = {"input_dtype": types[0], "weight_dtype": types[1]}
    fields |= {"input_shape": (m, k), "weight_shape": (n, k)}
    fields |= {"bias_dtype": "float32", "residual_dtype": "bfloat16"}
    if "float8" not in types[0]:
        return planq.MatmulDescriptor(**fields)
    if blocks:
        fields["input_scope"] = planq.Scope.group(128)
        fields["weight_scope"] = planq.Scope.block(128, 128)
    return planq.LinearFp8Descriptor(**fields, output_dtype="bfloat16")


def float_outputs(desc: planq.Descriptor, operands: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the kernel for tensor cores writes, as integers."""
    spec = desc.operands()["output"]
    output, check = guarded(spec.extents, getattr(torch, spec.storage), 8)
    args = planq.MatmulArgs if isinstance(desc, planq.MatmulDescriptor) else planq.LinearFp8Args
    plan = select(desc, None)
    assert kernels.running(plan).endswith(":wgmma")
    plan.run(stream(), None, args(**operands, output=output))
    found = output.clone().view(torch.int16)
    check()
    return found


@pytest.mark.parametrize(("n", "k"), FLOAT_LAYERS)
@pytest.mark.parametrize("types", FLOAT_TYPES, ids=lambda types: "-".join(types))
def test_few_tokens_have_the_bits_of_many(types: tuple[str, str], n: int, k: int) -> None:
    """On both sides of every width: few have kernels of their own, many tiles, small and tall."""
    for blocks in (False, True) if "float8" in types[0] else (False,):
        desc = float_layer(types, MANY_TOKENS, n, k, blocks)
        operands = {}
        for name, spec in desc.operands().items():
            values = torch.randn(spec.extents, device=DEVICE)
            scaled = values.abs() + 0.1 if "scale" in name else values
            operands[name] = scaled.to(getattr(torch, spec.storage))
        del operands["output"]
        whole = float_outputs(desc, operands)
        for m in (m for m in WIDTHS if m < MANY_TOKENS):
            few = {name: of[:m] if name in BY_ROW else of for name, of in operands.items()}
            found = float_outputs(float_layer(types, m, n, k, blocks), few)
            assert torch.equal(found, whole[:m]), (m, blocks)


# Sides that lie transposed, and (m, n, k) around the edges of tiles, boxes and slices.
SIDES = ((True, False), (False, True), (True, True))
EXTENTS = (
    *((8, 8, 1), (16, 72, 40), (64, 64, 64), (72, 200, 77), (128, 64, 128), (128, 8, 129)),
    *((136, 264, 517), (200, 136, 1000), (8, 264, 1030), (264, 520, 300)),
)
SHARES = (((), ()), ((3,), (3,)), ((1,), (4,)), ((2,), ()), ((2, 3), (2, 3)), ((2, 1), (1, 3)))
SPECIAL = (torch.nan, torch.inf, -torch.inf, -0.0)


def numbers(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Of a bell, with a few that are none."""
    values = torch.randn(shape, device=DEVICE)
    flat = values.view(-1)
    places = torch.randint(0, flat.numel(), (1 + flat.numel() // 4000,), device=DEVICE)
    flat[places] = torch.tensor([random.choice(SPECIAL) for _ in places], device=DEVICE)
    return values.to(getattr(torch, dtype))


def laid_out(values: torch.Tensor, transposed: bool, gap: int) -> torch.Tensor:
    """The matrices in memory, with a gap of NaN behind each row."""
    rows = turned(values, transposed)
    memory = rows.new_full((*rows.shape[:-1], rows.shape[-1] + gap), torch.nan)
    memory[..., : rows.shape[-1]] = rows
    return memory[..., : rows.shape[-1]]


def matmul_of(a: torch.Tensor, w: torch.Tensor, sides: tuple[bool, bool]) -> planq.MatmulDescriptor:
    """The product of these sides as they are in memory, in float32."""
    return planq.MatmulDescriptor(
        input_shape=tuple(a.shape),
        weight_shape=tuple(w.shape),
        input_dtype=str(a.dtype).removeprefix("torch."),
        output_dtype="float32",
        transpose_input=sides[0],
        transpose_weight=sides[1],
    )


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_transposed_sides_have_the_bits_of_the_host(dtype: str, sides: tuple[bool, bool]) -> None:
    """In batches, and of rows that begin where the copy engine reads them and where it does not."""
    random.seed(0)
    kinds = itertools.product(SHARES, (0, 8, 3))
    for (m, n, k), (batch, gap) in zip(itertools.cycle(EXTENTS), kinds, strict=False):
        # A side that is not transposed has rows of whole vectors.
        terms = k if all(sides) else -(-k // 8) * 8
        a, w = numbers((*batch[0], m, terms), dtype), numbers((*batch[1], n, terms), dtype)
        given = {"input": laid_out(a, sides[0], gap), "weight": laid_out(w, sides[1], gap)}
        desc = matmul_of(given["input"], given["weight"], sides)
        found = float_outputs(desc, given)
        on_host = {name: operand.cpu() for name, operand in given.items()}
        output = torch.zeros(desc.operands()["output"].shape)
        plan = planq.Plan.select(planq.HOST, desc)
        plan.run(planq.HOST, None, planq.MatmulArgs(**on_host, output=output))
        assert torch.equal(found.cpu(), output.view(torch.int16)), (m, n, terms, batch, gap)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_transposed_sides_have_the_bits_of_copies(dtype: str, sides: tuple[bool, bool]) -> None:
    """By every width and tile; again and again, and captured before anything has run."""
    extents = ((16, 8192, 4096), (64, 8200, 1040), (128, 4096, 8192), (304, 1000, 1024))
    for m, n, k in (*extents, (4096, 4096, 1024), (2048, 8192, 520)):
        a, w = numbers((m, k), dtype), numbers((n, k), dtype)
        wanted = float_outputs(matmul_of(a, w, (False, False)), {"input": a, "weight": w})
        stored = [laid_out(side, turn, 0) for side, turn in zip((a, w), sides, strict=True)]
        output = torch.zeros(m, n, device=DEVICE)
        plan = select(matmul_of(*stored, sides), None)
        args = planq.MatmulArgs(input=stored[0], weight=stored[1], output=output)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(stream(), None, args)
        for _ in range(10):
            output.fill_(-1)
            graph.replay()
            assert torch.equal(output.view(torch.int16), wanted), (m, n, k)


# Layers of 4-bit weights whose statistics are next to one another, nested, or of groups.
DECODED: dict[str, dict[str, Any]] = {
    "nf4": {"block_size": 64, "output_dtype": "bfloat16", "bias_dtype": "float32"},
    "nf4-f16": {"block_size": 64, "input_dtype": "float16", "nibble_order": "low_first"},
    "nested": {"block_size": 64, "nested_block_size": 256, "residual_dtype": "float16"},
    "nested-128": {"block_size": 128, "nested_block_size": 16, "codebook": "af4"},
    "nested-f16": {"block_size": 512, "nested_block_size": 256, "input_dtype": "float16"},
    "int4": {"code_dtype": "int4", "weight_scope": ("group", 128, 1), "nibble_order": "low_first"},
    "uint4": {"weight_scope": ("group", 64, 1), "weight_mode": "asymmetric"},
    "uint4-f16": {
        "weight_scope": ("group", 256, 1),
        "weight_mode": "asymmetric",
        "input_dtype": "float16",
    },
}
DECODED_TERMS = 512
# Columns, and tokens on both sides of each width that is chosen for so many.
DECODED_SIZES = ((32808, (1, 8, 9, 16, 24, 60, 100, 300)), (8200, (30,)))


def layer_outputs(device: Any, problem: FourBitProblem, given: dict[str, Any]) -> Any:
    """What a device makes of a layer, as bytes."""
    bench = Bench(device, OPERATORS["linear_4bit"].descriptor(problem))
    bench.load(given)
    bench.run()
    return bench.outputs()["output"].view(np.uint8)


@pytest.mark.parametrize("kind", DECODED)
def test_decoded_weights_have_the_bits_of_the_host(kind: str) -> None:
    """Whichever kernel has the tokens, of columns that no tile divides."""
    for n, rows in DECODED_SIZES:
        problem = FourBitProblem(
            (rows[-1], DECODED_TERMS),
            (n, DECODED_TERMS),
            **({"output_dtype": "float32"} | DECODED[kind]),
        )
        given = problem.inputs("any", 1)
        expected = layer_outputs(HOST_DEVICE, problem, given)
        for m in rows:
            few = replace(problem, input_shape=(m, DECODED_TERMS))
            cut = {name: of[:m] if name in BY_ROW else of for name, of in given.items()}
            found = layer_outputs(Cuda(0), few, cut)
            assert np.array_equal(found, expected[:m]), (m, n)


@pytest.mark.parametrize("accumulation", ["tensor_sm90", "groups_sm90"])
def test_decoded_weights_meet_every_product_of_a_batch(accumulation: str) -> None:
    """Inputs whose rows of a batch are apart have the bits that they have one after another."""
    batch, m, n, k = 3, 24, 8200, 256
    inputs = torch.randn(batch, m + 8, k, device=DEVICE).bfloat16()[:, :m]
    weight = torch.randint(0, 256, (n * k // 2,), dtype=torch.uint8, device=DEVICE)
    absmax = torch.rand(n * k // 64, device=DEVICE)

    def product(given: torch.Tensor) -> torch.Tensor:
        desc = planq.Linear4BitDescriptor(
            input_shape=tuple(given.shape),
            weight_shape=(n, k),
            input_dtype="bfloat16",
            codebook="nf4",
            block_size=64,
            accumulation=accumulation,
        )
        spec = desc.operands()
        output = torch.empty((*given.shape[:-1], n), dtype=torch.bfloat16, device=DEVICE)
        plan = select(desc, None)
        workspace = torch.empty(plan.workspace_size(), dtype=torch.uint8, device=DEVICE)
        stored = weight.view(spec["weight"].extents)
        args = planq.Linear4BitArgs(input=given, weight=stored, absmax=absmax, output=output)
        plan.run(stream(), workspace, args)
        return output.view(torch.int16)

    assert torch.equal(product(inputs).flatten(0, 1), product(inputs.flatten(0, 1)))


@pytest.mark.parametrize(("operator", "problem"), PROBLEMS, ids=IDS)
def test_a_row_has_its_bits_in_every_batch(operator: str, problem: Any) -> None:
    """By every kernel that takes it; of layers that have none yet, there are no kernels to ask."""
    if names(operator):
        check_rows(Cuda(0), operator, problem)


MOST_FEW_ROWS = 2 * 8  # of the kernel for few rows that need no alignment
PINNED = {
    "matmul": ("wgmma_tiles", "wgmma_tall_tiles", "wgmma_few_rows", "few_rows"),
    "matmul_int8": ("wgmma_tiles", "wgmma_few_rows"),
}


@pytest.mark.parametrize("operator", PINNED)
@pytest.mark.parametrize("m", [1, 3, 70, 300])
def test_a_bound_launch_names_the_body_that_was_chosen(operator: str, m: int) -> None:
    """Of a plan that pins none, one of the listed; a pinned one is itself. The bits are equal."""
    fields: dict[str, Any] = {"input_shape": (m, 512), "weight_shape": (320, 512)}
    if operator == "matmul":
        desc: Any = planq.MatmulDescriptor(**fields, input_dtype="bfloat16")
        x, w = (torch.randn(of, device=DEVICE).bfloat16() for of in fields.values())
        output = torch.empty(m, 320, device=DEVICE, dtype=torch.bfloat16)
        args: Any = planq.MatmulArgs(input=x, weight=w, output=output)
    else:
        desc = planq.MatmulInt8Descriptor(**fields)
        x, w = (
            torch.randint(-128, 128, of, device=DEVICE, dtype=torch.int8) for of in fields.values()
        )
        output = torch.empty(m, 320, device=DEVICE, dtype=torch.int32)
        args = planq.MatmulInt8Args(input=x, weight=w, output=output)
    plan = planq.Plan.select(stream(), desc)
    launch = plan.bind(None, args)
    assert launch.body in PINNED[operator]
    launch(stream())
    wanted = output.clone()
    for body in PINNED[operator]:
        pinned = planq.Plan.select(stream(), desc, planq.PlanPreference(body=body))
        launch = pinned.bind(None, args)
        output.zero_()
        launch(stream())
        assert torch.equal(output, wanted), body
        taken = body != "few_rows" or m <= MOST_FEW_ROWS
        assert launch.body == (body if taken else "mma")
