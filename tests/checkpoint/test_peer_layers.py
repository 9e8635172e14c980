"""Layers that other programs stored are the numbers that their formats' descriptions say.

The weights are what planq's own operators make of the operands, compared bit for bit with the
formula on the codes that a file was made of. Each layer then multiplies, beside float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import planq
from checkpoint import peers
from checkpoint.peers import Array, Made
from planq.checkpoint import Layer, StoredAs, read_layers
from planq.executors import host_workspace
from support.docs import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run(desc: planq.Descriptor, args: Any, **extents: int) -> None:
    """Runs a plan on the host."""
    plan = planq.Plan.select(planq.HOST, desc)
    scratch, workspace = host_workspace(plan.workspace_size(**extents))
    plan.run(planq.HOST, workspace, args)
    del scratch


def weight_of(layer: Layer) -> Array:
    """What planq's dequantizing operators make of a layer's operands, in float32."""
    given = layer.operands()
    desc: Any = layer.descriptor(1, "float32")
    weight = np.empty(layer.shape, np.float32)
    if getattr(desc, "block_size", None) is not None:
        tables = {"nf4": planq.codebooks.nf4, "fp4": planq.codebooks.fp4}
        named = desc.codebook is not planq.Codebook.GIVEN
        table = tables[desc.codebook.value]() if named else given["codebook"]
        nested = {name: value for name, value in given.items() if name.startswith("nested")}
        codes = given["weight"]
        if desc.nibble_order is planq.NibbleOrder.LOW_FIRST:
            codes = (codes << 4) | (codes >> 4)
        run(
            planq.BlockwiseDequantizeDescriptor(
                shape=layer.shape,
                input_dtype="uint4",
                output_dtype="float32",
                entries=16,
                block_size=desc.block_size,
                nested_block_size=desc.nested_block_size,
                absmax_dtype="float32",
            ),
            planq.BlockwiseDequantizeArgs(
                input=codes, output=weight, codebook=table, absmax=given["absmax"], **nested
            ),
        )
        return weight
    zero_points = given.get("weight_zero_point")
    conventions = {"float8_e8m0fnu": "mx", "float8_e4m3fn": "nvfp4"}
    run(
        planq.DequantizeDescriptor(
            shape=layer.shape,
            input_dtype=desc.code_dtype,
            output_dtype="float32",
            scope=desc.weight_scope,
            mode=desc.weight_mode,
            scale_dtype=desc.scale_dtype,
            zero_point_dtype=None if zero_points is None else "int32",
            nibble_order=planq.NibbleOrder.LOW_FIRST,
            convention=conventions.get(desc.scale_dtype.value, "planq"),
        ),
        planq.DequantizeArgs(
            input=given["weight"],
            output=weight,
            scale=given["weight_scale"],
            zero_point=None if zero_points is None else zero_points.astype(np.int32),
            tensor_scale=given.get("tensor_scale"),
        ),
    )
    return weight


def same_bits(ours: Array, theirs: Array) -> bool:
    """Whether two arrays of float32 have the same bits; zeros may differ in sign."""
    return bool(np.array_equal(ours + np.float32(0), theirs + np.float32(0), equal_nan=True))


def check_operands(layer: Layer) -> None:
    """Whether the operands are those that the descriptor asks for, and writable."""
    wanted = layer.descriptor(1, "bfloat16").operands()
    given = layer.operands()
    assert given.keys() == wanted.keys() - {"input", "output"}
    for name, values in given.items():
        spec = wanted[name]
        dtypes = {spec.storage, "uint8"} if spec.storage.startswith("float8") else {spec.storage}
        assert values.shape == spec.extents, name
        assert values.dtype.name in dtypes, name
        assert values.flags.c_contiguous, name
        assert values.flags.writeable, name


def check_products(layer: Layer, weight: Array, bias: Array | None = None) -> None:
    """Whether products of the layer are those of float64, within what their types round."""
    n, k = layer.shape
    operands = layer.operands()
    added = np.zeros(n) if bias is None else bias.astype(np.float64)
    for dtype, error in (("float32", 2.0**-18), ("bfloat16", 2.0**-6)):
        numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
        x = np.random.default_rng(3).standard_normal((5, k)).astype(numpy_dtype)
        y = np.empty((5, n), np.float32)
        desc = layer.descriptor(planq.Dim("m", max=8), dtype, output_dtype="float32")
        run(desc, layer.args(input=x, output=y, **operands), m=5)
        exact = x.astype(np.float64) @ weight.astype(np.float64).T + added
        scale = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
        assert (np.abs(y - exact) <= error * (scale + np.abs(added))).all(), dtype


E4M3 = ml_dtypes.float8_e4m3fn
MADE: dict[str, tuple[Callable[[], Made], StoredAs]] = {
    "gptq": (peers.gptq, StoredAs.GPTQ),
    "gptq-bfloat16": (lambda: peers.gptq(dtype=ml_dtypes.bfloat16), StoredAs.GPTQ),
    "gptq-one-group": (lambda: peers.gptq(size=256), StoredAs.GPTQ),
    "gptq-short-group": (lambda: peers.gptq(k=320), StoredAs.GPTQ),
    "gptq_v2": (lambda: peers.gptq(version="gptq_v2", size=32), StoredAs.GPTQ_V2),
    "gptq-8": (lambda: peers.gptq(bits=8), StoredAs.GPTQ),
    "gptq_v2-8": (lambda: peers.gptq(bits=8, version="gptq_v2", size=64), StoredAs.GPTQ_V2),
    "awq": (peers.awq, StoredAs.AWQ),
    "awq-one-group": (lambda: peers.awq(size=256), StoredAs.AWQ),
    "awq-odd": (lambda: peers.awq(k=131, size=131), StoredAs.AWQ),
    "packed": (peers.packed, StoredAs.PACK_QUANTIZED),
    "packed-asymmetric": (lambda: peers.packed(n=21, symmetric=False), StoredAs.PACK_QUANTIZED),
    "packed-channel": (lambda: peers.packed(n=21, k=131, size=None), StoredAs.PACK_QUANTIZED),
    "packed-8": (lambda: peers.packed(bits=8, size=64), StoredAs.PACK_QUANTIZED),
    "packed-8-channel": (lambda: peers.packed(bits=8, k=131, size=None), StoredAs.PACK_QUANTIZED),
    "packed-8-asymmetric": (
        lambda: peers.packed(n=21, bits=8, symmetric=False, dtype=np.float32),
        StoredAs.PACK_QUANTIZED,
    ),
    "packed-asymmetric-channel": (
        lambda: peers.packed(k=96, size=None, symmetric=False),
        StoredAs.PACK_QUANTIZED,
    ),
    "mxfp4": (peers.float4, StoredAs.MXFP4_PACK_QUANTIZED),
    "mxfp4-e8m0": (
        lambda: peers.float4(e8m0=ml_dtypes.float8_e8m0fnu),
        StoredAs.MXFP4_PACK_QUANTIZED,
    ),
    "nvfp4": (lambda: peers.float4(size=16), StoredAs.NVFP4_PACK_QUANTIZED),
    "int8-channel": (peers.unpacked, StoredAs.INT_QUANTIZED),
    "int8-tensor": (lambda: peers.unpacked(scales="tensor"), StoredAs.INT_QUANTIZED),
    "fp8-channel": (lambda: peers.unpacked(code=E4M3, dtype=np.float16), StoredAs.FLOAT_QUANTIZED),
    "fp8-tensor": (lambda: peers.unpacked(code=E4M3, scales="tensor"), StoredAs.FLOAT_QUANTIZED),
    "fp8-block": (
        lambda: peers.unpacked(code=E4M3, scales="block", dtype=np.float32),
        StoredAs.FLOAT_QUANTIZED,
    ),
    "fp8-e5m2": (lambda: peers.unpacked(code=ml_dtypes.float8_e5m2), StoredAs.FLOAT_QUANTIZED),
    "fp8": (
        lambda: peers.unpacked(
            code=E4M3, scales="block", dtype=np.float32, suffix="weight_scale_inv"
        ),
        StoredAs.FP8,
    ),
    "bitsandbytes-int8": (peers.rows_of_bitsandbytes, StoredAs.BITSANDBYTES_INT8),
}
# Formats whose activations are quantized in any case: their weights are asked for alone.
QUANTIZED_INPUTS = (StoredAs.FP8, StoredAs.BITSANDBYTES_INT8)


def check_encoded(layer: Layer, made: Made) -> None:
    """Whether the way back has the bytes of the file, for all parts that it promises."""
    encoded = layer.encode(layer.operands())
    assert encoded.keys() | set(layer.kept) == layer.parts.keys()
    assert not encoded.keys() & set(layer.kept)
    for name, values in encoded.items():
        stored = made.tensors[layer.parts[name].entry.name]
        if values.dtype.kind == "f":
            values = values.astype(stored.dtype)
        assert values.tobytes() == stored.tobytes(), name


@pytest.mark.parametrize("name", MADE)
def test_a_layer_is_what_its_format_says(tmp_path: Path, name: str) -> None:
    make, stored_as = MADE[name]
    made = make()
    weights_only = stored_as in QUANTIZED_INPUTS
    with read_layers(made.save(tmp_path / "model"), weights_only=weights_only) as layers:
        assert [layer.name for layer in layers] == [made.name]
        layer = layers[made.name]
        check_encoded(layer, made)
        assert (layer.stored_as, layer.shape) == (stored_as, made.weight.shape)
        assert layer.nbytes == sum(tensor.nbytes for tensor in made.tensors.values())
        assert layers.rest == ("model.norm.weight",)
        check_operands(layer)
        assert same_bits(weight_of(layer), made.weight)
        check_products(layer, made.weight)
        layers.check()


@pytest.mark.parametrize("name", [name for name in MADE if not name.startswith("gptq")])
def test_tensors_alone_tell_the_format(tmp_path: Path, name: str) -> None:
    """All but GPTQ's, of which there are two versions."""
    made = MADE[name][0]()
    path = made.save(tmp_path / "model")
    (path / "config.json").unlink()
    weights_only = MADE[name][1] in QUANTIZED_INPUTS
    with read_layers(path / "model.safetensors", weights_only=weights_only) as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)


@pytest.mark.parametrize("size", [32, 16])
def test_every_scale_of_floats_of_4_bits_is_exact(tmp_path: Path, size: int) -> None:
    """From the smallest, 2^-127, which float32 has as a subnormal number, to the largest."""
    made = peers.float4(size=size, extremes=True)
    with read_layers(made.save(tmp_path / "model")) as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)


def test_each_expert_of_gpt_oss_is_a_layer(tmp_path: Path) -> None:
    made, weights = peers.gpt_oss()
    assert made.bias is not None
    with read_layers(made.save(tmp_path / "model")) as layers:
        assert [layer.name for layer in layers] == [f"{made.name}[{e}]" for e in range(3)]
        for layer, weight, bias in zip(layers, weights, made.bias, strict=True):
            assert layer.stored_as is StoredAs.MXFP4_BLOCKS
            check_operands(layer)
            assert same_bits(weight_of(layer), weight)
            assert np.array_equal(layer.operands()["bias"], bias.astype(np.float32))
            check_products(layer, weight, bias)
        assert sum(layer.nbytes for layer in layers) == sum(v.nbytes for v in made.tensors.values())
        layers.check()


def test_blocks_without_experts_are_one_layer(tmp_path: Path) -> None:
    made, weights = peers.gpt_oss()
    tensors = {name: values[1] for name, values in made.tensors.items()}
    with read_layers(peers.model(tmp_path / "model", tensors, None)) as layers:
        assert same_bits(weight_of(layers[made.name]), weights[1])


@pytest.mark.parametrize("make", [peers.gptq, peers.awq, peers.packed, peers.float4])
def test_a_bias_belongs_to_its_layer(tmp_path: Path, make: Callable[[], Made]) -> None:
    """Widened to float32, in which it is added."""
    made = make()
    bias = np.random.default_rng(5).standard_normal(len(made.weight)).astype(np.float16)
    tensors = {**made.tensors, f"{made.name}.bias": bias}
    with read_layers(peers.model(tmp_path / "model", tensors, made.config)) as layers:
        layer = layers[made.name]
        check_operands(layer)
        check_products(layer, made.weight, bias)
        plain: Any = layer.descriptor(2, "float16", bias_dtype=None, residual_dtype="float16")
        assert (plain.bias_dtype, plain.residual_dtype) == (None, planq.DType.FLOAT16)


def test_one_scale_of_all_rows(tmp_path: Path) -> None:
    made = peers.packed(bits=8, size=None)
    scale = f"{made.name}.weight_scale"
    codes = made.weight / made.tensors[scale].astype(np.float32)
    made.tensors[scale] = np.array([0.375], np.float32)
    assert made.config is not None
    made.config["config_groups"]["group_0"]["weights"]["strategy"] = "tensor"
    with read_layers(made.save(tmp_path / "model")) as layers:
        check_encoded(layers[made.name], made)
        assert same_bits(weight_of(layers[made.name]), np.rint(codes) * np.float32(0.375))


def test_a_group_order_that_is_none_is_read(tmp_path: Path) -> None:
    """compressed-tensors has -1 where there is none; GPTQ's desc_act may keep the order, too."""
    made = peers.packed()
    made.tensors[f"{made.name}.weight_g_idx"] = np.full(256, -1, np.int32)
    with read_layers(made.save(tmp_path / "first")) as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)
    made = peers.gptq(desc_act=True)
    with read_layers(made.save(tmp_path / "second")) as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)
    made = peers.gptq()
    del made.tensors[f"{made.name}.g_idx"]
    with read_layers(made.save(tmp_path / "third")) as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)


def test_several_layers_of_several_files(tmp_path: Path) -> None:
    """The parts of a layer may be in different files; the index names all."""
    first, second = peers.awq(), peers.awq(n=16, k=128)
    moved = {name.replace("q_proj", "k_proj"): values for name, values in second.tensors.items()}
    folder = peers.model(tmp_path / "model", {}, first.config)
    (folder / "model.safetensors").unlink()
    everything = [*first.tensors.items(), *moved.items()]
    files = {"a.safetensors": dict(everything[:4]), "b.safetensors": dict(everything[4:])}
    peers.write_shards(folder, files)
    peers.checkpoint(folder / "other.safetensors", {"model.q_proj.qweight": peers.ONES})
    with read_layers(folder) as layers:
        assert [layer.name for layer in layers] == ["model.q_proj", "model.k_proj"]
        assert same_bits(weight_of(layers["model.q_proj"]), first.weight)
        assert same_bits(weight_of(layers["model.k_proj"]), second.weight)
        assert "model.v_proj" not in layers
        assert len(layers) == 2


def test_one_layer_at_a_time_is_in_memory(tmp_path: Path) -> None:
    """Opening reads headers alone: codes that the disk has not are missed when they are read."""
    made = peers.awq()
    folder = made.save(tmp_path / "model")
    with read_layers(folder) as layers:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-4000])
        with pytest.raises(planq.PlanqError, match="the file changed while it was read"):
            layers[made.name].operands()
    with pytest.raises(planq.PlanqError, match="its files are closed"):
        layers[made.name].operands()


def test_torch_takes_the_operands(tmp_path: Path) -> None:
    import torch

    made = peers.gptq()
    with read_layers(made.save(tmp_path / "model")) as layers:
        layer = layers[made.name]
        operands = {name: torch.from_numpy(values) for name, values in layer.operands().items()}
        x, y = torch.ones((3, 256)), torch.empty((3, 32))
        run(layer.descriptor(3, torch.float32), layer.args(input=x, output=y, **operands))
        assert np.allclose(y.numpy(), made.weight.sum(axis=1), rtol=1e-4, atol=1e-2)


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """On checkpoints of several formats."""
    names: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs" / "checkpoints.md", gpu=False):
        exec(code, names)
    for make in (peers.awq, peers.packed, peers.float4):
        made = make()
        outputs = names["multiply"](made.save(tmp_path / make.__name__), rows=3)
        exact = made.weight.astype(np.float64).sum(axis=1)
        assert np.allclose(outputs[made.name], exact, rtol=1e-4, atol=1e-2)


def test_a_config_of_several_inputs_has_it_in_text_config(tmp_path: Path) -> None:
    made = peers.gptq()
    folder = made.save(tmp_path / "model")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text('{"text_config": ' + text + "}")
    with read_layers(folder / "model.safetensors") as layers:
        assert same_bits(weight_of(layers[made.name]), made.weight)
