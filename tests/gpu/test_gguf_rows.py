"""`linear_gguf` of weights of some megabytes, and of small ones, which share a launch.

Those of the registry's cases are small, and small weights of eight types have kernels of their
own. So the kernels for large weights of these types are compared here: where they lie anywhere,
where TMA brings them, and with all that is added to sums. Then lists of weights that are one
launch, rows of floats that become codes in it, and plans that begin before the one ahead has ended.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import planq
from ops.gguf.linear_gguf.hostile_rows import GROUPS, hostile_row
from planq.audit.memory import Device, Host, Layout, Operand, SharedLayout
from planq.audit.operators import OPERATORS
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN, terms_of
from planq.audit.ops.gguf.linear_gguf.reference import LinearGgufProblem
from planq.audit.ops.gguf.linear_gguf_merged.reference import LinearGgufMergedProblem, row_bytes
from planq.audit.ops.linear.products import Case
from planq.audit.reference.formats import Array, Arrays
from planq.audit.runner import Bench
from support.gpu import Cuda

pytestmark = pytest.mark.gpu
GPU = Cuda(0)
# Bytes: as many as the kernels for small weights take, and more.
SIZES = {"small": 1 << 20, "large": 9 << 20}
# The types that these kernels have.
SMALL = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k")
# Blocks of a row, of 32 elements and of 256. Rows are multiples of 8 bytes, and TMA brings them in
# twos if need be; or they are multiples of 16.
BLOCKS = {"twos": (36, 4), "ones": (40, 8)}
FLOATS = ("float32", "float16", "bfloat16")
# Where operands begin, by name.
PLACES: dict[str, Layout | None] = {
    "aligned": None,
    "behind one element": Layout(offset=1),
    "with gaps": Layout(offset=2, pitch=3),
    "backwards": SharedLayout(offset=3, backwards=True),
}
# By rows of the input, where those of all operands begin.
LAYOUTS = {
    1: Layout(offset=1),
    3: SharedLayout(offset=2, backwards=True),
    70: Layout(offset=1, pitch=3),
}


def weight_shape(kind: str, size: str, k: int, more: int) -> tuple[int, int]:
    """About so many bytes, and `more` rows beyond a multiple of 16."""
    form = FORMATS[kind]
    return SIZES[size] // (k // form.elements * form.nbytes) // 16 * 16 + more, k


def outputs_of(
    problem: Any, inputs: Arrays, device: Device, layout: Layout | None = None
) -> dict[str, Array]:
    """Of a run there, which writes nothing beside them."""
    merged = isinstance(problem, LinearGgufMergedProblem)
    descriptor = OPERATORS["linear_gguf_merged" if merged else "linear_gguf"].descriptor(problem)
    places = dict.fromkeys(inputs | {"output": None}, layout) if layout else None
    bench = Bench(device, descriptor, layouts=places)
    bench.load(inputs)
    bench.run()
    made = bench.outputs()
    bench.check(inputs, made, problem.id)
    return made


def same_of(
    problem: Any, inputs: Arrays, layout: Layout | None = None, *, finite: bool = True
) -> None:
    """The GPU has the bits of the host."""
    wanted = outputs_of(problem, inputs, Host())["output"]
    found = outputs_of(problem, inputs, GPU, layout)["output"]
    assert not finite or np.isfinite(wanted.astype(np.float32)).any()
    assert found.tobytes() == wanted.tobytes(), problem.id


def same(case: Case, layout: Layout | None = None) -> None:
    """The same of a case."""
    same_of(case.problem, case.inputs(), layout)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", [1, 3, 20, 70])
@pytest.mark.parametrize("kind", KNOWN)
def test_large_weights_have_the_bits_of_the_host(kind: str, rows: int, size: str) -> None:
    """Of kernels for one row, for few and for many; and of those for small weights."""
    k = terms_of(kind, 0, long=True)
    shape = weight_shape(kind, size, k, 5)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "float32", "float32", None)
    same(Case(problem, "any", 4))


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("kind", SMALL)
def test_weights_that_tma_brings(kind: str, rows: int, blocks: str) -> None:
    """Whose rows begin at multiples of 8 bytes, and are even in number."""
    elements = FORMATS[kind].elements
    k = BLOCKS[blocks][elements == 256] * elements
    shape = weight_shape(kind, "large", k, 6)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "float16", None, "float16")
    same(Case(problem, "any", 5))


@pytest.mark.parametrize("rows", LAYOUTS)
@pytest.mark.parametrize("kind", SMALL)
def test_large_weights_lie_anywhere(kind: str, rows: int) -> None:
    """Behind any byte, backwards, and with gaps between rows."""
    k = terms_of(kind, 0, long=True)
    shape = weight_shape(kind, "large", k, 6)
    problem = LinearGgufProblem((rows, k), shape, kind, "int8", "bfloat16", "float16", "bfloat16")
    same(Case(problem, "any", 6), LAYOUTS[rows])


# --- Small weights with several rows of the input -------------------------------------------------

# Rows of the weight, and terms, of blocks of 32 elements and of 256: one span or a part of it, so
# many rows that a GPU is full of blocks with many rows of the input, spans that two warps share and
# that one has, and more spans than warps.
TILES = (
    (37, (32, 256)),
    (2213, (640, 768)),
    (1031, (1024, 1024)),
    (2213, (1280, 1280)),
    (301, (2048, 2048)),
    (85, (2336, 3328)),
)


@pytest.mark.parametrize("place", ["aligned", "behind one element", "with gaps", "backwards"])
@pytest.mark.parametrize("rows", [2, 7, 8, 9, 16, 31, 33, 64])
@pytest.mark.parametrize("kind", SMALL)
def test_small_weights_with_several_rows(kind: str, rows: int, place: str) -> None:
    """Blocks of all sizes, with all that is added to sums."""
    for number, (n, terms) in enumerate(TILES):
        k = terms[FORMATS[kind].elements == 256]
        addends = ((None, "float32"), ("float16", None), ("bfloat16", "bfloat16"))[number % 3]
        problem = LinearGgufProblem((rows, k), (n, k), kind, "int8", FLOATS[number % 3], *addends)
        inputs = problem.inputs(("any", "ends")[number % 2], number + rows)
        same_of(problem, inputs, PLACES[place], finite=False)


@pytest.mark.parametrize("rows", [9, 16, 40, 64])
@pytest.mark.parametrize("kind", SMALL)
def test_large_weights_with_several_rows(kind: str, rows: int) -> None:
    """By blocks that have some tiles one after another, or by other kernels where rows are long."""
    for k, place in ((768, None), (1024, Layout(offset=1)), (2048, None), (5120, None)):
        shape = weight_shape(kind, "large", k, 5)
        problem = LinearGgufProblem((rows, k), shape, kind, "int8", "bfloat16", None, "float32")
        same_of(problem, problem.inputs("any", rows + k), place)


@pytest.mark.parametrize("kind", SMALL)
def test_scales_that_are_no_ordinary_numbers(kind: str) -> None:
    """Of a row of the input alone: they change no other row, and none where a row has no group."""
    k = 768 if FORMATS[kind].elements == 256 else 608
    for number, value in enumerate((np.nan, np.inf, -np.inf, -0.0, 2.0**-149, 2.0**127)):
        for rows, n in ((9, 37), (33, 2213)):
            problem = LinearGgufProblem((rows, k), (n, k), kind, "int8", FLOATS[number % 3])
            inputs = problem.inputs("any", number)
            inputs["input_scale"][number, number % (k // 32)] = value
            same_of(problem, inputs)


# --- Weights that share a launch ------------------------------------------------------------------

LARGE = 6500  # rows that have more bytes than the kernels for small weights take
# Rows of weights side by side, by their types in turn: as in a layer of Gemma, and such that blocks
# of threads have rows of one weight alone; the last list has a weight of its own kernel, too.
LISTS: dict[str, tuple[int, ...]] = {
    "layer": (1024, 256, 256),
    "edges": (9, 0, 7, 8, 1, 0, 33, 5),
    "none first": (0, 17),
    "with a large one": (40, LARGE, 3, 11),
}


def merged_problem(
    counts: tuple[int, ...], first: int, rows: tuple[int, ...], given: str, number: int
) -> LinearGgufMergedProblem:
    """Weights of these rows whose types follow one another, and other addends for each number."""
    kinds = [SMALL[(first + i) % len(SMALL)] for i in range(len(counts))]
    kinds = ["q8_0" if n == LARGE else kind for n, kind in zip(counts, kinds, strict=True)]
    k = 1280
    addends = (None, "float32", "float16", "bfloat16", "float64")
    return LinearGgufMergedProblem(
        (*rows, k),
        tuple((n, row_bytes(kind, k)) for n, kind in zip(counts, kinds, strict=True)),
        tuple(kinds),
        given,
        FLOATS[number % 3],
        addends[number % 5],
        addends[number // 3 % 5],
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rows", [(1,), (1, 1), (2,), (3, 7), (64,), (70,)])
@pytest.mark.parametrize("counts", LISTS)
def test_lists_of_codes(counts: str, rows: tuple[int, ...], place: str) -> None:
    """Of one launch, of those for large weights, and of both."""
    for number in range(3):
        first = 3 * number + len(rows)
        problem = merged_problem(LISTS[counts], first, rows, "int8", first + rows[-1])
        same_of(problem, problem.inputs("any", first), PLACES[place])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("given", FLOATS)
@pytest.mark.parametrize("counts", LISTS)
def test_lists_of_floats(counts: str, given: str, place: str) -> None:
    """Whose codes the launch makes, of one row; or the one before it."""
    for number, rows in enumerate(((1,), (1, 1), (2,), (1,))):
        problem = merged_problem(LISTS[counts], number + FLOATS.index(given), rows, given, number)
        same_of(problem, problem.inputs("any", number), PLACES[place])


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("given", FLOATS)
def test_one_row_of_floats(given: str, kind: str) -> None:
    """Of weights alone: terms that end inside a span or a block's vectors, and long rows."""
    blocks = (1, 5, 8) if FORMATS[kind].elements == 256 else (1, 9, 20, 32, 65, 550)
    for number, count in enumerate(blocks):
        k = count * FORMATS[kind].elements
        problem = LinearGgufProblem((1, k), (37, k), kind, given, FLOATS[number % 3], "float16")
        for layout in (None, Layout(offset=1)):
            same_of(problem, problem.inputs("any", number), layout)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("given", FLOATS)
def test_hostile_rows_of_floats(given: str, name: str) -> None:
    """Ties, zeros, what is not finite, and numbers whose scale is at a bound of its range."""
    for number, k in enumerate((256, 1280, 2048)):
        for layout in (None, Layout(offset=1)):
            row = hostile_row(name, given, k, number)
            alone = LinearGgufProblem((1, k), (21, k), SMALL[number % 8], given, "float32")
            inputs = alone.inputs("any", number) | {"input": row}
            same_of(alone, inputs, layout, finite=False)
        listed = merged_problem((9, 0, 12, 5), number, (1,), given, number)
        inputs = listed.inputs("any", number)
        inputs["input"] = hostile_row(name, given, listed.terms, number)
        same_of(listed, inputs, finite=False)


# --- Launches -------------------------------------------------------------------------------------


def captured(stream: Any, work: Callable[[], None]) -> Any:
    """A CUDA graph of the work."""
    cuda: Any = torch.cuda
    graph = cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(graph, stream=stream):
        work()
    return graph


def launches_of(problem: Any) -> int:
    """The nodes of a graph of one run."""
    merged = isinstance(problem, LinearGgufMergedProblem)
    descriptor = OPERATORS["linear_gguf_merged" if merged else "linear_gguf"].descriptor(problem)
    bench = Bench(GPU, descriptor)
    bench.load(problem.inputs("any", 0))
    graph = captured(bench.stream, lambda: run_once(bench))
    count = ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    assert driver.cuGraphGetNodes(handle, None, ctypes.byref(count)) == 0
    return count.value


def run_once(bench: Bench) -> None:
    """Without waiting."""
    bench.plan.run(bench.stream, bench.workspace.argument, bench.args)


@pytest.mark.parametrize(
    ("counts", "rows", "given", "launches"),
    [
        ("layer", 1, "int8", 1),
        ("layer", 64, "int8", 1),
        ("none first", 3, "int8", 1),
        ("layer", 1, "bfloat16", 1),
        ("edges", 1, "float32", 1),
        ("layer", 2, "float32", 2),
        ("with a large one", 1, "int8", 2),
        ("with a large one", 64, "int8", 1),
        ("with a large one", 1, "float16", 3),
    ],
)
def test_how_many_launches_a_list_takes(counts: str, rows: int, given: str, launches: int) -> None:
    """One for all small weights, one for each other, and one for codes of several rows.

    With nine rows and more, a large weight is one of the small ones.
    """
    assert launches_of(merged_problem(LISTS[counts], 0, (rows,), given, 0)) == launches


@pytest.mark.parametrize(("rows", "launches"), [(1, 1), (2, 2)])
def test_how_many_launches_a_weight_takes(rows: int, launches: int) -> None:
    """One row of floats needs none of its own."""
    problem = LinearGgufProblem((rows, 1024), (640, 1024), "q5_0", "float32", "float32")
    assert launches_of(problem) == launches


# --- Plans one behind another ---------------------------------------------------------------------


def codes_plan(stream: Any, shape: tuple[int, int]) -> planq.Plan:
    """A plan that writes bytes of this shape, whose kernel lets the next one begin at once."""
    return planq.Plan.select(
        stream,
        planq.DynamicRangeQuantizeDescriptor(
            shape=shape, input_dtype="float32", output_dtype="int8", scale_dtype="float32"
        ),
    )


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q2_k"])
@pytest.mark.parametrize("size", SIZES)
def test_a_plan_waits_for_the_weight_that_the_plan_ahead_writes(
    size: str, kind: str, rows: int
) -> None:
    """Its kernel may begin before that one has ended. Weights are any bytes, another each time."""
    shape = weight_shape(kind, size, 1280, 3)
    problem = LinearGgufProblem((rows, 1280), shape, kind, "int8", "float32")
    inputs = problem.inputs("any", 7)
    stored = inputs["weight"].shape
    stream = GPU.stream()
    codes = codes_plan(stream, stored)
    bench = Bench(GPU, OPERATORS["linear_gguf"].descriptor(problem))
    bench.load(inputs)
    pointer, extents, strides, _, where = bench.args.weight
    written = (pointer, extents, strides, "int8", where)
    draw = np.random.default_rng(rows)
    values = [draw.standard_normal(stored).astype(np.float32) for _ in range(6)]
    sources = [Operand(GPU, "float32", stored, Layout(), 0xFF) for _ in values]
    outputs = [Operand(GPU, "float32", (rows, shape[0]), Layout(), 0xA5) for _ in values]
    scale = Operand(GPU, "float32", (stored[0],), Layout(), 0xA5)
    for source, each in zip(sources, values, strict=True):
        source.write(each)
    assert codes.workspace_size() == 0
    wanted = [
        outputs_of(problem, inputs | {"weight": host_codes(each).view(np.uint8)}, Host())["output"]
        for each in values
    ]

    def run_all() -> None:
        for source, output in zip(sources, outputs, strict=True):
            args = planq.DynamicRangeQuantizeArgs(
                input=source.tensor, output=written, scale=scale.tensor
            )
            codes.run(stream, None, args)
            bench.args.output = output.tensor
            bench.plan.run(stream, bench.workspace.argument, bench.args)

    def check() -> None:
        GPU.synchronize()
        for output, each in zip(outputs, wanted, strict=True):
            assert output.read().tobytes() == each.tobytes()
            output.repoison()

    run_all()
    check()
    graph = captured(stream, run_all)
    for _ in range(3):
        graph.replay()
        check()


def host_codes(values: Array) -> Array:
    """What the plan of codes writes."""
    plan = codes_plan(planq.HOST, values.shape)
    codes = np.zeros(values.shape, np.int8)
    scale = np.zeros(len(values), np.float32)
    args = planq.DynamicRangeQuantizeArgs(input=values, output=codes, scale=scale)
    plan.run(planq.HOST, plan.empty_workspace(np), args)
    return codes
