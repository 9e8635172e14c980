"""Layers in the formats of other programs, made from codes by each format's description.

Nothing here calls planq, and nothing is shared with its decoders: codes are put into words bit by
bit, and the weight is the formula of the description on the codes that were drawn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from cli.files import checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Array = npt.NDArray[Any]
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass
class Made:
    """A model of one layer, and what its weight is.

    Attributes:
        tensors: The tensors of its file.
        config: What ``quantization_config`` says; None without a config.
        weight: The weight in float32.
        name: The layer.
    """

    tensors: dict[str, Array]
    config: dict[str, Any] | None
    weight: Array
    name: str = "model.q_proj"
    bias: Array | None = field(default=None)

    def save(self, folder: Path) -> Path:
        """Writes the folder of the model."""
        return model(folder, self.tensors, self.config)


def model(folder: Path, tensors: Mapping[str, Array], config: object) -> Path:
    """Writes a folder with one file."""
    folder.mkdir(exist_ok=True)
    checkpoint(folder / "model.safetensors", {"model.norm.weight": ONES, **tensors})
    if config is not None:
        text = json.dumps({"model_type": "llama", "quantization_config": config})
        (folder / "config.json").write_text(text)
    return folder


ONES = np.ones(4, np.float32)


def write_shards(folder: Path, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Writes files with an index of all their tensors."""
    places = {}
    for name, tensors in files.items():
        checkpoint(folder / name, tensors)
        places |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def words(codes: Array, bits: int, order: tuple[int, ...] = ()) -> Array:
    """Packs codes along the last axis, each at the place that the order says, low bits first."""
    count = 32 // bits
    spare = -codes.shape[-1] % count
    padded = np.pad(codes.astype(np.uint64), ((0, 0), (0, spare)))
    packed = np.zeros((len(codes), padded.shape[1] // count), np.uint64)
    for place, column in enumerate(order or range(count)):
        packed |= padded[:, column::count] << np.uint64(bits * place)
    return packed.astype(np.uint32).view(np.int32)


def grouped(codes: Array, zeros: Array, scales: Array, size: int) -> Array:
    """``fl(scale * (code - zero_point))``, with codes (n, k) and parameters (n, groups)."""
    columns = np.arange(codes.shape[1]) // size
    numbers = (codes.astype(np.int64) - zeros.astype(np.int64)[:, columns]).astype(np.float32)
    return scales.astype(np.float32)[:, columns] * numbers


def draw(
    n: int, k: int, size: int, bits: int = 4, lowest: int = 0, dtype: Any = np.float16
) -> tuple[Array, Array, Array]:
    """Codes, zero points and scales of groups; every code is among them."""
    random = np.random.default_rng(0)
    groups = -(-k // size)
    codes = random.integers(0, 2**bits, (n, k))
    codes.reshape(-1)[: 2**bits] = np.arange(2**bits)[: codes.size]
    zeros = random.integers(lowest, 2**bits, (n, groups))
    scales = (random.random((n, groups)) + 0.25).astype(np.dtype(dtype))
    return codes, zeros, scales


def gptq(
    n: int = 32,
    k: int = 256,
    size: int = 128,
    bits: int = 4,
    version: str = "gptq",
    dtype: Any = np.float16,
    **more: Any,
) -> Made:
    """GPTQ: words of ``qweight`` run along k, words of ``qzeros`` along n."""
    codes, zeros, scales = draw(n, k, size, bits, lowest=1, dtype=dtype)
    less = 1 if version == "gptq" else 0
    name = "model.q_proj"
    tensors = {
        f"{name}.qweight": np.ascontiguousarray(words(codes, bits).T),
        f"{name}.qzeros": words(zeros.T - less, bits),
        f"{name}.scales": np.ascontiguousarray(scales.T),
        f"{name}.g_idx": (np.arange(k) // size).astype(np.int32),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": size if size < k else -1}
    config |= {"checkpoint_format": version, "desc_act": False, "sym": False, **more}
    return Made(tensors, config, grouped(codes, zeros, scales, size))


def awq(n: int = 32, k: int = 256, size: int = 64, dtype: Any = np.float16, **more: Any) -> Made:
    """AWQ: all words run along n, in the order of its kernels."""
    codes, zeros, scales = draw(n, k, size, dtype=dtype)
    order, name = (0, 2, 4, 6, 1, 3, 5, 7), "model.q_proj"
    tensors = {
        f"{name}.qweight": words(np.ascontiguousarray(codes.T), 4, order),
        f"{name}.qzeros": words(zeros.T, 4, order),
        f"{name}.scales": np.ascontiguousarray(scales.T),
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": size if size < k else -1}
    config |= {"version": "gemm", "zero_point": True, **more}
    return Made(tensors, config, grouped(codes, zeros, scales, size))


def scheme(**weights: Any) -> dict[str, Any]:
    """A config of compressed-tensors for weights alone."""
    form = weights.pop("format", "pack-quantized")
    activations = weights.pop("input_activations", None)
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"type": "int", "symmetric": True, **weights},
                "input_activations": activations,
            }
        },
    }


def packed(
    n: int = 24,
    k: int = 256,
    size: int | None = 128,
    bits: int = 4,
    symmetric: bool = True,
    dtype: Any = ml_dtypes.bfloat16,
) -> Made:
    """compressed-tensors: words run along k, those of zero points along n; an offset on both."""
    codes, zeros, scales = draw(n, k, size or k, bits, dtype=dtype)
    offset, name = 2 ** (bits - 1), "model.q_proj"
    if symmetric:
        zeros = np.full_like(zeros, offset)
    tensors = {
        f"{name}.weight_packed": words(codes, bits),
        f"{name}.weight_scale": scales,
        f"{name}.weight_shape": np.array([n, k]),
    }
    if not symmetric:
        zero_words = np.ascontiguousarray(words(zeros.T, bits).T)
        tensors[f"{name}.weight_zero_point"] = zero_words
    strategy = {"strategy": "group", "group_size": size} if size else {"strategy": "channel"}
    config = scheme(num_bits=bits, symmetric=symmetric, **strategy)
    return Made(tensors, config, grouped(codes, zeros, scales, size or k))


def unpacked(
    n: int = 200,
    k: int = 300,
    code: Any = np.int8,
    scales: str = "channel",
    dtype: Any = ml_dtypes.bfloat16,
    suffix: str = "weight_scale",
) -> Made:
    """Codes of 8 bits, one a byte, with scales of rows, of the tensor, or of 128 x 128 blocks."""
    random = np.random.default_rng(3)
    name = "model.q_proj"
    shape = {"channel": (n, 1), "tensor": (1,), "block": (-(-n // 128), -(-k // 128))}[scales]
    stored = (random.random(shape) + 0.25).astype(np.dtype(dtype))
    numbers = random.integers(-127, 128, (n, k)).astype(np.float32)
    codes = numbers.astype(code)
    tensors = {f"{name}.weight": codes, f"{name}.{suffix}": stored}
    wide = stored.astype(np.float32)
    if scales == "block":
        wide = np.repeat(np.repeat(wide, 128, axis=0)[:n], 128, axis=1)[:, :k]
    if suffix == "weight_scale_inv":
        config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    else:
        kind = "int" if code is np.int8 else "float"
        config = scheme(num_bits=8, type=kind, strategy=scales, format=f"{kind}-quantized")
        if scales == "block":
            weights = config["config_groups"]["group_0"]["weights"]
            weights["block_structure"] = [128, 128]
    return Made(tensors, config, wide * codes.astype(np.float32))


def rows_of_bitsandbytes(n: int = 24, k: int = 100) -> Made:
    """int8 rows and the largest magnitude of each, 127 times its scale."""
    random = np.random.default_rng(4)
    codes = random.integers(-127, 128, (n, k)).astype(np.int8)
    largest = (random.random(n) + 0.25).astype(np.float32)
    name = "model.q_proj"
    tensors = {
        f"{name}.weight": codes,
        f"{name}.SCB": largest,
        f"{name}.weight_format": np.array(0, np.uint8),
    }
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    scale = largest / np.float32(127)
    return Made(tensors, config, scale[:, None] * codes.astype(np.float32))


def fp4_values(codes: Array) -> Array:
    """The values of e2m1: a sign above three bits of magnitude."""
    magnitude = np.array(FP4, np.float32)[codes & 7]
    return np.where(codes & 8, -magnitude, magnitude).astype(np.float32)


def two_a_byte(codes: Array) -> Array:
    """Two codes a byte along the last axis, the first in the low nibble."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def float4(
    n: int = 16, k: int = 128, size: int = 32, e8m0: Any = np.uint8, extremes: bool = False
) -> Made:
    """MXFP4 (blocks of 32) or NVFP4 (blocks of 16) of compressed-tensors."""
    random = np.random.default_rng(1)
    codes = random.integers(0, 16, (n, k))
    name = "model.q_proj"
    tensors = {f"{name}.weight_packed": two_a_byte(codes)}
    if size == 32:
        exponents = random.integers(110, 135, (n, k // 32)).astype(np.uint8)
        if extremes:
            exponents[0, :3] = (0, 1, 254)
        tensors[f"{name}.weight_scale"] = exponents.view(e8m0)
        with np.errstate(over="ignore"):
            scales = (2.0 ** (exponents.astype(np.float64) - 127)).astype(np.float32)
    else:
        stored = (random.random((n, k // 16)) * 400).astype(ml_dtypes.float8_e4m3fn)
        stored[0, :2] = (2.0**-9, 448)
        overall = np.array([np.float32(1234.567)])
        tensors |= {f"{name}.weight_scale": stored, f"{name}.weight_global_scale": overall}
        scales = stored.astype(np.float32) * (np.float32(1) / overall)
    form = "mxfp4-pack-quantized" if size == 32 else "nvfp4-pack-quantized"
    config = scheme(num_bits=4, type="float", strategy="group", group_size=size, format=form)
    with np.errstate(over="ignore"):
        weight = fp4_values(codes) * np.repeat(scales, size, axis=1)
    return Made(tensors, config, weight)


def gpt_oss(experts: int = 3, n: int = 8, k: int = 96) -> tuple[Made, list[Array]]:
    """gpt-oss: blocks and scales of all experts in one tensor each; the weight of each expert."""
    random = np.random.default_rng(2)
    codes = random.integers(0, 16, (experts, n, k))
    exponents = random.integers(115, 130, (experts, n, k // 32)).astype(np.uint8)
    bias = random.standard_normal((experts, n)).astype(ml_dtypes.bfloat16)
    name = "model.layers.0.mlp.experts.down_proj"
    tensors = {
        f"{name}_blocks": two_a_byte(codes).reshape(experts, n, k // 32, 16),
        f"{name}_scales": exponents,
        f"{name}_bias": bias,
    }
    scales = np.exp2(exponents.astype(np.float32) - 127)
    weights = fp4_values(codes) * np.repeat(scales, 32, axis=2)
    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    return Made(tensors, config, weights, name, bias), list(weights)
