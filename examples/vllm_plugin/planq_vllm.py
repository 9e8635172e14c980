"""vLLM's linear layers by plans of planq: int8 or fp8, activations quantized token by token.

A skeleton. It has run on stand-ins for the classes of vLLM that it derives from, on the host
(tests/engine/test_vllm_plugin.py), and in no vLLM yet. docs/integrations/vllm.md says what is
missing.

    pip install ./examples/vllm_plugin
    vllm serve MODEL --quantization planq

Weights are loaded as they are, floating, and quantized where they lie: so any checkpoint and any
split over GPUs that vLLM loads without quantization will do.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase
from vllm.model_executor.layers.quantization import (
    QUANTIZATION_METHODS,
    register_quantization_config,
)
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.parameter import ModelWeightParameter

import planq.torch

NAME = "planq"
CODES = {"int8": "int8", "fp8": "float8_e4m3fn"}


class PlanqConfig(QuantizationConfig):
    """What ``quantization_config`` of a model says, or nothing.

    Args:
        scheme: ``int8``, or ``fp8`` for float8_e4m3fn.
        determinism: What every call insists on: ``bit_exact`` for the same bits on every GPU and
            on the host, ``run_to_run`` for the fastest kernels where those for ``bit_exact`` are
            slow (fp8 on other GPUs than those of compute capability 9.0).
    """

    def __init__(self, scheme: str = "int8", determinism: str = "bit_exact") -> None:
        super().__init__()
        if scheme not in CODES:
            raise ValueError(f"scheme: expected {' or '.join(CODES)}, got {scheme!r}")
        planq.PlanPreference(determinism=determinism)  # refuses other words here, not in a step
        self.scheme, self.determinism = scheme, determinism

    def get_name(self) -> str:
        return NAME

    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @staticmethod
    def get_config_filenames() -> list[str]:
        return []  # so vLLM makes the config without arguments, where the model has none

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> PlanqConfig:
        return cls(config.get("scheme", "int8"), config.get("determinism", "bit_exact"))

    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> LinearMethodBase | None:
        """Embeddings and output layers are no `LinearBase`: they stay floating."""
        return PlanqLinearMethod(self) if isinstance(layer, LinearBase) else None


class PlanqLinearMethod(LinearMethodBase):
    """A layer's weight, from loading to its product."""

    def __init__(self, config: PlanqConfig) -> None:
        self.codes = CODES[config.scheme]
        self.wish = {"determinism": config.determinism, "batch_invariant": True}

    def create_weights(
        self,
        layer: torch.nn.Module,
        input_size_per_partition: int,
        output_partition_sizes: list[int],
        input_size: int,
        output_size: int,
        params_dtype: torch.dtype,
        **extra_weight_attrs: Any,
    ) -> None:
        """A floating weight, which vLLM's loaders fill: those of queries, keys and values, too."""
        weight = ModelWeightParameter(
            data=torch.empty(
                sum(output_partition_sizes), input_size_per_partition, dtype=params_dtype
            ),
            input_dim=1,
            output_dim=0,
            weight_loader=extra_weight_attrs["weight_loader"],
        )
        layer.register_parameter("weight", weight)

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Codes and a scale for each row take the weight's place."""
        codes, scale = torch.ops.planq.dynamic_range_quantize(
            layer.weight.data, self.codes, scope="channel(0)", determinism="bit_exact"
        )
        layer.weight = torch.nn.Parameter(codes, requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)

    def apply(
        self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """One or two plans on vLLM's stream, with memory of torch's allocator.

        Both are in CUDA graphs and in compiled programs what they are outside.
        """
        dtype = str(x.dtype).removeprefix("torch.")
        weight, scale = layer.weight, layer.weight_scale
        y: torch.Tensor
        if self.codes == "int8":
            y = torch.ops.planq.linear_w8a8_dynamic(x, weight, scale, dtype, bias=bias, **self.wish)
            return y
        codes, input_scale = torch.ops.planq.dynamic_range_quantize(
            x, self.codes, convention="vllm", **self.wish
        )
        y = torch.ops.planq.linear_fp8(
            codes, weight, input_scale, scale, dtype, bias=bias, **self.wish
        )
        return y


def register() -> None:
    """What vLLM calls in each of its processes, perhaps more than once."""
    if NAME not in QUANTIZATION_METHODS:
        register_quantization_config(NAME)(PlanqConfig)
