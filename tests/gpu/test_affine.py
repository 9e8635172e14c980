"""The elementwise affine operators on CUDA: sizes beyond 32 bits, in place, and draws in graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import planq
from ops.affine.shared_parameters import KINDS, check_accumulators, check_kind
from planq.audit.from_reference import descriptor_of
from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec
from planq.audit.reference.formats import Array, Arrays
from planq.audit.runner import arguments
from support.gpu import Cuda, cuda, new_stream, on_gpu

DEVICE = "cuda:0"
TILE = (1024, 2050)
REPEATS = 1030  # more than 2^31 elements in all
SEVERAL = (1029, 2056)  # enough elements that a thread takes several vectors
SIZES = pytest.mark.xdist_group("sizes")
OPERATORS: dict[type[Problem], str] = {
    QuantizeProblem: "quantize",
    DequantizeProblem: "dequantize",
    FakeQuantizeProblem: "fake_quantize",
    QuantizeBackwardProblem: "quantize_backward",
    DequantizeBackwardProblem: "dequantize_backward",
    FakeQuantizeBackwardProblem: "fake_quantize_backward",
}


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    """What torch keeps of tens of gigabytes, other workers may need."""
    yield
    cuda.empty_cache()


def plan_of(problem: Problem, stream: Any) -> planq.Plan:
    """A plan of the problem on the stream's device."""
    return planq.Plan.select(stream, descriptor_of(OPERATORS[type(problem)], problem))


def run(problem: Problem, operands: dict[str, Any], stream: Any = None) -> None:
    """Runs on the caller's tensors, and waits."""
    stream = stream or torch.cuda.current_stream()
    plan = plan_of(problem, stream)
    need = plan.workspace_size()
    workspace = torch.empty(need, dtype=torch.uint8, device=DEVICE) if need else None
    plan.run(stream, workspace, arguments(plan.descriptor, operands))
    torch.cuda.synchronize()


def as_array(tensor: torch.Tensor) -> Array:
    """The bytes of a tensor, on the host."""
    flat: Array = tensor.contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return flat


def whole_tensor(problem: Problem, lies: str, tile: Array) -> torch.Tensor:
    """A tile's operand for the tile again and again, along the first axis where it has that."""
    one = on_gpu(tile, DEVICE)
    by_rows = lies == "elements" or (
        lies == "parameters" and problem.scope[0] in ("token", "group", "block", "pair")
    )
    return one.repeat(REPEATS, *(1,) * (one.ndim - 1)) if by_rows else one


def assert_tiled(whole: torch.Tensor, tile: Array) -> None:
    """Fails unless `whole` is `tile` again and again."""
    wanted = torch.from_numpy(np.ascontiguousarray(tile).reshape(1, -1).view(np.uint8)).to(DEVICE)
    flat = whole.reshape(-1).view(torch.uint8).reshape(-1, wanted.shape[1])
    for part in torch.split(flat, max(1, 2**28 // wanted.shape[1])):
        assert torch.equal(part, wanted.expand_as(part))


def filled(problem: Problem, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """Outputs of a problem that hold something else."""
    specs = descriptor_of(OPERATORS[type(problem)], problem).operands()
    made = {}
    for name in names:
        kind = getattr(torch, specs[name].storage)
        bytes_ = torch.full(specs[name].shape, 77, dtype=torch.uint8, device=DEVICE)
        made[name] = bytes_.to(kind) if kind.itemsize > 1 else bytes_.view(kind)
    return made


def check_tiled(tile: Problem) -> None:
    """More than 2^31 elements: every tile as if it were alone."""
    given = affine_inputs.make(tile, "near", "ordinary", 1)
    problem = replace(tile, shape=(TILE[0] * REPEATS, TILE[1]))
    wanted = tile.expected(given)
    operands = {
        name: whole_tensor(tile, tensor.lies, given[name]) for name, tensor in tile.inputs.items()
    }
    operands |= filled(problem, wanted)
    run(problem, operands)
    for name, values in wanted.items():
        assert_tiled(operands[name], values)


SCOPES: tuple[ScopeSpec, ...] = (
    ("tensor",),
    ("token",),
    ("channel", -1),
    ("group", 128, -1),
    ("block", 128, 128),
)


@SIZES
@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("output_dtype", ["int8", "int4", "float8_e4m3fn"])
def test_quantize_beyond_two_to_the_thirty_one(output_dtype: str, scope: ScopeSpec) -> None:
    """Bytes, packed codes and fp8."""
    mode = "symmetric" if output_dtype.startswith("float8") else "asymmetric"
    check_tiled(
        QuantizeProblem(TILE, scope, input_dtype="bfloat16", mode=mode, output_dtype=output_dtype)
    )


@SIZES
@pytest.mark.parametrize("scope", SCOPES, ids=str)
@pytest.mark.parametrize("input_dtype", ["uint8", "int4", "float8_e5m2"])
def test_dequantize_beyond_two_to_the_thirty_one(input_dtype: str, scope: ScopeSpec) -> None:
    """Bytes, packed codes and fp8."""
    mode = "symmetric" if input_dtype.startswith("float8") else "asymmetric"
    check_tiled(
        DequantizeProblem(TILE, scope, input_dtype=input_dtype, output_dtype="bfloat16", mode=mode)
    )


@SIZES
def test_accumulators_beyond_two_to_the_thirty_one() -> None:
    """A scale for each row and each column, and a bias."""
    check_tiled(
        DequantizeProblem(
            TILE, ("pair",), input_dtype="int32", output_dtype="bfloat16", bias_dtype="float32"
        )
    )


@SIZES
@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_fake_quantize_and_gradients_beyond_two_to_the_thirty_one(scope: ScopeSpec) -> None:
    """Three tensors of 2^31 elements at most."""
    fields: dict[str, Any] = {"input_dtype": "bfloat16", "mode": "asymmetric"}
    check_tiled(FakeQuantizeProblem(TILE, scope, **fields))
    check_tiled(QuantizeBackwardProblem(TILE, scope, **fields))
    check_tiled(FakeQuantizeBackwardProblem(TILE, scope, **fields))
    check_tiled(DequantizeBackwardProblem(TILE, scope, output_dtype="bfloat16"))


def check_whole(problem: Problem) -> None:
    """A tensor that leaves every thread several vectors, in tiles and stacks that are not full."""
    given = affine_inputs.make(problem, "near", "ordinary", 5)
    wanted = problem.expected(given)
    outputs = filled(problem, wanted)
    run(problem, {name: on_gpu(values, DEVICE) for name, values in given.items()} | outputs)
    for name, values in wanted.items():
        assert np.array_equal(as_array(outputs[name]), values.view(np.uint8).ravel()), name


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_threads_that_take_several_vectors(scope: ScopeSpec) -> None:
    """Every operator under every scope."""
    fields: dict[str, Any] = {"input_dtype": "bfloat16", "mode": "asymmetric"}
    for output_dtype in ("int8", "int4"):
        check_whole(QuantizeProblem(SEVERAL, scope, **fields, output_dtype=output_dtype))
    for input_dtype in ("int8", "int4"):
        check_whole(
            DequantizeProblem(SEVERAL, scope, input_dtype=input_dtype, output_dtype="bfloat16")
        )
    check_whole(FakeQuantizeProblem(SEVERAL, scope, **fields))
    check_whole(QuantizeBackwardProblem(SEVERAL, scope, **fields))
    check_whole(DequantizeBackwardProblem(SEVERAL, scope, output_dtype="bfloat16"))


@pytest.mark.parametrize("bias_dtype", [None, "bfloat16", "float64"])
@pytest.mark.parametrize("output_dtype", ["float16", "bfloat16", "float32", "float64"])
def test_stacked_rows_of_accumulators(output_dtype: str, bias_dtype: str | None) -> None:
    """A scale for each row and each column, with a bias and without."""
    check_whole(
        DequantizeProblem(
            SEVERAL,
            ("pair",),
            input_dtype="int32",
            output_dtype=output_dtype,
            bias_dtype=bias_dtype,
        )
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_its_own_scale_and_zero_point(kind: str) -> None:
    """Where the scale repeats the zero point does not, and the other way round."""
    check_kind(Cuda(0), kind)


def test_each_row_of_accumulators_has_its_own_scale() -> None:
    """Beside the scales and biases of the columns, in stacked rows and others."""
    check_accumulators(Cuda(0))


@SIZES
@pytest.mark.parametrize("scope", [("channel", -1), ("group", 2, 0), ("token",)], ids=str)
def test_rows_that_lie_further_apart_than_32_bits_count(scope: ScopeSpec) -> None:
    """Codes of which each row begins more than 2^31 after the one before, or before it."""
    fields: dict[str, Any] = {"input_dtype": "int8", "output_dtype": "bfloat16"}
    problem = DequantizeProblem((3, 256), scope, mode="asymmetric", **fields)
    given = affine_inputs.make(problem, "near", "ordinary", 6)
    wanted = problem.expected(given)["output"]
    apart = 2**31 + 64
    memory = torch.zeros(2 * apart + 256, dtype=torch.int8, device=DEVICE)
    operands: dict[str, Any] = {name: on_gpu(values, DEVICE) for name, values in given.items()}
    for stride in (apart, -apart):
        first = memory.data_ptr() + (0 if stride > 0 else 2 * apart)
        for row in range(3):
            at = first - memory.data_ptr() + row * stride
            memory[at : at + 256] = operands["input"][row]
        output = filled(problem, ("output",))
        far = (first, (3, 256), (stride, 1), "int8", DEVICE)
        run(problem, {**operands, **output, "input": far})
        assert np.array_equal(as_array(output["output"]), wanted.view(np.uint8).ravel())


@SIZES
def test_draws_beyond_two_to_the_thirty_one() -> None:
    """The last tile has the draws of its own indices: those of a tile with a larger offset."""
    tile = FakeQuantizeProblem(TILE, input_dtype="bfloat16", rounding="stochastic")
    given = affine_inputs.make(tile, "near", "ordinary", 2)
    x = on_gpu(given["input"], DEVICE).repeat(REPEATS, 1)
    seed, offset = int(given["seed"]), int(given["offset"])
    operands = {"input": x, "output": x, "scale": on_gpu(given["scale"], DEVICE)}
    problem = replace(tile, shape=tuple(x.shape))
    run(problem, {**operands, "seed": seed, "offset": offset})
    skipped = (REPEATS - 1) * TILE[0] * TILE[1] // 4
    with np.errstate(over="ignore"):
        moved = {**given, "offset": given["offset"] + np.int64(skipped)}
    wanted = tile.expected(moved)["output"]
    assert np.array_equal(as_array(x[-TILE[0] :]), wanted.view(np.uint8).ravel())


IN_PLACE: tuple[tuple[Problem, str, str], ...] = (
    (FakeQuantizeProblem((33, 1000), ("token",), mode="asymmetric"), "input", "output"),
    (FakeQuantizeProblem((33, 1000), ("channel", -1)), "input", "output"),
    (QuantizeBackwardProblem((33, 1000), ("token",)), "grad_output", "grad_input"),
    (FakeQuantizeBackwardProblem((33, 1000), ("token",)), "grad_output", "grad_input"),
    (DequantizeBackwardProblem((33, 1000), ("block", 2, 16)), "grad_output", "grad_input"),
)


@pytest.mark.sanitize
@pytest.mark.parametrize("columns", [1000, 999])
@pytest.mark.parametrize("case", IN_PLACE, ids=lambda case: case[0].id)
def test_in_place(case: tuple[Problem, str, str], columns: int) -> None:
    """The bits of a run out of place; between strided rows nothing changes."""
    problem, before, after = case
    problem = replace(problem, shape=(33, columns))
    given = affine_inputs.make(problem, "near", "ordinary", 3)
    wanted = problem.expected(given)[after]
    operands: dict[str, Any] = {name: on_gpu(values, DEVICE) for name, values in given.items()}
    run(problem, {**operands, after: operands[before]})
    assert np.array_equal(as_array(operands[before]), wanted.view(np.uint8).ravel())
    wide = torch.full((33, 1100), 77.0, device=DEVICE)
    wide[:, 7 : 7 + columns] = on_gpu(given[before], DEVICE)
    strided = wide[:, 7 : 7 + columns]
    run(problem, {**operands, before: strided, after: strided})
    assert np.array_equal(as_array(strided), wanted.view(np.uint8).ravel())
    strided.fill_(77)
    assert bool((wide == 77).all())


def drawn(x: Array, seed: int, offset: int) -> Array:
    """What the reference draws for a vector under scale 1."""
    problem = FakeQuantizeProblem(x.shape, rounding="stochastic")
    given: Arrays = {"input": x, "scale": np.ones(1, np.float32)}
    given |= {"seed": np.array(seed, np.int64), "offset": np.array(offset, np.int64)}
    return problem.expected(given)["output"]


def test_a_captured_graph_draws_anew_with_a_scalar_that_advances() -> None:
    """The offset lies on the GPU; each replay reads what it holds by then."""
    x = np.full(5000, 0.5, np.float32)
    problem = FakeQuantizeProblem(x.shape, rounding="stochastic")
    stream = new_stream(DEVICE)
    plan = plan_of(problem, stream)
    offset = torch.zeros((), dtype=torch.int64, device=DEVICE)
    output = torch.zeros(x.shape, device=DEVICE)
    operands = {"input": on_gpu(x, DEVICE), "output": output, "offset": offset}
    operands["scale"] = torch.ones(1, device=DEVICE)
    args = arguments(plan.descriptor, {**operands, "seed": 5})
    graph: Any = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        plan.run(stream, None, args)
        offset.add_(1250)
        graph.capture_end()
    for replay in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert np.array_equal(output.cpu().numpy(), drawn(x, 5, 1250 * replay))


def test_a_scalar_on_the_host_is_refused() -> None:
    """A launch reads nothing that the GPU cannot; an integer travels with it."""
    x = np.full(64, 0.5, np.float32)
    problem = FakeQuantizeProblem(x.shape, rounding="stochastic")
    operands: dict[str, Any] = {"input": on_gpu(x, DEVICE), "scale": torch.ones(1, device=DEVICE)}
    operands |= {"output": torch.zeros(64, device=DEVICE), "seed": 1}
    with pytest.raises(planq.ArgumentError) as caught:
        run(problem, {**operands, "offset": np.zeros(1, np.int64)})
    assert caught.value.operand == "offset"
    run(problem, {**operands, "offset": 3})
    assert np.array_equal(operands["output"].cpu().numpy(), drawn(x, 1, 3))


@pytest.mark.parametrize("quotient", ["divide", "reciprocal"])
@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16", "float32", "float64"])
def test_whole_vectors_of_zeros_keep_their_signs_in_float8(input_dtype: str, quotient: str) -> None:
    """Nothing else lies in the vectors that would send them the slow way."""
    x = torch.tensor([-0.0, 0.0] * 64, dtype=getattr(torch, input_dtype), device="cuda:0")
    codes = torch.full(x.shape, 99, dtype=torch.uint8, device="cuda:0")
    scale = torch.full((1,), 0.03, device="cuda:0")
    desc = planq.QuantizeDescriptor(
        shape=tuple(x.shape),
        input_dtype=input_dtype,
        output_dtype="float8_e4m3fn",
        scale_dtype="float32",
        quotient=planq.Quotient(quotient),
    )
    stream = new_stream()
    plan = planq.Plan.select(stream, desc)
    torch.cuda.synchronize()
    plan.run(stream, None, planq.QuantizeArgs(input=x, output=codes, scale=scale))
    torch.cuda.synchronize()
    assert codes.tolist() == [0x80, 0x00] * 64


@pytest.mark.parametrize("quotient", ["divide", "reciprocal"])
@pytest.mark.parametrize(("dtype", "bits"), [("float16", 0x7E00), ("bfloat16", 0x7FC0)])
def test_a_gradient_that_is_no_number_becomes_the_canonical_one(
    dtype: str, bits: int, quotient: str
) -> None:
    """Whatever its payload was."""
    dy = torch.full((128,), 0x7FFF, dtype=torch.int16, device="cuda:0")
    x = torch.ones(128, dtype=getattr(torch, dtype), device="cuda:0")
    dx = torch.zeros_like(x)
    desc = planq.QuantizeBackwardDescriptor(
        shape=(128,), input_dtype=dtype, output_dtype="int8", quotient=planq.Quotient(quotient)
    )
    stream = new_stream()
    plan = planq.Plan.select(stream, desc)
    scale = torch.ones(1, device="cuda:0")
    torch.cuda.synchronize()
    plan.run(
        stream,
        None,
        planq.QuantizeBackwardArgs(
            grad_output=dy.view(x.dtype), input=x, grad_input=dx, scale=scale
        ),
    )
    torch.cuda.synchronize()
    assert (dx.view(torch.int16) == bits).all()
