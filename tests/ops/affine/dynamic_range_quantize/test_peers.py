"""Other libraries' quantizers give planq's bits, under the Quotient that each of them implies.

=====================================  ==========  =================================================
peer                                   Quotient    where the peer divides
=====================================  ==========  =================================================
torch MinMaxObserver                   (scale)     `fl((max - min) / n)`, `q_min - rne(fl(min / s))`
torch fake_quantize_per_*_affine       RECIPROCAL  `rne(fl(x * fl(1 / s))) + zero_point`
torchao quantize_affine                RECIPROCAL  `round(x * (1.0 / scale)) + zero_point`
ONNX DynamicQuantizeLinear             DIVIDE      `rint(x / y_scale) + zero_point`
bitsandbytes int8_vectorwise_quant     RATIO       `round(A * (127.0 / row_stats))`
vLLM dynamic int8 per token            RATIO       `rint(x * (127 / absmax))`, scale `absmax / 127`
vLLM and torch fp8 per token           DIVIDE      cast of `x / scale`, scale `absmax / 448`
ml_dtypes casts to fp8                 DIVIDE      scale 1, the cast alone
compressed-tensors calculate_qparams   (scale)     `fl(max|x| / ((q_max - q_min) / 2))`
compressed-tensors quantize            DIVIDE      `round(clamp(x / scale))`
gguf Q8_0, Q4_0                        RECIPROCAL  `x * (1 / d)`, `x * (1 / d) + 8.5`
=====================================  ==========  =================================================
"""

from __future__ import annotations

import importlib
import logging
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.ao.quantization.observer import MinMaxObserver, PerChannelMinMaxObserver

from planq.audit.ops.affine.cases import FLOAT8
from planq.audit.ops.affine.dynamic_range_quantize.adapter import quantize
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem
from planq.audit.reference import inputs
from planq.audit.reference.formats import FLOATS, Array, bits, unpack_nibbles

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import bitsandbytes as bnb
    import gguf
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.lifecycle.forward import quantize as ct_quantize
    from compressed_tensors.quantization.utils.helpers import calculate_qparams
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    torchao: Any = importlib.import_module("torchao.quantization.quant_primitives")

    logging.disable(logging.NOTSET)

F32 = np.float32
TINY = float(np.finfo(F32).smallest_normal)
KINDS = ["normal", "ties", "offset", "finite"]


def values(kind: str, shape: tuple[int, ...], seed: int = 5) -> Array:
    """float32 rows that no peer overflows on, without a zero row, which some peers divide by."""
    x = np.clip(inputs.make(kind, shape, "float32", seed), F32(-1e38), F32(1e38))
    x[..., 0] = np.where(x[..., 0] == 0, F32(1), x[..., 0])
    return x


@pytest.mark.parametrize("kind", KINDS)
def test_torch_per_tensor_observer_chooses_the_same_parameters(kind: str) -> None:
    """Asymmetric uint8 with zero in the range; torch's smallest scale is set to planq's."""
    for seed in range(20):
        x = values(kind, (37, 21), seed)
        observer = MinMaxObserver(
            torch.quint8, torch.per_tensor_affine, quant_min=0, quant_max=255, eps=TINY
        )
        observer(torch.from_numpy(x))
        scale, zero_point = observer.calculate_qparams()
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", scope=("tensor",))
        ours = quantize(problem, x)
        assert np.array_equal(ours["scale"], scale.numpy())
        assert np.array_equal(ours["zero_point"], zero_point.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_torch_per_channel_observer_chooses_the_same_symmetric_scales(kind: str) -> None:
    """torch divides by half the width of the code range: 127 for -127 ... 127."""
    x = values(kind, (64, 300))
    observer = PerChannelMinMaxObserver(
        0, torch.qint8, torch.per_channel_symmetric, quant_min=-127, quant_max=127, eps=TINY
    )
    observer(torch.from_numpy(x))
    scale, _ = observer.calculate_qparams()
    ours = quantize(Problem(x.shape, scope=("channel", 0)), x)
    assert np.array_equal(ours["scale"], scale.numpy())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_torch_fake_quantize_per_channel(kind: str, axis: int) -> None:
    """Given planq's scales, torch's fake quantize is planq's codes, dequantized. RECIPROCAL."""
    x = values(kind, (12, 30, 17))
    problem = Problem(
        x.shape,
        output_dtype="int8",
        mode="asymmetric",
        scope=("channel", axis),
        quotient="reciprocal",
    )
    ours = quantize(problem, x)
    torch_values = torch.fake_quantize_per_channel_affine(
        torch.from_numpy(x),
        torch.from_numpy(ours["scale"]),
        torch.from_numpy(ours["zero_point"]),
        axis,
        -128,
        127,
    )
    along = [-1 if a == axis else 1 for a in range(3)]
    steps = ours["output"].astype(np.int32) - ours["zero_point"].reshape(along)
    dequantized = steps.astype(F32) * ours["scale"].reshape(along)
    assert np.array_equal(bits(dequantized), bits(torch_values.numpy()))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_fake_quantize_per_tensor(kind: str) -> None:
    """Symmetric int8 over the whole tensor. RECIPROCAL."""
    x = values(kind, (50, 40))
    ours = quantize(Problem(x.shape, scope=("tensor",), quotient="reciprocal"), x)
    torch_values = torch.fake_quantize_per_tensor_affine(
        torch.from_numpy(x), float(ours["scale"][0]), 0, -127, 127
    )
    dequantized = ours["output"].astype(F32) * ours["scale"][0]
    assert np.array_equal(bits(dequantized), bits(torch_values.numpy()))


def torchao_quantize(
    x: Array, mapping: Any, block: tuple[int, ...], low: int, high: int
) -> tuple[Array, Array, Array]:
    """torchao's codes, scales and zero points, parameters in float32 and int32."""
    tensor = torch.from_numpy(x)
    scale, zero_point = torchao.choose_qparams_affine(
        tensor, mapping, block, torch.int32, low, high, TINY, torch.float32, torch.int32
    )
    codes = torchao.quantize_affine(tensor, block, scale, zero_point, torch.int32, low, high)
    return codes.numpy(), scale.numpy(), zero_point.numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_torchao_symmetric_int8_per_token(kind: str) -> None:
    """MappingType.SYMMETRIC with -127 ... 127. RECIPROCAL."""
    x = values(kind, (50, 333))
    codes, scale, _ = torchao_quantize(x, torchao.MappingType.SYMMETRIC, (1, 333), -127, 127)
    ours = quantize(Problem(x.shape, quotient="reciprocal"), x)
    assert np.array_equal(ours["scale"], scale.reshape(-1))
    assert np.array_equal(ours["output"], codes)


@pytest.mark.parametrize("kind", KINDS)
def test_torchao_asymmetric_uint4_per_group(kind: str) -> None:
    """Groups of 128 along the last axis, as for weight-only int4. RECIPROCAL."""
    x = values(kind, (24, 512))
    codes, scale, zero_point = torchao_quantize(x, torchao.MappingType.ASYMMETRIC, (1, 128), 0, 15)
    problem = Problem(
        x.shape,
        output_dtype="uint4",
        mode="asymmetric",
        scope=("group", 128, -1),
        quotient="reciprocal",
    )
    ours = quantize(problem, x)
    assert np.array_equal(ours["scale"], scale.reshape(24, 4))
    assert np.array_equal(ours["zero_point"], zero_point.reshape(24, 4))
    assert np.array_equal(unpack_nibbles(ours["output"], 512, "low_first"), codes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [(128, 128), (1, 64), (4, 32)])
def test_torchao_symmetric_int8_per_block(kind: str, block: tuple[int, int]) -> None:
    """Tiles of a weight. RECIPROCAL."""
    x = values(kind, (256, 384))
    x[:, ::32] = np.where(x[:, ::32] == 0, F32(1), x[:, ::32])
    codes, scale, _ = torchao_quantize(x, torchao.MappingType.SYMMETRIC, block, -127, 127)
    ours = quantize(Problem(x.shape, scope=("block", *block), quotient="reciprocal"), x)
    assert np.array_equal(ours["scale"], scale.reshape(256 // block[0], 384 // block[1]))
    assert np.array_equal(ours["output"], codes)


@pytest.mark.parametrize("kind", KINDS)
def test_block_scaled_fp8_weights(kind: str) -> None:
    """DeepSeek's formula with torch's cast: 128 x 128 tiles, `x / (absmax / 448)`. DIVIDE."""
    x = torch.from_numpy(values(kind, (256, 384)))
    tiles = x.reshape(2, 128, 3, 128)
    scale = (tiles.abs().amax(dim=(1, 3), keepdim=True) / 448).clamp(min=TINY)
    codes = (tiles / scale).to(torch.float8_e4m3fn).view(torch.uint8).reshape(x.shape)
    problem = Problem(tuple(x.shape), output_dtype="float8_e4m3fn", scope=("block", 128, 128))
    ours = quantize(problem, x.numpy())
    assert np.array_equal(ours["scale"], scale.reshape(2, 3).numpy())
    assert np.array_equal(ours["output"], codes.numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_torchao_asymmetric_int8_per_tensor(kind: str) -> None:
    """One block as large as the tensor. RECIPROCAL."""
    x = values(kind, (24, 100))
    codes, scale, zero_point = torchao_quantize(
        x, torchao.MappingType.ASYMMETRIC, (24, 100), -128, 127
    )
    problem = Problem(
        x.shape, output_dtype="int8", mode="asymmetric", scope=("tensor",), quotient="reciprocal"
    )
    ours = quantize(problem, x)
    assert np.array_equal(ours["scale"], scale.reshape(-1))
    assert np.array_equal(ours["zero_point"], zero_point.reshape(-1))
    assert np.array_equal(ours["output"], codes)


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_dynamic_quantize_linear(kind: str) -> None:
    """ONNX's own reference evaluator: asymmetric uint8 over the tensor. DIVIDE."""
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "y_scale", "y_zero_point"])
    shape = [None, None]
    graph = helper.make_graph(
        [node],
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info("y", TensorProto.UINT8, shape),
            helper.make_tensor_value_info("y_scale", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("y_zero_point", TensorProto.UINT8, []),
        ],
    )
    evaluator = ReferenceEvaluator(helper.make_model(graph))
    for seed in range(20):
        x = values(kind, (31, 45), seed)
        codes, scale, zero_point = evaluator.run(None, {"x": x})
        problem = Problem(x.shape, output_dtype="uint8", mode="asymmetric", scope=("tensor",))
        ours = quantize(problem, x)
        assert ours["scale"].tolist() == [scale]
        assert ours["zero_point"].tolist() == [zero_point]
        assert np.array_equal(ours["output"], codes)


def test_bitsandbytes_int8_vectorwise_quant() -> None:
    """The CPU row quantizer. RATIO, on the rows where its 127 / absmax is the IEEE quotient.

    torch computes `127.0 / tensor` as `127 * fl(1 / absmax)`, another number for a quarter of
    all row maxima; those rows are left out, because no Quotient of planq rounds twice.
    """
    x = inputs.make("normal", (3000, 96), "float16", 9)
    M = np.abs(x).max(axis=1).astype(F32)
    same = F32(127) * (F32(1) / M) == F32(127) / M
    assert same.mean() > 0.5
    x, M = x[same], M[same]
    codes, row_stats, _ = bnb.functional.int8_vectorwise_quant(torch.from_numpy(x))
    ours = quantize(Problem(x.shape, "float16", quotient="ratio"), x)
    assert np.array_equal(ours["output"], codes.numpy())
    assert np.array_equal(ours["scale"], row_stats.numpy() / F32(127))


@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16", "float32"])
def test_vllm_dynamic_int8_per_token(input_dtype: str) -> None:
    """vLLM's formula in NumPy: one ratio a token, multiplied. RATIO."""
    x = inputs.make("normal", (300, 256), input_dtype, 3)
    wide = x.astype(F32)
    absmax = np.abs(wide).max(axis=1, keepdims=True)
    codes = np.rint(wide * (F32(127) / absmax)).astype(np.int8)
    ours = quantize(Problem(x.shape, input_dtype, quotient="ratio"), x)
    assert np.array_equal(ours["output"], codes)
    assert np.array_equal(ours["scale"], (absmax / F32(127))[:, 0])


@pytest.mark.parametrize("output_dtype", FLOAT8)
@pytest.mark.parametrize("kind", KINDS)
def test_torch_fp8_casts_per_token(kind: str, output_dtype: str) -> None:
    """vLLM's fp8 formula with torch's cast: `(x / (absmax / fp8_max)).clamp().to(fp8)`. DIVIDE."""
    x = torch.from_numpy(values(kind, (60, 210)))
    dtype = getattr(torch, output_dtype)
    limit = FLOATS[output_dtype].largest
    scale = (x.abs().amax(dim=1, keepdim=True) / limit).clamp(min=TINY)
    codes = (x / scale).clamp(-limit, limit).to(dtype).view(torch.uint8)
    ours = quantize(Problem(tuple(x.shape), output_dtype=output_dtype), x.numpy())
    assert np.array_equal(ours["scale"], scale[:, 0].numpy())
    assert np.array_equal(ours["output"], codes.numpy())


@pytest.mark.parametrize("output_dtype", FLOAT8)
@pytest.mark.parametrize("input_dtype", ["float16", "bfloat16", "float32"])
def test_ml_dtypes_casts(input_dtype: str, output_dtype: str) -> None:
    """Rows with the format's maximum have scale 1: codes are ml_dtypes' casts, at all exponents."""
    fp8 = np.dtype(getattr(ml_dtypes, output_dtype))
    limit = F32(FLOATS[output_dtype].largest)
    x = inputs.make("patterns", (64, 2048), input_dtype, 1)
    x = np.where(np.abs(x.astype(F32)) <= limit, x, np.zeros_like(x))
    x[:, 0] = limit
    ours = quantize(Problem(x.shape, input_dtype, output_dtype), x)
    assert (ours["scale"] == 1).all()
    assert np.array_equal(ours["output"], x.astype(F32).astype(fp8).view(np.uint8))


@pytest.mark.parametrize("output_dtype", FLOAT8)
def test_ml_dtypes_decodes_every_code(output_dtype: str) -> None:
    """Every finite fp8 number, quantized with scale 1, is its own code."""
    fp8 = np.dtype(getattr(ml_dtypes, output_dtype))
    codes = np.arange(256, dtype=np.uint8).view(fp8)
    codes = codes[np.isfinite(codes)].reshape(1, -1)
    ours = quantize(Problem(codes.shape, output_dtype=output_dtype), codes.astype(F32))
    assert ours["scale"].tolist() == [1]
    assert np.array_equal(ours["output"], codes.view(np.uint8))


COMPRESSED: dict[str, tuple[dict[str, Any], Any]] = {
    "token": ({"strategy": "channel"}, ("token",)),
    "tensor": ({"strategy": "tensor"}, ("tensor",)),
    "group": ({"strategy": "group", "group_size": 128}, ("group", 128, -1)),
    "block": ({"strategy": "block", "block_structure": [128, 128]}, ("block", 128, 128)),
}
COMPRESSED_CODES = {"int8": (8, "int"), "int4": (4, "int"), "float8_e4m3fn": (8, "float")}


def compressed(x: torch.Tensor, scope: str, output_dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """compressed-tensors' scale and codes: the codes of 16-bit tensors by a float32 quotient."""
    bits, kind = COMPRESSED_CODES[output_dtype]
    fields, _ = COMPRESSED[scope]
    args = QuantizationArgs(num_bits=bits, type=kind, symmetric=True, **fields)
    rows, columns = x.shape
    if scope == "block":
        pieces = x.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
        low, high = pieces.amin(dim=(1, 3)), pieces.amax(dim=(1, 3))
    elif scope == "group":
        pieces = x.unflatten(1, (-1, 128))
        low, high = pieces.amin(dim=-1), pieces.amax(dim=-1)
    else:
        dims = (0, 1) if scope == "tensor" else (1,)
        low, high = x.amin(dim=dims, keepdim=True), x.amax(dim=dims, keepdim=True)
    scale, _ = calculate_qparams(low, high, args)
    dtype = torch.float8_e4m3fn if kind == "float" else torch.int8
    codes = ct_quantize(x.float(), scale.float(), None, args, dtype=dtype)
    assert codes.shape == (rows, columns)
    return scale, codes


@pytest.mark.parametrize("output_dtype", COMPRESSED_CODES)
@pytest.mark.parametrize("scope", COMPRESSED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_compressed_tensors_gives_the_same_scales_and_codes(
    dtype: str, scope: str, output_dtype: str
) -> None:
    """Also in zero segments, and in float16 where the scale is subnormal."""
    for kind in KINDS:
        x = values(kind, (256, 384))
        x *= F32(2.0**-8) if dtype == "float16" else F32(1)
        x[128:, 128:] = 0
        tensor = torch.from_numpy(x).clamp(-1000, 1000).to(getattr(torch, dtype))
        scale, codes = compressed(tensor, scope, output_dtype)
        problem = Problem(
            x.shape, dtype, output_dtype, COMPRESSED[scope][1], convention="compressed_tensors"
        )
        native = tensor.numpy() if dtype != "bfloat16" else tensor.view(torch.int16).numpy()
        if dtype == "bfloat16":
            native = native.view(ml_dtypes.bfloat16)
        ours = quantize(problem, native)
        assert np.array_equal(bits(ours["scale"]).ravel(), scale.view(BITS[dtype]).numpy().ravel())
        if output_dtype == "int4":
            ours["output"] = signed(unpack_nibbles(ours["output"], x.shape[1], "low_first"))
        assert np.array_equal(ours["output"].view("i1"), codes.view(torch.int8).numpy()), kind


def signed(nibbles: Array) -> Array:
    """4-bit codes as int8."""
    return ((nibbles.astype(np.int8) ^ 8) - 8).astype(np.int8)


BITS = {"float32": torch.uint32, "float16": torch.uint16, "bfloat16": torch.uint16}


@pytest.mark.parametrize("output_dtype", ["int8", "int4"])
@pytest.mark.parametrize("kind", ["normal", "ties", "offset", "constant", "zeros"])
def test_gguf_gives_the_same_blocks(kind: str, output_dtype: str) -> None:
    """Q8_0 and Q4_0 of the gguf package, byte for byte, once the codes lie as in its blocks."""
    eight = output_dtype == "int8"
    form = gguf.GGMLQuantizationType.Q8_0 if eight else gguf.GGMLQuantizationType.Q4_0
    for seed in range(10):
        x = inputs.make(kind, (9, 256), "float32", seed)
        expected = gguf.quants.quantize(x, form).reshape(9, 8, -1)
        problem = Problem(
            x.shape,
            output_dtype=output_dtype,
            scope=("group", 32, -1),
            quotient="reciprocal",
            convention="ggml",
        )
        ours = quantize(problem, x)
        assert np.array_equal(ours["scale"].view("u1").reshape(9, 8, 2), expected[..., :2])
        codes = ours["output"]
        if not eight:
            codes = signed(unpack_nibbles(codes, 256, "low_first"))
        codes = codes.view("i1").reshape(9, 8, 32)
        if eight:
            assert np.array_equal(codes, expected[..., 2:].view("i1"))
        else:
            both = np.concatenate([expected[..., 2:] & 15, expected[..., 2:] >> 4], axis=-1)
            assert np.array_equal(codes.astype(int) + 8, both)
