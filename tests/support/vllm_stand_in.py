"""Stand-ins for the classes of vLLM that a quantization plugin derives from or calls.

vLLM is not installed where the tests run. These have its names, signatures and abstract methods,
written after its interface as docs/integrations/vllm.md cites it, and none of its behaviour but
the order of calls: create, load, process, apply. A plugin that works with them may still fail in
vLLM.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

BASE = "vllm.model_executor"
METHODS: list[str] = []
CONFIGS: dict[str, type[QuantizationConfig]] = {}


class QuantizationConfig(ABC):
    def __init__(self) -> None:
        super().__init__()
        self.packed_modules_mapping: dict[str, list[str]] = {}

    @abstractmethod
    def get_name(self) -> str: ...

    @abstractmethod
    def get_supported_act_dtypes(self) -> list[torch.dtype]: ...

    @classmethod
    @abstractmethod
    def get_min_capability(cls) -> int: ...

    @staticmethod
    @abstractmethod
    def get_config_filenames() -> list[str]: ...

    @classmethod
    @abstractmethod
    def from_config(cls, config: dict[str, Any]) -> QuantizationConfig: ...

    @abstractmethod
    def get_quant_method(self, layer: torch.nn.Module, prefix: str) -> Any: ...


class LinearMethodBase(ABC):
    @abstractmethod
    def create_weights(self, layer: torch.nn.Module, *args: Any, **attrs: Any) -> None: ...

    @abstractmethod
    def apply(self, layer: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor: ...

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        return


class ModelWeightParameter(torch.nn.Parameter):
    def __new__(cls, data: torch.Tensor, **kwargs: Any) -> ModelWeightParameter:
        made: ModelWeightParameter = super().__new__(cls, data=data, requires_grad=False)
        return made

    def __init__(
        self, *, data: torch.Tensor, input_dim: int, output_dim: int, weight_loader: Any
    ) -> None:
        self.input_dim, self.output_dim = input_dim, output_dim
        self.weight_loader = weight_loader


class LinearBase(torch.nn.Module):
    """A layer of one or several weights, one below the other, on one rank."""

    def __init__(self, columns: int, rows: list[int], config: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.quant_method = config.get_quant_method(self, "model.layers.0.proj")
        self.quant_method.create_weights(
            self, columns, rows, columns, sum(rows), dtype, weight_loader=self.load
        )

    def load(self, parameter: ModelWeightParameter, values: torch.Tensor) -> None:
        parameter.data.copy_(values)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        made: torch.Tensor = self.quant_method.apply(self, x, bias)
        return made


class VocabParallelEmbedding(torch.nn.Module):
    """A layer that is no linear one."""


def register_quantization_config(name: str) -> Callable[[Any], Any]:
    def wrapper(config: Any) -> Any:
        if name in METHODS:
            raise ValueError(f"{name} is there already")
        assert issubclass(config, QuantizationConfig)
        CONFIGS[name] = config
        METHODS.append(name)
        return config

    return wrapper


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes them importable under vLLM's names, for one test."""
    METHODS.clear()
    CONFIGS.clear()
    names = {
        "vllm": {},
        BASE: {},
        f"{BASE}.layers": {},
        f"{BASE}.layers.linear": {"LinearBase": LinearBase, "LinearMethodBase": LinearMethodBase},
        f"{BASE}.layers.quantization": {
            "QUANTIZATION_METHODS": METHODS,
            "register_quantization_config": register_quantization_config,
        },
        f"{BASE}.layers.quantization.base_config": {"QuantizationConfig": QuantizationConfig},
        f"{BASE}.parameter": {"ModelWeightParameter": ModelWeightParameter},
    }
    for name, members in names.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
