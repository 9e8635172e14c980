"""examples/vllm_plugin on stand-ins for vLLM's classes, on the host: vLLM itself is absent."""

from __future__ import annotations

import importlib
import sys
import tomllib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import planq
from support import vllm, vllm_stand_in
from support.docs import ROOT
from support.tensors import from_torch

ROWS, COLUMNS = [32, 16, 16], 96


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plugin, as vLLM's process has it after loading."""
    vllm_stand_in.install(monkeypatch)
    monkeypatch.syspath_prepend(ROOT / "examples" / "vllm_plugin")
    monkeypatch.delitem(sys.modules, "planq_vllm", raising=False)
    module = importlib.import_module("planq_vllm")
    module.register()
    return module


def layer_of(config: Any, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    """A layer that was loaded and processed, and its floating weight."""
    torch.manual_seed(0)
    weight = torch.randn(sum(ROWS), COLUMNS).to(dtype)
    layer = vllm_stand_in.LinearBase(COLUMNS, ROWS, config, dtype)
    layer.weight.weight_loader(layer.weight, weight)
    layer.quant_method.process_weights_after_loading(layer)
    return layer, weight


def int8_rows(x: Any) -> tuple[Any, Any]:
    """Codes and scales: the largest magnitude is 127."""
    wide = x.astype(np.float32)
    scale = np.abs(wide).max(axis=1) / np.float32(127)
    return np.rint(wide / scale[:, None]), scale


def test_it_is_registered_once(plugin: Any) -> None:
    plugin.register()
    assert vllm_stand_in.METHODS == ["planq"]
    assert vllm_stand_in.CONFIGS["planq"] is plugin.PlanqConfig
    config = tomllib.loads((ROOT / "examples" / "vllm_plugin" / "pyproject.toml").read_text())
    assert config["project"]["entry-points"]["vllm.general_plugins"] == {
        "planq": "planq_vllm:register"
    }


def test_a_config_takes_linear_layers_alone(plugin: Any) -> None:
    config = plugin.PlanqConfig()
    assert (config.get_name(), config.get_min_capability()) == ("planq", 80)
    assert config.get_config_filenames() == []
    assert torch.bfloat16 in config.get_supported_act_dtypes()
    assert config.get_quant_method(vllm_stand_in.VocabParallelEmbedding(), "embed") is None
    read = plugin.PlanqConfig.from_config({"quant_method": "planq", "scheme": "fp8"})
    assert (read.scheme, read.determinism) == ("fp8", "bit_exact")
    with pytest.raises(ValueError, match="scheme: expected int8 or fp8, got 'int3'"):
        plugin.PlanqConfig("int3")
    with pytest.raises(planq.DescriptorError, match="determinism: expected Determinism"):
        plugin.PlanqConfig("int8", "exact")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_int8_is_the_formula(plugin: Any, dtype: torch.dtype) -> None:
    """Exact sums of codes, times scales and plus the bias in float32, rounded once."""
    layer, weight = layer_of(plugin.PlanqConfig(), dtype)
    x, bias = torch.randn(5, COLUMNS).to(dtype), torch.randn(sum(ROWS)).to(dtype)
    codes, scale = int8_rows(from_torch(x))
    weight_codes, weight_scale = int8_rows(from_torch(weight))
    assert np.array_equal(layer.weight.numpy(), weight_codes)
    sums = (codes.astype(np.int64) @ weight_codes.astype(np.int64).T).astype(np.float32)
    wide = sums * scale[:, None] * weight_scale[None] + from_torch(bias).astype(np.float32)
    wanted = wide.astype(from_torch(x).dtype)
    assert from_torch(layer(x, bias)).tobytes() == wanted.tobytes()


def test_fp8_is_the_formula(plugin: Any) -> None:
    """vLLM's codes of tokens; a product of fp8 on tensor cores keeps 13 bits of its sums."""
    layer, weight = layer_of(plugin.PlanqConfig("fp8"), torch.bfloat16)
    x = torch.randn(5, COLUMNS).bfloat16()
    made = vllm.quantized(from_torch(x))
    codes = made["output"].view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    wide = from_torch(weight).astype(np.float32)
    weight_scale = np.abs(wide).max(axis=1) / np.float32(448)
    weight_codes = (wide / weight_scale[:, None]).astype(ml_dtypes.float8_e4m3fn)
    assert from_torch(layer.weight).tobytes() == weight_codes.tobytes()
    scales = made["scale"].astype(np.float64)[:, None] * weight_scale[None]
    exact = codes @ weight_codes.astype(np.float64).T * scales
    magnitude = np.abs(codes) @ np.abs(weight_codes.astype(np.float64)).T * scales
    found = from_torch(layer(x)).astype(np.float64)
    assert (np.abs(found - exact) <= 2.0**-9 * np.abs(exact) + 2.0**-9 * magnitude).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("scheme", ["int8", "fp8"])
def test_a_token_has_the_same_bits_in_every_batch(plugin: Any, scheme: str) -> None:
    """And compiled as one graph."""
    layer, _ = layer_of(plugin.PlanqConfig(scheme), torch.bfloat16)
    x = torch.randn(7, COLUMNS, dtype=torch.bfloat16)
    y = layer(x)
    for row in range(7):
        assert torch.equal(layer(x[row : row + 1]), y[row : row + 1])
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    assert torch.equal(compiled(x), y)
