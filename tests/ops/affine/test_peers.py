"""Other libraries' quantize, dequantize and fake quantize, and their gradients, bit for bit.

===================================  ==========  ==================================================
peer                                 Quotient    what it computes
===================================  ==========  ==================================================
torch fake_quantize_per_*_affine     RECIPROCAL  `rne(fl(x * fl(1 / s))) + zero_point`
their gradients                      RECIPROCAL  `dy` where the unclamped code is in the bounds
torch quantize_per_*                 RECIPROCAL  `rne(fl(fl(x * fl(1 / s)) + zero_point))`
torchao quantize_affine              RECIPROCAL  `round(x * (1.0 / scale)) + zero_point`
its gradient                         RECIPROCAL  `fl(dy * fl(1 / s))` inside of the bounds
torchao dequantize_affine            -           `(q - zero_point) * scale`
ONNX QuantizeLinear                  DIVIDE      `rint(x / y_scale) + zero_point`; fp8 by a cast
ONNX DequantizeLinear                -           `(q - zero_point) * scale`
torch fp8 casts                      DIVIDE      cast of `x / scale`, clamped
torch int32 accumulators             -           `acc * row * column + bias` in float32
===================================  ==========  ==================================================
"""

from __future__ import annotations

import importlib
import logging
import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from planq.audit.ops.affine import inputs as affine_inputs
from planq.audit.ops.affine.dequantize.adapter import TESTS as DEQUANTIZE
from planq.audit.ops.affine.dequantize.reference import DequantizeProblem
from planq.audit.ops.affine.dequantize_backward.adapter import TESTS as DEQUANTIZE_BACKWARD
from planq.audit.ops.affine.dequantize_backward.reference import DequantizeBackwardProblem
from planq.audit.ops.affine.fake_quantize.adapter import TESTS as FAKE_QUANTIZE
from planq.audit.ops.affine.fake_quantize.reference import FakeQuantizeProblem
from planq.audit.ops.affine.fake_quantize_backward.adapter import TESTS as FAKE_QUANTIZE_BACKWARD
from planq.audit.ops.affine.fake_quantize_backward.reference import FakeQuantizeBackwardProblem
from planq.audit.ops.affine.quantize.adapter import TESTS as QUANTIZE
from planq.audit.ops.affine.quantize.reference import QuantizeProblem
from planq.audit.ops.affine.quantize_backward.adapter import TESTS as QUANTIZE_BACKWARD
from planq.audit.ops.affine.quantize_backward.reference import QuantizeBackwardProblem
from planq.audit.ops.affine.reference import Problem
from planq.audit.ops.affine.scopes import ScopeSpec, parameter_shape
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, Arrays, bits, unpack_nibbles
from support.tensors import as_torch, from_torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    torchao: Any = importlib.import_module("torchao.quantization.quant_primitives")

    logging.disable(logging.NOTSET)

F32 = np.float32
SHAPE = (12, 30, 17)
SEEDS = range(4)
SMALL_FLOATS = ("float16", "bfloat16", "float32")
EVERY_FLOAT = (*SMALL_FLOATS, "float64")
deprecated = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")


def given(problem: Problem, seed: int, parameters: str = "ordinary") -> Arrays:
    """Operands with elements on and beside the steps of ordinary scales."""
    made = affine_inputs.make(problem, "near", parameters, seed)
    if "grad_output" in made:
        made["grad_output"] = inputs.make("normal", problem.shape, problem.float_dtype, seed)
    return made


def bounds(problem: Any) -> tuple[int, int]:
    """`(q_min, q_max)` as torch takes them."""
    low, high = problem.bounds
    return int(low), int(high)


def same_bits(ours: Array, theirs: Array) -> bool:
    """Whether every bit is equal."""
    return ours.dtype == theirs.dtype and np.array_equal(bits(ours), bits(theirs))


def torch_fake_quantize(problem: Any, x: torch.Tensor, operands: Arrays) -> torch.Tensor:
    """torch's, per tensor or per channel; zero points are 0 where there are none."""
    low, high = bounds(problem)
    scale = as_torch(operands["scale"])
    zero_point = as_torch(operands.get("zero_point", np.zeros(scale.shape, np.int32)))
    if problem.scope[0] == "tensor":
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, low, high)
    axis = problem.scope[1]
    return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, low, high)


TORCH_SCOPES: tuple[ScopeSpec, ...] = (("tensor",), ("channel", 0), ("channel", 1), ("channel", 2))
TORCH_BOUNDS = (("symmetric", -127, 127), ("asymmetric", -128, 127), ("asymmetric", 0, 15))


@pytest.mark.parametrize("mode", TORCH_BOUNDS, ids=str)
@pytest.mark.parametrize("scope", TORCH_SCOPES, ids=str)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_torch_fake_quantize(dtype: str, scope: ScopeSpec, mode: tuple[str, int, int]) -> None:
    """RECIPROCAL, with torch's zero point added after rounding."""
    fields: dict[str, Any] = dict(zip(("mode", "q_min", "q_max"), mode, strict=True))
    problem = FakeQuantizeProblem(SHAPE, scope, "float32", dtype, quotient="reciprocal", **fields)
    for seed in SEEDS:
        operands = given(problem, seed)
        ours = FAKE_QUANTIZE.run(problem, **operands)["output"]
        theirs = torch_fake_quantize(problem, as_torch(operands["input"]), operands)
        assert same_bits(ours, from_torch(theirs))


@pytest.mark.parametrize("mode", TORCH_BOUNDS, ids=str)
@pytest.mark.parametrize("scope", TORCH_SCOPES, ids=str)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_torch_fake_quantize_gradient(
    dtype: str, scope: ScopeSpec, mode: tuple[str, int, int]
) -> None:
    """RECIPROCAL, both ends included; torch multiplies by a mask, so its zeros have dy's sign."""
    fields: dict[str, Any] = dict(zip(("mode", "q_min", "q_max"), mode, strict=True))
    problem = FakeQuantizeBackwardProblem(
        SHAPE, scope, "float32", dtype, quotient="reciprocal", **fields
    )
    for seed in SEEDS:
        operands = given(problem, seed)
        ours = FAKE_QUANTIZE_BACKWARD.run(problem, **operands)["grad_input"]
        x = as_torch(operands["input"]).requires_grad_()
        torch_fake_quantize(problem, x, operands).backward(as_torch(operands["grad_output"]))
        assert x.grad is not None
        assert np.array_equal(ours.astype(F32), from_torch(x.grad).astype(F32))
        assert 0 < np.count_nonzero(ours) < ours.size


@deprecated
@pytest.mark.parametrize("scope", TORCH_SCOPES, ids=str)
@pytest.mark.parametrize("output_dtype", ["int8", "uint8"])
def test_torch_quantize_and_dequantize_at_zero_point_zero(
    output_dtype: str, scope: ScopeSpec
) -> None:
    """RECIPROCAL; with another zero point torch adds it before rounding."""
    problem = QuantizeProblem(
        SHAPE, scope, output_dtype=output_dtype, quotient="reciprocal", mode="asymmetric"
    )
    dtype = {"int8": torch.qint8, "uint8": torch.quint8}[output_dtype]
    back = DequantizeProblem(SHAPE, scope, input_dtype=output_dtype, mode="asymmetric")
    for seed in SEEDS:
        operands = given(problem, seed)
        operands["zero_point"] = np.zeros_like(operands["zero_point"])
        codes = QUANTIZE.run(problem, **operands)["output"]
        x, scale = as_torch(operands["input"]), as_torch(operands["scale"])
        if scope[0] == "tensor":
            theirs = torch.quantize_per_tensor(x, float(scale), 0, dtype)
        else:
            zero_point = torch.zeros(scale.shape, dtype=torch.int64)
            theirs = torch.quantize_per_channel(x, scale, zero_point, scope[1], dtype)
        assert np.array_equal(codes, theirs.int_repr().numpy())
        ours = DEQUANTIZE.run(back, **{**operands, "input": codes})["output"]
        assert same_bits(ours + F32(0), theirs.dequantize().numpy() + F32(0))


@deprecated
def test_torch_quantize_with_an_odd_zero_point_rounds_ties_the_other_way() -> None:
    """torch: `rne(t + 1)`; planq: `rne(t) + 1`, the code of zero moved and nothing else."""
    x = np.arange(-20, 20, dtype=F32) / 2
    problem = QuantizeProblem(x.shape, mode="asymmetric", quotient="reciprocal")
    one = {"scale": np.ones(1, F32), "zero_point": np.ones(1, np.int32)}
    ours = QUANTIZE.run(problem, input=x, **one)["output"]
    theirs = torch.quantize_per_tensor(torch.from_numpy(x), 1.0, 1, torch.qint8).int_repr().numpy()
    assert np.array_equal(ours, np.rint(x) + 1)
    assert np.array_equal(theirs, np.rint(x + 1))
    assert np.array_equal(ours != theirs, x % 1 != 0)


AO_BLOCKS: dict[str, tuple[ScopeSpec, tuple[int, int]]] = {
    "tensor": (("tensor",), (24, 96)),
    "row": (("token",), (1, 96)),
    "column": (("channel", -1), (24, 1)),
    "group": (("group", 32, -1), (1, 32)),
    "outer group": (("group", 8, 0), (8, 1)),
    "block": (("block", 8, 32), (8, 32)),
}
over_blocks = pytest.mark.parametrize(("scope", "block"), AO_BLOCKS.values(), ids=AO_BLOCKS.keys())


@over_blocks
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
@pytest.mark.parametrize(("output_dtype", "low", "high"), [("int8", -128, 127), ("uint4", 0, 15)])
def test_torchao_quantize_affine(
    output_dtype: str, low: int, high: int, dtype: str, scope: ScopeSpec, block: tuple[int, int]
) -> None:
    """RECIPROCAL, for every block that has a scope."""
    problem = QuantizeProblem(
        (24, 96), scope, None, dtype, "asymmetric", quotient="reciprocal", output_dtype=output_dtype
    )
    operands = given(problem, 3)
    ours = QUANTIZE.run(problem, **operands)["output"]
    scale, zero_point = as_torch(operands["scale"]), as_torch(operands["zero_point"])
    theirs = torchao.quantize_affine(
        as_torch(operands["input"]), block, scale, zero_point, torch.int32, low, high
    ).numpy()
    if output_dtype == "uint4":
        ours = unpack_nibbles(ours, 96, "low_first")
    assert np.array_equal(ours, theirs)


@over_blocks
@pytest.mark.parametrize("output_dtype", SMALL_FLOATS)
def test_torchao_dequantize_affine(
    output_dtype: str, scope: ScopeSpec, block: tuple[int, int]
) -> None:
    """Differences of codes and zero points are exact in bfloat16 too."""
    problem = DequantizeProblem((24, 96), scope, "float32", "int8", output_dtype, "asymmetric")
    operands = given(problem, 4)
    ours = DEQUANTIZE.run(problem, **operands)["output"]
    theirs = torchao.dequantize_affine(
        as_torch(operands["input"]),
        block,
        as_torch(operands["scale"]),
        as_torch(operands["zero_point"]),
        torch.int8,
        output_dtype=getattr(torch, output_dtype),
    )
    assert same_bits(ours, from_torch(theirs))


@over_blocks
def test_torchao_fake_quantize_affine(scope: ScopeSpec, block: tuple[int, int]) -> None:
    """RECIPROCAL, in float32."""
    problem = FakeQuantizeProblem(
        (24, 96), scope, mode="asymmetric", q_min=0, q_max=15, quotient="reciprocal"
    )
    operands = given(problem, 5)
    ours = FAKE_QUANTIZE.run(problem, **operands)["output"]
    theirs = torchao._fake_quantize_affine(
        as_torch(operands["input"]),
        block,
        as_torch(operands["scale"]),
        as_torch(operands["zero_point"]),
        torch.uint8,
        0,
        15,
    )
    assert same_bits(ours, from_torch(theirs))


@over_blocks
def test_torchao_quantize_gradient(scope: ScopeSpec, block: tuple[int, int]) -> None:
    """RECIPROCAL: its straight-through rounding makes `fl(dy * fl(1 / s))` within the bounds."""
    problem = QuantizeBackwardProblem(
        (24, 96), scope, mode="asymmetric", quotient="reciprocal", output_dtype="int8"
    )
    operands = given(problem, 6)
    ours = QUANTIZE_BACKWARD.run(problem, **operands)["grad_input"]
    x = as_torch(operands["input"]).requires_grad_()
    codes = torchao._quantize_affine_no_dtype_cast(
        x, block, as_torch(operands["scale"]), as_torch(operands["zero_point"]), -128, 127
    )
    codes.backward(as_torch(operands["grad_output"]))
    assert x.grad is not None
    assert same_bits(ours, x.grad.numpy())
    assert 0 < np.count_nonzero(ours) < ours.size


ONNX_CODES = {
    "int8": (TensorProto.INT8, np.int8),
    "uint8": (TensorProto.UINT8, np.uint8),
    "int4": (TensorProto.INT4, ml_dtypes.int4),
    "uint4": (TensorProto.UINT4, ml_dtypes.uint4),
    "float8_e4m3fn": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "float8_e5m2": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2),
}
ONNX_FLOATS = {
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
}
ONNX_SCOPES: dict[str, tuple[ScopeSpec, dict[str, int]]] = {
    "tensor": (("tensor",), {}),
    "axis 0": (("channel", 0), {"axis": 0}),
    "axis 1": (("channel", 1), {"axis": 1}),
    "axis -1": (("channel", -1), {"axis": -1}),
    "blocks of 32": (("group", 32, -1), {"axis": 1, "block_size": 32}),
    "outer blocks of 5": (("group", 5, 0), {"axis": 0, "block_size": 5}),
}
over_onnx_scopes = pytest.mark.parametrize(
    ("scope", "attributes"), ONNX_SCOPES.values(), ids=ONNX_SCOPES.keys()
)


def by_onnx(operator: str, tensors: list[Array], types: list[int], **attributes: Any) -> Array:
    """The result of one node in ONNX's reference evaluator."""
    names = ["x", "scale", "zero_point"][: len(tensors)]
    node = helper.make_node(operator, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(name, kind, tensor.shape)
        for name, kind, tensor in zip(names, types, tensors, strict=False)
    ]
    result = helper.make_tensor_value_info("y", types[-1], tensors[0].shape)
    graph = helper.make_graph([node], "one", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    feeds = dict(zip(names, tensors, strict=True))
    made: Any = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(made[0])


def as_bytes(codes: Array, output_dtype: str, packed: bool) -> Array:
    """Codes as plain integers, fp8 as bytes."""
    if output_dtype.startswith("float8"):
        return codes.view(np.uint8)
    if not packed:
        return codes.astype(np.int64)
    logical = unpack_nibbles(codes, 70, "low_first").astype(np.int64)
    return np.where(logical > 7, logical - 16, logical) if output_dtype == "int4" else logical


def onnx_zero_points(problem: Any, operands: Arrays, kind: Any) -> list[Array]:
    """Zero points in the type of the codes, which ONNX asks for."""
    if problem.mode == "symmetric":
        return []
    shape = parameter_shape(problem.shape, problem.scope)
    low, high = {"uint4": (0, 15), "int4": (-8, 7)}.get(np.dtype(kind).name, (-100, 100))
    values = low + np.arange(int(np.prod(shape))) % (high - low + 1)
    operands["zero_point"] = np.abs(values).astype(np.int32).reshape(shape)
    if low < 0:
        operands["zero_point"] = np.clip(values, low, high).astype(np.int32).reshape(shape)
    if np.dtype(kind).name == "uint8":
        operands["zero_point"] = np.abs(operands["zero_point"])
    return [operands["zero_point"].astype(kind)]


@over_onnx_scopes
@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("output_dtype", ONNX_CODES)
def test_onnx_quantize_linear(
    output_dtype: str, input_dtype: str, scope: ScopeSpec, attributes: dict[str, int]
) -> None:
    """DIVIDE, in float32: ONNX's `precision` for the narrow inputs."""
    proto, kind = ONNX_CODES[output_dtype]
    mode = "symmetric" if output_dtype.startswith("float8") else "asymmetric"
    problem = QuantizeProblem(
        (15, 70), scope, "float32", input_dtype, mode, output_dtype=output_dtype
    )
    operands = given(problem, 8)
    zero_points = onnx_zero_points(problem, operands, kind)
    ours = QUANTIZE.run(problem, **operands)["output"]
    theirs = by_onnx(
        "QuantizeLinear",
        [operands["input"], operands["scale"], *zero_points],
        [ONNX_FLOATS[input_dtype], TensorProto.FLOAT, proto],
        precision=TensorProto.FLOAT,
        output_dtype=proto,
        **attributes,
    )
    packed = output_dtype in ("int4", "uint4")
    wanted = as_bytes(theirs, output_dtype, packed=False)
    assert np.array_equal(as_bytes(ours, output_dtype, packed), wanted)


@over_onnx_scopes
@pytest.mark.parametrize("output_dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("input_dtype", ONNX_CODES)
def test_onnx_dequantize_linear(
    input_dtype: str, output_dtype: str, scope: ScopeSpec, attributes: dict[str, int]
) -> None:
    """Differences and products in float32, then one rounding."""
    proto, kind = ONNX_CODES[input_dtype]
    mode = "symmetric" if input_dtype.startswith("float8") else "asymmetric"
    problem = DequantizeProblem((15, 70), scope, "float32", input_dtype, output_dtype, mode)
    operands = given(problem, 9)
    zero_points = onnx_zero_points(problem, operands, kind)
    codes = as_bytes(operands["input"], input_dtype, packed=input_dtype in ("int4", "uint4"))
    codes = codes.view(kind) if mode == "symmetric" else codes.astype(kind)
    ours = DEQUANTIZE.run(problem, **operands)["output"]
    with np.errstate(over="ignore"):
        theirs = by_onnx(
            "DequantizeLinear",
            [codes, operands["scale"], *zero_points],
            [proto, TensorProto.FLOAT, ONNX_FLOATS[output_dtype]],
            output_dtype=ONNX_FLOATS[output_dtype],
            **attributes,
        )
    number = ~np.isnan(theirs.astype(F32))
    assert np.array_equal(np.isnan(ours.astype(F32)), ~number)
    assert np.array_equal(bits(ours)[number], bits(theirs)[number])


@pytest.mark.parametrize("output_dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("input_dtype", SMALL_FLOATS)
def test_torch_fp8_casts(input_dtype: str, output_dtype: str) -> None:
    """DIVIDE: `(x / s).clamp(-max, max).to(fp8)`, NaN included, at all exponents."""
    limit = FLOATS[output_dtype].largest
    problem = QuantizeProblem(
        (33, 400), ("token",), "float32", input_dtype, output_dtype=output_dtype
    )
    for data in ("near", "mixed", "patterns", "subnormal"):
        operands = affine_inputs.make(problem, data, "ordinary", 2)
        ours = QUANTIZE.run(problem, **operands)["output"]
        t = as_torch(operands["input"]).float() / as_torch(operands["scale"])[:, None]
        theirs = t.clamp(-limit, limit).to(getattr(torch, output_dtype)).view(torch.uint8).numpy()
        nan = t.isnan().numpy()
        assert np.array_equal(ours[~nan], theirs[~nan])
        assert (ours[nan] == 0x7F).all()
        assert (theirs[nan] & 0x7F == 0x7F).all() or output_dtype == "float8_e5m2"


@pytest.mark.parametrize("output_dtype", EVERY_FLOAT)
@pytest.mark.parametrize("input_dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_fp8_back(input_dtype: str, output_dtype: str) -> None:
    """Every code times its row's scale, in C, rounded once."""
    problem = DequantizeProblem(
        (33, 400), ("token",), None, input_dtype=input_dtype, output_dtype=output_dtype
    )
    operands = given(problem, 7)
    ours = DEQUANTIZE.run(problem, **operands)["output"]
    wide = torch.float64 if output_dtype == "float64" else torch.float32
    codes = as_torch(operands["input"]).to(wide)
    y = from_torch((codes * as_torch(operands["scale"])[:, None]).to(getattr(torch, output_dtype)))
    number = ~np.isnan(y.astype(np.float64))
    assert np.array_equal(np.isnan(ours.astype(np.float64)), ~number)
    assert np.array_equal(bits(ours)[number], bits(y)[number])


@pytest.mark.parametrize("bias_dtype", [None, "bfloat16", "float32"])
@pytest.mark.parametrize("output_dtype", SMALL_FLOATS)
def test_torch_int32_accumulators(output_dtype: str, bias_dtype: str | None) -> None:
    """What follows an int8 matrix product in torch: `acc * row * column + bias` in float32."""
    problem = DequantizeProblem(
        (48, 70),
        ("pair",),
        input_dtype="int32",
        output_dtype=output_dtype,
        bias_dtype=bias_dtype,
    )
    operands = given(problem, 7)
    if bias_dtype:
        operands["bias"] = inputs.make("normal", (70,), bias_dtype, 3)
    ours = DEQUANTIZE.run(problem, **operands)["output"]
    y = as_torch(operands["input"]).float() * as_torch(operands["scale"])[:, None]
    y = y * as_torch(operands["column_scale"])
    if bias_dtype:
        y = y + as_torch(operands["bias"]).float()
    assert same_bits(ours, from_torch(y.to(getattr(torch, output_dtype))))


@pytest.mark.parametrize("dtype", EVERY_FLOAT)
def test_torch_dequantize_gradient(dtype: str) -> None:
    """`dy * s` of torch's own product, rounded to the gradient's type."""
    problem = DequantizeBackwardProblem((40, 70), ("token",), output_dtype=dtype)
    operands = given(problem, 2)
    ours = DEQUANTIZE_BACKWARD.run(problem, **operands)["grad_input"]
    wide = torch.float64 if dtype == "float64" else torch.float32
    codes = torch.zeros(problem.shape, dtype=wide, requires_grad=True)
    (codes * as_torch(operands["scale"])[:, None]).backward(
        as_torch(operands["grad_output"]).to(wide)
    )
    assert codes.grad is not None
    assert same_bits(ours, from_torch(codes.grad.to(getattr(torch, dtype))))


@pytest.mark.parametrize("output_dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_fp8_gradient(output_dtype: str) -> None:
    """DIVIDE: torch's clamp passes the gradient at both bounds, its division divides it."""
    limit = FLOATS[output_dtype].largest
    problem = QuantizeBackwardProblem((40, 70), ("token",), output_dtype=output_dtype)
    operands = given(problem, 11)
    ours = QUANTIZE_BACKWARD.run(problem, **operands)["grad_input"]
    x = as_torch(operands["input"]).requires_grad_()
    t = x / as_torch(operands["scale"])[:, None]
    t.clamp(-limit, limit).backward(as_torch(operands["grad_output"]))
    assert x.grad is not None
    assert np.array_equal(ours, x.grad.numpy())
    assert (t.abs() == limit).any()
    assert 0 < np.count_nonzero(ours) < ours.size


@pytest.mark.parametrize("scope", TORCH_SCOPES, ids=str)
def test_torch_fake_quantize_is_quantize_and_dequantize(scope: ScopeSpec) -> None:
    """One peer against two operators: the codes in between are those of torch."""
    problem = QuantizeProblem(SHAPE, scope, mode="asymmetric", quotient="reciprocal")
    operands = given(problem, 12)
    codes = QUANTIZE.run(problem, **operands)["output"]
    back = DequantizeProblem(SHAPE, scope, mode="asymmetric")
    parameters = {name: operands[name] for name in ("scale", "zero_point")}
    ours = DEQUANTIZE.run(back, input=codes, **parameters)["output"]
    faked = replace(FakeQuantizeProblem(SHAPE, scope), mode="asymmetric")
    theirs = torch_fake_quantize(faked, as_torch(operands["input"]), operands)
    assert same_bits(ours, from_torch(theirs))
