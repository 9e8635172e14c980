"""Layers that the packages of the formats stored themselves, and their own way back.

compressed-tensors and bitsandbytes quantize weights and store them; planq's operands give the bits
of what the packages make of the same tensors. Of gpt-oss, transformers has the way back.
"""

from __future__ import annotations

import json
import logging
import warnings
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import planq
from checkpoint import peers
from checkpoint.peers import Array
from checkpoint.test_peer_layers import check_operands, check_products, same_bits, weight_of
from cli.files import checkpoint, load, weight
from planq.checkpoint import StoredAs, read_layers
from planq.cli import main

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    from bitsandbytes import functional
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from safetensors.torch import save_file
    from transformers.integrations.mxfp4 import _convert_moe_packed_tensors

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")

NAME = "model.q_proj"


def values(n: int = 24, k: int = 256) -> torch.Tensor:
    """A floating weight."""
    return torch.from_numpy(weight(n, k))


def save(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any] | None) -> Path:
    """Writes a folder by the library of the format of files."""
    folder.mkdir()
    named = {f"{NAME}.{key}": tensor.contiguous() for key, tensor in tensors.items()}
    save_file(named, folder / "model.safetensors", {"format": "pt"})
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return folder


def parameters(
    floating: torch.Tensor, bits: int, size: int, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points of the groups of a weight; zero points are stored signed."""
    grouped = floating.unflatten(1, (-1, size))
    if symmetric:
        scale = grouped.abs().amax(-1) / (2 ** (bits - 1) - 0.5)
        return scale, torch.zeros_like(scale).to(torch.int8)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    return scale, (-(2 ** (bits - 1)) - low / scale).round().to(torch.int8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("size", [None, 64])
def test_compressed_tensors_packs_integers(
    tmp_path: Path, bits: int, symmetric: bool, size: int | None
) -> None:
    floating = values(n=21)
    scale, zero_point = parameters(floating, bits, size or 256, symmetric)
    strategy = {"strategy": "group", "group_size": size} if size else {"strategy": "channel"}
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, **strategy}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    made = {"weight": floating, "weight_scale": scale, "weight_zero_point": zero_point}
    stored = compressor.compress(made, scheme)
    theirs = compressor.decompress(stored, scheme)["weight"].numpy()
    config = peers.scheme(**weights)
    with read_layers(save(tmp_path / "model", stored, config)) as layers:
        layer = layers[NAME]
        assert layer.stored_as is StoredAs.PACK_QUANTIZED
        check_operands(layer)
        assert same_bits(weight_of(layer), theirs)
        check_products(layer, theirs)
        layers.check()


@pytest.mark.parametrize("form", ["mxfp4-pack-quantized", "nvfp4-pack-quantized"])
def test_compressed_tensors_packs_floats_of_4_bits(tmp_path: Path, form: str) -> None:
    """Its way back is in bfloat16: the same product, rounded once.

    Scales of NVFP4 are quotients there, and products with an inverse here. That may turn a tie.
    """
    floating = values()
    size = 32 if form.startswith("mx") else 16
    weights: dict[str, Any] = {"num_bits": 4, "type": "float", "symmetric": True}
    weights |= {"strategy": "group" if size == 32 else "tensor_group", "group_size": size}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    compressor = BaseCompressor.get_value_from_registry(form)
    largest = floating.unflatten(1, (-1, size)).abs().amax(-1)
    made = {"weight": floating}
    if size == 32:
        made["weight_scale"] = torch.exp2(torch.floor(torch.log2(largest)) - 2)
    else:
        overall = (448 * 6 / floating.abs().amax()).reshape(1)
        made["weight_scale"] = (largest / 6 * overall).to(torch.float8_e4m3fn).float()
        made["weight_global_scale"] = overall
    stored = compressor.compress(made, scheme)
    theirs = compressor.decompress(stored, scheme)["weight"]
    assert theirs.dtype is torch.bfloat16
    config = peers.scheme(format=form, **weights)
    with read_layers(save(tmp_path / "model", stored, config)) as layers:
        layer = layers[NAME]
        assert layer.stored_as.value == form
        check_operands(layer)
        ours = weight_of(layer)
        rounded = ours.astype(ml_dtypes.bfloat16).astype(np.float32)
        unequal = rounded != theirs.float().numpy()
        assert unequal.mean() <= (0 if size == 32 else 0.01)
        assert np.allclose(ours, theirs.float().numpy(), rtol=2.0**-8 * 1.001, atol=0)
        check_products(layer, ours)


@pytest.mark.parametrize(
    ("form", "strategy"),
    [
        ("int-quantized", "channel"),
        ("int-quantized", "tensor"),
        ("float-quantized", "channel"),
        ("float-quantized", "tensor"),
        ("float-quantized", "block"),
    ],
)
def test_compressed_tensors_stores_codes_of_a_byte(
    tmp_path: Path, form: str, strategy: str
) -> None:
    """Its way back is in the type of the scales, which is float32 here: the same product."""
    floating = values(n=256)
    kind = form.partition("-")[0]
    weights: dict[str, Any] = {"num_bits": 8, "type": kind, "symmetric": True, "strategy": strategy}
    weights |= {"block_structure": [128, 128]} if strategy == "block" else {}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    compressor = BaseCompressor.get_value_from_registry(form)
    tiles = floating.unflatten(1, (-1, 128)).unflatten(0, (-1, 128)).abs()
    largest = {
        "tensor": floating.abs().amax().reshape(1),
        "channel": floating.abs().amax(1, keepdim=True),
        "block": tiles.amax((1, 3)),
    }[strategy]
    scale = largest / (127.5 if kind == "int" else 448)
    stored = compressor.compress({"weight": floating, "weight_scale": scale}, scheme)
    theirs = compressor.decompress(stored, scheme)["weight"].numpy()
    config = peers.scheme(format=form, **weights)
    with read_layers(save(tmp_path / "model", stored, config)) as layers:
        layer = layers[NAME]
        assert layer.stored_as.value == form
        check_operands(layer)
        assert same_bits(weight_of(layer), theirs)
        check_products(layer, theirs)
        layers.check()


def test_bitsandbytes_stores_rows_of_int8(tmp_path: Path) -> None:
    """Its way back multiplies by 1 / 127, rounded, where a scale here is divided by 127."""
    codes, largest, _ = functional.int8_vectorwise_quant(values().half())
    theirs = functional.int8_vectorwise_dequant(codes, largest).numpy()
    tensors = {"weight": codes, "SCB": largest, "weight_format": torch.tensor(0).byte()}
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    folder = save(tmp_path / "model", tensors, config)
    with read_layers(folder, weights_only=True) as layers:
        layer = layers[NAME]
        assert layer.stored_as is StoredAs.BITSANDBYTES_INT8
        check_operands(layer)
        assert np.allclose(weight_of(layer), theirs, rtol=2.0**-22, atol=0)
        check_products(layer, theirs)
        layers.check()


def test_transformers_reads_the_blocks_of_gpt_oss(tmp_path: Path) -> None:
    made, _ = peers.gpt_oss()
    blocks, scales = (
        torch.from_numpy(made.tensors[made.name + key]) for key in ("_blocks", "_scales")
    )
    theirs = _convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    with read_layers(made.save(tmp_path / "model")) as layers:
        for layer, expert in zip(layers, theirs, strict=True):
            assert same_bits(weight_of(layer), expert.T.numpy())


@pytest.mark.parametrize("table", ["nf4", "fp4"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("storage", [torch.uint8, torch.bfloat16])
def test_bitsandbytes_stores_states(
    tmp_path: Path, table: str, nested: bool, storage: torch.dtype
) -> None:
    codes, state = functional.quantize_4bit(
        values(), blocksize=64, compress_statistics=nested, quant_type=table, quant_storage=storage
    )
    theirs = functional.dequantize_4bit(codes, state).numpy()
    tensors = {f"weight.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
    tensors |= {"weight": codes, "bias": torch.arange(24.0)}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    with read_layers(save(tmp_path / "model", tensors, config)) as layers:
        layer = layers[NAME]
        assert layer.stored_as is StoredAs.BITSANDBYTES
        check_operands(layer)
        ours = weight_of(layer)
        if nested:  # the sum of a product and the offset, which torch may fuse
            assert np.allclose(ours, theirs, rtol=2.0**-22, atol=0)
        else:
            assert same_bits(ours, theirs)
        check_products(layer, theirs, np.arange(24.0))
        layers.check()


def test_the_parts_of_a_state_may_be_in_two_files(tmp_path: Path) -> None:
    codes, state = functional.quantize_4bit(values(), blocksize=64, quant_type="nf4")
    named = {f"{NAME}.weight.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
    save_file({f"{NAME}.weight": codes}, tmp_path / "a.safetensors")
    save_file(named, tmp_path / "b.safetensors")
    with read_layers(tmp_path) as layers:
        ours = weight_of(layers[NAME])
    assert same_bits(ours, functional.dequantize_4bit(codes, state).numpy())


def test_a_table_of_its_own_is_given(tmp_path: Path) -> None:
    """Only with the bytes of NF4 it is the table that is compiled in.

    bitsandbytes itself has no other table of this name, and reads the file as if it had that.
    """
    codes, state = functional.quantize_4bit(values(), blocksize=64, quant_type="nf4")
    state.code = state.code * 0.5
    tensors = {f"weight.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
    with read_layers(save(tmp_path / "model", {"weight": codes, **tensors}, None)) as layers:
        desc: Any = layers[NAME].descriptor(1, "bfloat16")
        assert desc.codebook is planq.Codebook.GIVEN
        check_operands(layers[NAME])
        theirs = functional.dequantize_4bit(codes, state).numpy()
        assert same_bits(weight_of(layers[NAME]), theirs * np.float32(0.5))


@pytest.mark.parametrize(
    ("form", "scheme"),
    [
        ("compressed-tensors", "int8-channel"),
        ("compressed-tensors", "int8-tensor"),
        ("compressed-tensors", "int4-group128"),
        ("compressed-tensors", "uint4-group"),
        ("compressed-tensors", "fp8-channel"),
        ("compressed-tensors", "fp8-tensor"),
        ("compressed-tensors", "fp8-block128"),
        ("bitsandbytes", "nf4"),
        ("bitsandbytes", "fp4"),
    ],
)
def test_layers_that_planq_stored_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, scheme: str
) -> None:
    """As `planq dequantize` restores them."""
    source, target, back = (tmp_path / name for name in ("in.st", "out.st", "back.st"))
    checkpoint(source, {f"{NAME}.weight": weight(24, 256), "norm.weight": np.ones(4, np.float32)})
    command = ["quantize", str(source), str(target), "--format", form, "--scheme", scheme]
    assert main(command) == 0
    assert main(["dequantize", str(target), str(back)]) == 0
    capsys.readouterr()
    with read_layers(target) as layers:
        assert [layer.name for layer in layers] == [NAME]
        ours: Array = weight_of(layers[NAME])
        layers.check()
    assert same_bits(ours, load(back).tensors[f"{NAME}.weight"])
