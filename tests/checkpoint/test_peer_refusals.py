"""Layers that are not what their format says are refused by tensor, what it is and should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from checkpoint import peers
from checkpoint.peers import Array, Made
from cli.files import checkpoint
from planq.checkpoint import read_layers
from planq.checkpoint.failure import CheckpointError, TensorError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "model.q_proj"
E4M3 = ml_dtypes.float8_e4m3fn

MAKE: dict[str, Callable[[], Made]] = {
    "gptq": peers.gptq,
    "awq": peers.awq,
    "packed": peers.packed,
    "zeros": lambda: peers.packed(symmetric=False),
    "mxfp4": peers.float4,
    "nvfp4": lambda: peers.float4(size=16),
    "blocks": lambda: peers.gpt_oss()[0],
}
PARTS = [(kind, part) for kind, make in MAKE.items() for part in make().tensors]
OPTIONAL = {f"{NAME}.g_idx", f"{peers.gpt_oss()[0].name}_bias"}


def refused(folder: Path, **options: bool) -> CheckpointError:
    """The error of reading all of a checkpoint."""
    with pytest.raises(CheckpointError) as caught, read_layers(folder, **options) as layers:
        layers.check()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return caught.value


def refused_tensor(folder: Path, name: str) -> TensorError:
    """The error, which names this tensor."""
    error = refused(folder)
    assert isinstance(error, TensorError)
    assert error.tensor == name
    assert repr(name) in str(error)
    assert error.expected in str(error)
    return error


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_a_missing_part(tmp_path: Path, kind: str, part: str) -> None:
    """If the codes are missing, something else is left over."""
    made = MAKE[kind]()
    del made.tensors[part]
    folder = made.save(tmp_path / "model")
    if part in OPTIONAL:
        with read_layers(folder) as layers:
            layers.check()
        return
    error = refused(folder)
    assert isinstance(error, TensorError)
    codes = part.endswith((".qweight", ".weight_packed", "_blocks"))
    assert (error.found is None) == (not codes)
    assert codes or error.tensor == part
    assert not codes or "which is left over" in str(error)


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_a_part_of_another_shape(tmp_path: Path, kind: str, part: str) -> None:
    """One row less, one column less, one axis more."""
    made = MAKE[kind]()
    whole = made.tensors[part]
    for number, changed in enumerate((whole[:-1], whole[..., :-1], whole[None])):
        made.tensors[part] = np.ascontiguousarray(changed)
        error = refused(made.save(tmp_path / f"model{number}"))
        assert isinstance(error, TensorError)


@pytest.mark.parametrize(("kind", "part"), PARTS)
@pytest.mark.parametrize("dtype", ["float64", "int8", "uint8", "int32", "float16"])
def test_a_part_of_another_type(tmp_path: Path, kind: str, part: str, dtype: str) -> None:
    """Float scales may have any of three types; E8M0 are bytes in any case."""
    made = MAKE[kind]()
    values = made.tensors[part]
    fits = dtype == values.dtype.name or (dtype == "float16" and values.dtype.kind in "fV")
    fits = fits and "global" not in part and values.dtype.name != "float8_e4m3fn"
    fits = fits or (dtype == "int32" and part.endswith("weight_shape"))
    with np.errstate(all="ignore"):
        made.tensors[part] = values.astype(np.float64).astype(dtype)
    folder = made.save(tmp_path / "model")
    if fits:
        with read_layers(folder) as layers:
            layers.check()
        return
    error = refused(folder)
    assert isinstance(error, TensorError)
    assert error.tensor.startswith(made.name)


@pytest.mark.parametrize("kind", MAKE)
def test_a_tensor_that_is_left_over(tmp_path: Path, kind: str) -> None:
    made = MAKE[kind]()
    for name in ("other.qzeros", "other.g_idx", "other.weight_scale", "other.weight.absmax"):
        tensors = {**made.tensors, name: peers.ONES}
        folder = peers.model(tmp_path / "model", tensors, made.config)
        assert "F32 [4], which is left over" in str(refused_tensor(folder, name))
    if made.name == NAME:
        tensors = {**made.tensors, f"{NAME}.weight": peers.ONES}
        folder = peers.model(tmp_path / "model", tensors, made.config)
        refused_tensor(folder, f"{NAME}.weight")


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: peers.unpacked(code=E4M3, scales="block", suffix="weight_scale_inv"), "_inv"),
        (peers.rows_of_bitsandbytes, "SCB"),
    ],
)
def test_formats_that_quantize_activations_in_any_case(
    tmp_path: Path, make: Callable[[], Made], part: str
) -> None:
    """Whether or not a config says so."""
    made = make()
    name = next(name for name in made.tensors if name.endswith(part))
    for config in (made.config, None):
        made.config = config
        error = refused_tensor(made.save(tmp_path / "model"), name)
        assert "no activations that are quantized (weights_only takes" in str(error)
        (tmp_path / "model" / "config.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weight_scale": np.ones((2, 2), np.float32)}, "a scale for the weight, [200, 1] for its"),
        ({"weight_scale": np.ones((3, 3), np.float32)}, "or [2, 3] for blocks of 128 x 128"),
        ({"weight_scale": np.ones((200, 1), np.int32)}, "expected F16 or BF16 or F32"),
        ({"weight_zero_point": np.zeros((200, 1), np.int8)}, "which is left over"),
        ({"weight": np.ones((200, 300, 1), np.int8)}, "[any, any], found I8 [200, 300, 1]"),
        ({"bias": np.ones(3, np.float32)}, "[200], found F32 [3]"),
    ],
)
def test_scales_that_do_not_fit_codes_of_a_byte(
    tmp_path: Path, change: dict[str, Array], said: str
) -> None:
    made = peers.unpacked()
    made.tensors |= {f"{NAME}.{part}": values for part, values in change.items()}
    error = refused(made.save(tmp_path / "model"))
    assert isinstance(error, TensorError)
    assert said in str(error)


def test_codes_of_a_byte_without_scales(tmp_path: Path) -> None:
    made = peers.unpacked()
    del made.tensors[f"{NAME}.weight_scale"]
    assert refused_tensor(made.save(tmp_path / "model"), f"{NAME}.weight_scale").found is None


def test_blocks_of_another_size(tmp_path: Path) -> None:
    made = peers.unpacked(code=E4M3, scales="block")
    with_weights(made, block_structure=[64, 128])
    said = "block_structure: expected [128, 128], got [64, 128]"
    assert said in str(refused(made.save(tmp_path / "model")))
    made = peers.unpacked(code=E4M3, scales="block", suffix="weight_scale_inv")
    assert made.config is not None
    made.config["weight_block_size"] = [128, 64]
    said = "weight_block_size: expected [128, 128], got [128, 64]"
    assert said in str(refused(made.save(tmp_path / "model"), weights_only=True))


def test_rows_of_bitsandbytes_in_another_order(tmp_path: Path) -> None:
    made = peers.rows_of_bitsandbytes()
    made.tensors[f"{NAME}.weight_format"] = np.array(1, np.uint8)
    folder = made.save(tmp_path / "model")
    error = refused(folder, weights_only=True)
    assert f"{NAME}.weight_format" in str(error)
    assert "expected 0, rows, found 1" in str(error)


def orders(k: int, size: int) -> dict[str, Array]:
    """Ways in which columns may lie that planq does not read."""
    trivial = np.arange(k) // size
    mixed = np.random.default_rng(0).permutation(trivial)
    return {"mixed": mixed, "reversed": trivial[::-1], "negative": trivial - k // size}


@pytest.mark.parametrize("order", orders(256, 128))
@pytest.mark.parametrize("kind", ["gptq", "packed"])
def test_act_order(tmp_path: Path, kind: str, order: str) -> None:
    made = MAKE[kind]()
    name = f"{NAME}.g_idx" if kind == "gptq" else f"{NAME}.weight_g_idx"
    made.tensors[name] = np.ascontiguousarray(orders(256, 128)[order].astype(np.int32))
    error = refused_tensor(made.save(tmp_path / "model"), name)
    assert error.expected == "column i in group i // 128"
    assert "act-order" in str(error)


def test_act_order_without_an_order(tmp_path: Path) -> None:
    made = peers.gptq(desc_act=True)
    del made.tensors[f"{NAME}.g_idx"]
    refused_tensor(made.save(tmp_path / "model"), f"{NAME}.g_idx")


@pytest.mark.parametrize("bits", [4, 8])
def test_a_zero_point_that_has_overflowed(tmp_path: Path, bits: int) -> None:
    """The first version has no zero point 0: one less than 0 has all bits of a word."""
    made = peers.gptq(bits=bits)
    made.tensors[f"{NAME}.qzeros"][0, 0] = -1
    error = refused_tensor(made.save(tmp_path / "model"), f"{NAME}.qzeros")
    assert f"{2**bits - 1}: a zero point of 0 overflows to it" in str(error)
    made = peers.gptq(bits=bits, version="gptq_v2")
    made.tensors[f"{NAME}.qzeros"][0, 0] = -1
    with read_layers(made.save(tmp_path / "second")) as layers:
        layers.check()


@pytest.mark.parametrize("kind", ["gptq", "awq", "packed", "nvfp4", "mxfp4", "blocks"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_that_are_not_finite(tmp_path: Path, kind: str, value: float) -> None:
    """`check` says so; `operands` reads them."""
    made = MAKE[kind]()
    name = next(name for name in made.tensors if name.endswith(("scale", "scales")))
    scales = made.tensors[name]
    if scales.dtype == np.uint8:
        scales.reshape(-1)[3] = 255  # E8M0's only NaN
    else:
        with np.errstate(all="ignore"):
            scales.reshape(-1)[3] = value  # float8_e4m3fn has no infinity, but a NaN
    folder = made.save(tmp_path / "model")
    error = refused_tensor(folder, name)
    assert error.expected == "finite numbers"
    with read_layers(folder) as layers:
        operands = next(iter(layers)).operands()
    scale = operands["weight_scale"]
    if scale.dtype == np.uint8:
        assert (scale == (0x7F if kind == "nvfp4" else 0xFF)).sum() == 1
    else:
        assert np.isfinite(scale).sum() == scale.size - 1


@pytest.mark.parametrize("value", [0, -1, np.nan, np.inf])
def test_a_global_scale_that_is_no_divisor(tmp_path: Path, value: float) -> None:
    made = peers.float4(size=16)
    made.tensors[f"{NAME}.weight_global_scale"][0] = value
    refused_tensor(made.save(tmp_path / "model"), f"{NAME}.weight_global_scale")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: peers.gptq(group_size=100), "groups of 100 along 256 columns"),
        (lambda: peers.gptq(group_size=64), "groups of 64 along 256 columns"),
        (lambda: peers.awq(group_size=256), "groups of 256 along 256 columns"),
        (lambda: peers.gptq(bits=8, version="gptq", group_size="all"), "group_size: expected a"),
        (lambda: peers.gptq(dynamic={"+:.*": {"bits": 8}}), "dynamic: expected the same options"),
        (lambda: peers.gptq(checkpoint_format="marlin"), "expected gptq or gptq_v2, got 'marlin'"),
        (lambda: peers.gptq(quant_method="hqq"), "quant_method: expected gptq or awq or"),
        (lambda: peers.gptq(quant_method="fp8"), "model.qweight"),
        (lambda: peers.gptq(quant_method="awq"), "model.qweight"),
        (lambda: peers.gptq(desc_act="no"), "desc_act: expected true or false"),
        (lambda: peers.awq(version="gemv"), "version: expected gemm, got 'gemv'"),
        (lambda: peers.awq(bits=8), "bits: expected 4, got 8"),
        (lambda: peers.awq(zero_point=False), "zero_point: expected true, got False"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, make: Callable[[], Made], said: str) -> None:
    made = make()
    message = str(refused(made.save(tmp_path / "model")))
    assert said.replace("model.qweight", f"{NAME}.") in message


def with_weights(made: Made, **weights: Any) -> Made:
    """A layer of compressed-tensors with other words in its scheme."""
    assert made.config is not None
    made.config["config_groups"]["group_0"]["weights"] |= weights
    return made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: with_weights(peers.packed(), num_bits=8), "256 codes of 4 or 8 bits a row"),
        (lambda: with_weights(peers.packed(), num_bits=2), "256 codes of 4 or 8 bits a row"),
        (lambda: with_weights(peers.packed(), group_size=96), "groups of 96 along 256"),
        (lambda: with_weights(peers.packed(), group_size=0), "group_size: expected a positive"),
        (lambda: with_weights(peers.packed(), symmetric=False), "weight_zero_point"),
        (lambda: with_weights(peers.packed(), strategy="block"), "strategy: expected tensor or"),
        (
            lambda: with_weights(peers.packed(symmetric=False), symmetric=True),
            "no zero points, as the config says symmetric",
        ),
    ],
)
def test_a_scheme_that_does_not_fit(tmp_path: Path, make: Callable[[], Made], said: str) -> None:
    assert said in str(refused(make().save(tmp_path / "model")))


def test_a_group_of_a_long_name(tmp_path: Path) -> None:
    """The sentence stays one that can be read."""
    made = peers.packed()
    assert made.config is not None
    made.config["config_groups"] = {"x" * 5000: {"weights": None}}
    message = str(refused(made.save(tmp_path / "model")))
    assert "weights: expected an object" in message
    assert len(message) < 500


@pytest.mark.parametrize("form", ["marlin-24", "sparse", 4])
def test_a_format_of_compressed_tensors_that_is_not_read(tmp_path: Path, form: object) -> None:
    made = peers.packed()
    assert made.config is not None
    made.config["format"] = form
    assert "format: expected pack-quantized or" in str(refused(made.save(tmp_path / "model")))


def test_activations_that_are_quantized_too(tmp_path: Path) -> None:
    """A layer of weights alone is not what was meant, unless the caller says so."""
    made = peers.float4(size=16)
    assert made.config is not None
    group = made.config["config_groups"]["group_0"]
    group["input_activations"] = {"num_bits": 4, "type": "float"}
    made.tensors[f"{NAME}.input_global_scale"] = np.ones(1, np.float32)
    folder = made.save(tmp_path / "model")
    assert "input_activations: expected null; weights_only takes" in str(refused(folder))
    group["input_activations"] = None
    made.save(folder)
    refused_tensor(folder, f"{NAME}.input_global_scale")
    with read_layers(folder, weights_only=True) as layers:
        assert layers.rest == ("model.norm.weight",)
        layers.check()


def test_gptq_without_a_config(tmp_path: Path) -> None:
    made = peers.gptq()
    made.config = None
    assert "which alone tells gptq and gptq_v2 apart" in str(refused(made.save(tmp_path / "model")))


def test_a_width_that_is_no_whole_number_of_blocks(tmp_path: Path) -> None:
    made = peers.float4()
    name = f"{NAME}.weight_packed"
    made.tensors[name] = np.ascontiguousarray(made.tensors[name][:, :-4])
    error = refused_tensor(made.save(tmp_path / "model"), name)
    assert error.expected == "a multiple of 16 bytes a row"


def test_a_shape_that_is_not_that_of_the_codes(tmp_path: Path) -> None:
    made = peers.packed()
    for shape in ([23, 256], [24, 300], [24, -1], [24, 2**40]):
        made.tensors[f"{NAME}.weight_shape"] = np.array(shape)
        error = refused(made.save(tmp_path / "model"))
        assert isinstance(error, TensorError)


def test_a_name_in_two_files(tmp_path: Path) -> None:
    """Whether or not an index names one of them."""
    made = peers.awq()
    folder = made.save(tmp_path / "model")
    checkpoint(folder / "more.safetensors", {f"{NAME}.scales": peers.ONES})
    assert f"{NAME + '.scales'!r}: in model.safetensors and more" in str(refused(folder))
    files = {"model.safetensors": made.tensors, "more.safetensors": {"x": peers.ONES}}
    peers.write_shards(folder, files)
    checkpoint(folder / "more.safetensors", {"x": peers.ONES, f"{NAME}.scales": peers.ONES})
    assert f"{NAME + '.scales'!r}: in model.safetensors and more" in str(refused(folder))


def test_an_index_that_is_wrong(tmp_path: Path) -> None:
    made = peers.awq()
    folder = made.save(tmp_path / "model")
    index = folder / "model.safetensors.index.json"
    places = dict.fromkeys(made.tensors, "model.safetensors")
    index.write_text(json.dumps({"weight_map": {**places, "gone": "model.safetensors"}}))
    assert "weight_map: model.safetensors holds no tensor 'gone'" in str(refused(folder))
    index.write_text(json.dumps({"weight_map": {**places, "gone": "gone.safetensors"}}))
    assert "gone.safetensors: named by" in str(refused(folder))


@pytest.mark.parametrize("kind", MAKE)
def test_a_file_that_is_cut(tmp_path: Path, kind: str) -> None:
    folder = MAKE[kind]().save(tmp_path / "model")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert "not a valid safetensors file" in str(refused(folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a JSON file"),
        ("[]", "expected a JSON object"),
        ('{"quantization_config": []}', "quantization_config: expected an object, got []"),
        ('{"quantization_config": {}}', "quant_method: expected gptq or awq or"),
        ('{"quantization_config": {"quant_method": 4}}', "quant_method: expected gptq or"),
        (
            '{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": 1}}',
            "config_groups: expected an object of objects, got 1",
        ),
    ],
)
def test_a_config_that_is_damaged(tmp_path: Path, text: str, said: str) -> None:
    folder = peers.packed().save(tmp_path / "model")
    (folder / "config.json").write_text(text)
    assert said in str(refused(folder))


def test_nothing_that_is_quantized(tmp_path: Path) -> None:
    folder = peers.model(tmp_path / "model", {}, None)
    assert "no quantized layer of a format that planq knows" in str(refused(folder))
    with pytest.raises(FileNotFoundError):
        read_layers(tmp_path / "none")
