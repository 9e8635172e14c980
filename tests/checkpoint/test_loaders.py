"""transformers loads what planq quantized, and gets the bits of the peers' own quantization.

MiniLM, of which every weight is found; `output_loading_info` would have the missing ones.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from checkpoint import model as minilm
from planq.checkpoint.folders import quantize_folder
from planq.checkpoint.formats import Activations, Form, Format, QuantStorage
from planq.checkpoint.job import Job
from planq.checkpoint.schemes import Groups, Scheme, Search, choose_blocks
from planq.cli import main
from planq.executors import HostExecutor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import safetensors.torch
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import (
        QuantizationConfig,
        QuantizationStatus,
        apply_quantization_config,
    )
    from compressed_tensors.quantization.utils.helpers import calculate_qparams
    from transformers import BitsAndBytesConfig, CompressedTensorsConfig

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")

CT, BNB = Format.COMPRESSED_TENSORS, Format.BITSANDBYTES
TOKEN = Activations.TOKEN


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The floating model, as a folder."""
    return minilm.extract(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def floating(source: Path) -> torch.Tensor:
    """What the floating model makes of the sentences."""
    return minilm.embeddings(minilm.load(source), source)


def quantized(
    source: Path,
    target: Path,
    scheme: Scheme,
    form: Form,
    *,
    nested: bool = False,
    groups: Groups | None = None,
) -> dict[str, torch.Tensor]:
    """Quantizes the folder, and returns the tensors that came of it."""
    blocks = choose_blocks(scheme, None, nested=nested, calibrated=False)
    form.check(scheme, blocks, calibrated=False)
    job = Job(source, target, scheme, form=form, blocks=blocks, groups=groups)
    report = quantize_folder(job, HostExecutor(), lambda name, nbytes, total: None)
    assert len(report.tensors) == 37
    tensors: dict[str, torch.Tensor] = safetensors.torch.load_file(target / "model.safetensors")
    return tensors


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors have one type, one shape and the same bytes."""
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    views = (each.contiguous().reshape(-1).view(torch.uint8) for each in (ours, theirs))
    return torch.equal(*views)


def segments(weight: torch.Tensor, strategy: str, size: int | None) -> torch.Tensor:
    """The weight with the elements of a scale along its last axis."""
    if strategy == "tensor":
        return weight.reshape(1, -1)
    if strategy == "channel":
        return weight[:, None]
    if strategy == "group":
        return weight.unflatten(1, (-1, size))
    tiles = weight.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
    return tiles.transpose(1, 2).flatten(2)


def by_compressed_tensors(source: Path, config: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The floating model with the peer's own scales, and what its compressor makes of it."""
    model = minilm.load(source)
    apply_quantization_config(model, QuantizationConfig(**config))
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    tensors = {}
    for name, module in model.named_modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        values = segments(module.weight.data, scheme.weights.strategy, scheme.weights.group_size)
        scale, zeros = calculate_qparams(values.amin(-1), values.amax(-1), scheme.weights)
        module.weight_scale.data = scale.reshape(module.weight_scale.shape)
        module.quantization_status = QuantizationStatus.FROZEN
        made = {"weight": module.weight.data, "weight_scale": module.weight_scale.data}
        if not scheme.weights.symmetric:
            module.weight_zero_point.data = zeros.reshape(module.weight_zero_point.shape)
            made["weight_zero_point"] = module.weight_zero_point.data
        stored = compressor.compress(made, scheme)
        tensors |= {f"{name}.{key}": values for key, values in stored.items()}
    return model, tensors


@pytest.mark.parametrize(
    ("scheme", "activations", "least"),
    [
        (Scheme.INT8_CHANNEL, Activations.NONE, 0.995),
        (Scheme.INT8_CHANNEL, TOKEN, 0.995),
        (Scheme.FP8_CHANNEL, TOKEN, 0.995),
        (Scheme.FP8_TENSOR, TOKEN, 0.995),
        (Scheme.FP8_BLOCK128, Activations.NONE, 0.995),
        (Scheme.INT4_GROUP128, Activations.NONE, 0.9),
    ],
)
def test_compressed_tensors_loads_the_bits_that_it_makes_itself(
    tmp_path: Path,
    source: Path,
    floating: torch.Tensor,
    scheme: Scheme,
    activations: Activations,
    least: float,
) -> None:
    """Every stored tensor, and the embeddings of the model that is loaded."""
    target = tmp_path / "out"
    ours = quantized(source, target, scheme, Form(CT, activations))
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    peer, tensors = by_compressed_tensors(source, config)
    assert len(tensors) in (2 * 37, 3 * 37)
    for name, values in tensors.items():
        assert same_bits(ours[name], values), name
    found = minilm.embeddings(minilm.load(target), source)
    assert torch.equal(found, minilm.embeddings(peer, source))
    assert minilm.mean_cosine(found, floating) >= least


@pytest.mark.parametrize("size", [32, 128])
@pytest.mark.parametrize("scheme", [Scheme.INT4_GROUP, Scheme.UINT4_GROUP])
def test_compressed_tensors_loads_groups_of_any_size(
    tmp_path: Path, source: Path, floating: torch.Tensor, scheme: Scheme, size: int
) -> None:
    """Without a search, every stored tensor is what it makes itself, but for ties of codes.

    With zero points, it rounds the sum of quotient and zero point, and planq the quotient alone.
    transformers 5.23 has no room for packed zero points in a layer that stays compressed, whoever
    wrote them. So it is asked to dequantize.
    """
    target = tmp_path / "out"
    ours = quantized(source, target, scheme, Form(CT), groups=Groups(size))
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    peer, tensors = by_compressed_tensors(source, config)
    asymmetric = scheme is Scheme.UINT4_GROUP
    assert len(tensors) == (4 if asymmetric else 3) * 37
    weights = safetensors.torch.load_file(source / "model.safetensors")
    tied = 0
    for name, values in tensors.items():
        if asymmetric and name.endswith("_packed"):
            weight = name.removesuffix("_packed")
            tied += count_tied(ours[name], values, weights[weight], ours[f"{weight}_scale"])
        else:
            assert same_bits(ours[name], values), name
    assert tied < 1000
    found = minilm.embeddings(dequantizing(target), source)
    theirs = minilm.embeddings(peer, source)
    assert asymmetric or torch.equal(found, theirs)
    assert minilm.mean_cosine(found, theirs) >= 0.9999
    assert minilm.mean_cosine(found, floating) >= 0.93


def count_tied(
    ours: torch.Tensor, theirs: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor
) -> int:
    """How many codes are others: by one, where the quotient is half way up to the sum's rounding.

    A sum of less than 16 is rounded by up to 2^-21.
    """
    shifts = torch.arange(0, 32, 4)
    mine, yours = ((words[..., None] >> shifts & 15).flatten(1) for words in (ours, theirs))
    other = mine != yours
    assert ((mine - yours).abs() <= 1).all()
    size = weight.shape[1] // scale.shape[1]
    quotient = (weight / scale.repeat_interleave(size, dim=1)).double()[other]
    assert ((quotient - quotient.floor() - 0.5).abs() <= 2.0**-21).all()
    return int(other.sum())


def test_compressed_tensors_loads_searched_scales(
    tmp_path: Path, source: Path, floating: torch.Tensor
) -> None:
    """Scales and zero points of a search are read like others."""
    target = tmp_path / "out"
    quantized(source, target, Scheme.UINT4_GROUP, Form(CT), groups=Groups(128, Search.MSE))
    back = tmp_path / "back.safetensors"
    assert main(["dequantize", str(target / "model.safetensors"), str(back)]) == 0
    restored = safetensors.torch.load_file(back)
    loaded = dequantizing(target)
    for name, values in loaded.state_dict().items():
        assert same_bits(values, restored[name]), name
    assert minilm.mean_cosine(minilm.embeddings(loaded, source), floating) >= 0.95


def dequantizing(folder: Path) -> Any:
    """The model of a folder, whose weights transformers dequantizes while it loads them."""
    return minilm.load(folder, quantization_config=CompressedTensorsConfig(dequantize=True))


def by_bitsandbytes(source: Path, **fields: Any) -> Any:
    """The model as transformers quantizes it on its own."""
    config = BitsAndBytesConfig(bnb_4bit_compute_dtype=torch.float32, **fields)
    return minilm.load(source, quantization_config=config)


def test_bitsandbytes_loads_the_nf4_codes_that_it_makes_itself(
    tmp_path: Path, source: Path, floating: torch.Tensor
) -> None:
    ours = quantized(source, tmp_path / "out", Scheme.NF4, Form(BNB))
    peer = by_bitsandbytes(source, load_in_4bit=True, bnb_4bit_quant_type="nf4")
    theirs = peer.state_dict()
    for name, values in ours.items():
        assert name not in theirs or same_bits(values, theirs[name]), name
    found = minilm.embeddings(minilm.load(tmp_path / "out"), source)
    assert torch.equal(found, minilm.embeddings(peer, source))
    assert minilm.mean_cosine(found, floating) >= 0.95


# Half way between the values of fp4; bitsandbytes' backends have them as decimals of their own.
FP4_MIDDLES = torch.tensor([1, 33, 80, 112, 160, 224, 320]) / 384


def test_bitsandbytes_loads_fp4_codes(tmp_path: Path, source: Path, floating: torch.Tensor) -> None:
    """Its CPU backend rounds as its CUDA backend and planq do, but half way between two values.

    It also loses the sign of zero, whose negative is code 8.
    """
    ours = quantized(source, tmp_path / "out", Scheme.FP4, Form(BNB))
    weights = safetensors.torch.load_file(source / "model.safetensors")
    peer = by_bitsandbytes(source, load_in_4bit=True, bnb_4bit_quant_type="fp4")
    theirs = peer.state_dict()
    for name in (name.removesuffix(".absmax") for name in ours if name.endswith(".absmax")):
        absmax = ours[f"{name}.absmax"]
        assert same_bits(absmax, theirs[f"{name}.absmax"])
        mine, yours = (codes_of(each[name]) for each in (ours, theirs))
        values = (weights[name].reshape(-1, 64) / absmax[:, None]).abs().reshape(-1)
        tied = values[mine != yours]
        assert ((tied[:, None] - FP4_MIDDLES).abs().amin(dim=1) < 2.0**-20).all(), name
    found = minilm.embeddings(minilm.load(tmp_path / "out"), source)
    assert minilm.mean_cosine(found, minilm.embeddings(peer, source)) >= 0.9999
    assert minilm.mean_cosine(found, floating) >= 0.9


def codes_of(packed: torch.Tensor) -> torch.Tensor:
    """One code a byte, the first of two being in the high nibble; both zeros are code 0."""
    codes = torch.stack([packed.reshape(-1) >> 4, packed.reshape(-1) & 15], dim=1).reshape(-1)
    return codes * (codes != 8)


def test_bitsandbytes_loads_nested_statistics_in_any_storage(
    tmp_path: Path, source: Path, floating: torch.Tensor
) -> None:
    """The offset is a mean, which each library sums in its own order: both are within 1 ulp."""
    plain = quantized(source, tmp_path / "plain", Scheme.NF4, Form(BNB))
    form = Form(BNB, quant_storage=QuantStorage.BFLOAT16)
    ours = quantized(source, tmp_path / "out", Scheme.NF4, form, nested=True)
    peer = by_bitsandbytes(
        source,
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_quant_storage=torch.bfloat16,
    )
    loaded = minilm.load(tmp_path / "out")
    for name, module in peer.named_modules():
        if not hasattr(getattr(module, "weight", None), "quant_state"):
            continue
        mine = loaded.get_submodule(name)
        assert same_bits(mine.weight.data, module.weight.data)
        exact = plain[f"{name}.weight.absmax"].double().mean().float()
        for each in (mine, module):
            offset = each.weight.quant_state.offset.reshape(())
            assert abs(int(offset.view(torch.int32)) - int(exact.view(torch.int32))) <= 1
    assert ours[f"{minilm.LAYER}.weight"].dtype is torch.bfloat16
    found = minilm.embeddings(loaded, source)
    assert minilm.mean_cosine(found, floating) >= 0.95


def test_bitsandbytes_loads_8_bit_codes(
    tmp_path: Path, source: Path, floating: torch.Tensor
) -> None:
    """In rows where `127 * fl(1 / absmax)`, which torch computes on a CPU, is the quotient.

    With these codes in all rows, the peer's own model gives the same embeddings.
    """
    ours = quantized(source, tmp_path / "out", Scheme.INT8_CHANNEL, Form(BNB))
    peer = by_bitsandbytes(source, load_in_8bit=True)
    theirs = peer.state_dict()
    compared = 0
    for name in (name.removesuffix("SCB") for name in ours if name.endswith(".SCB")):
        for key in ("SCB", "weight_format"):
            assert same_bits(ours[name + key], theirs[name + key]), name
        largest, full = ours[f"{name}SCB"], torch.tensor(127.0)
        same = full * (1 / largest) == full / largest
        codes, others = ours[f"{name}weight"], theirs[f"{name}weight"]
        assert same_bits(codes[same], others[same]), name
        assert (codes.int() - others.int()).abs().max() <= 1
        compared += int(same.sum())
        weight = peer.get_submodule(name.removesuffix(".")).weight
        weight.data, weight.CB = codes, codes
    assert compared > 10_000
    found = minilm.embeddings(minilm.load(tmp_path / "out"), source)
    assert torch.equal(found, minilm.embeddings(peer, source))
    assert minilm.mean_cosine(found, floating) >= 0.995


def test_a_model_in_several_files_is_loaded(
    tmp_path: Path, source: Path, floating: torch.Tensor
) -> None:
    """Its index names the tensors that came of each."""
    sharded = tmp_path / "sharded"
    shutil.copytree(source, sharded)
    tensors = safetensors.torch.load_file(source / "model.safetensors")
    (sharded / "model.safetensors").unlink()
    names, index = sorted(tensors), {}
    for number, chosen in enumerate((names[:50], names[50:]), 1):
        name = f"model-0000{number}-of-00002.safetensors"
        part = {key: tensors[key] for key in chosen}
        safetensors.torch.save_file(part, sharded / name, {"format": "pt"})
        index |= dict.fromkeys(chosen, name)
    text = json.dumps({"metadata": {}, "weight_map": index})
    (sharded / "model.safetensors.index.json").write_text(text)
    form = Form(CT)
    job = Job(sharded, tmp_path / "out", Scheme.FP8_CHANNEL, form=form)
    quantize_folder(job, HostExecutor(), lambda name, nbytes, total: None)
    found = minilm.embeddings(minilm.load(tmp_path / "out"), source)
    assert minilm.mean_cosine(found, floating) >= 0.995
