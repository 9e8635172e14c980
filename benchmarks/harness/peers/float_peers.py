"""Who else multiplies floating activations: torch, bitsandbytes, tinygemm, and torch's fp8."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import planq
from harness.core.cuda import CudaMachine
from harness.core.product import transposed_sides
from harness.core.workload import Machine, Operands, Workload
from harness.formulas import codebook, gguf, static
from harness.peers import bnb
from harness.peers.peer import Call, Peer, product_peer

STATISTICS = ("absmax", "codebook", "nested_absmax", "nested_offset", "nested_codebook")
INNER_TILES = 8  # of tinygemm's weights along k


def decoder(desc: Any) -> Callable[[Operands], torch.Tensor]:
    """What gives the weight of a layer back, as torch operations, in the type of the activations.

    Raises:
        ValueError: A weight that torch has no operations for here.
    """
    if desc.operator == "matmul":
        return lambda given: given["weight"]
    if desc.operator == "linear_gguf":
        return lambda given: gguf.weight(desc, given["weight"]).to(given["input"].dtype)
    if getattr(desc, "weight_layout", None) not in (None, planq.WeightLayout.ROW_MAJOR):
        raise ValueError(f"no torch operations for {desc}")
    formula: Any
    shared = {"shape": desc.weight_shape, "nibble_order": desc.nibble_order}
    if getattr(desc, "block_size", None) is not None:
        names = ("codebook", "block_size", "nested_block_size")
        shared |= {"input_dtype": "uint4", "output_dtype": desc.weight_dtype}
        shared |= {name: getattr(desc, name) for name in names}
        formula = codebook.Dequantize(planq.BlockwiseDequantizeDescriptor(**shared))
    else:
        if desc.nibble_order is not planq.NibbleOrder.LOW_FIRST:
            raise ValueError(f"no torch operations for {desc}")
        output = getattr(desc, "weight_dtype", desc.input_dtype)
        shared |= {"input_dtype": desc.code_dtype, "output_dtype": output}
        shared |= {"scope": desc.weight_scope, "mode": desc.weight_mode}
        formula = static.Dequantize(planq.DequantizeDescriptor(**shared))

    def decode(given: Operands) -> torch.Tensor:
        parts = {"input": given["weight"]}
        parts |= {name: given[name] for name in STATISTICS if name in given}
        for name in ("scale", "zero_point"):
            if f"weight_{name}" in given:
                parts[name] = given[f"weight_{name}"]
        found: torch.Tensor = formula(parts)[0]
        return found.to(given["input"].dtype)

    return decode


def _linear(
    given: Operands, weight: torch.Tensor, transposed: tuple[str, ...] = ()
) -> torch.Tensor:
    x = given["input"].t() if "input" in transposed else given["input"]
    weight = weight.t() if "weight" in transposed else weight
    bias = given["bias"].to(x.dtype) if "bias" in given else None
    return torch.nn.functional.linear(x, weight, bias)


def torch_linear(machine: Machine, workload: Workload) -> Peer:
    """The product with a weight that was given back before: on a GPU cuBLAS."""
    decode = decoder(workload.case.descriptor)
    transposed = transposed_sides(workload.case.descriptor)
    calls = [partial(_linear, given, decode(given), transposed) for given in workload.sets]
    return product_peer("torch_linear", workload, calls)


def dequantize_linear(machine: Machine, workload: Workload) -> Peer | None:
    """Both, one after the other; codes in blocks are given back by bitsandbytes."""
    desc = workload.case.descriptor
    if getattr(desc, "block_size", None) is None:
        decode = decoder(desc)
        calls: list[Call] = [
            lambda given=given: _linear(given, decode(given)) for given in workload.sets
        ]
        return product_peer("dequantize_linear", workload, calls)
    if importlib.util.find_spec("bitsandbytes") is None:
        return None
    library: Any = importlib.import_module("bitsandbytes.functional")

    def prepared(given: Operands) -> Call:
        state = bnb.state_of(library, desc, given, desc.weight_shape, desc.weight_dtype)
        weight = given["weight"].view(-1, 1)
        return lambda: _linear(given, library.dequantize_4bit(weight, state))

    calls = [prepared(given) for given in workload.sets]
    return product_peer("dequantize_linear", workload, calls, capturable=False)


def four_bit_layer(desc: Any, operations: Any, given: Operands, output: torch.dtype) -> Call:
    """The layer of bitsandbytes, on codes and statistics as they are."""
    library: Any = importlib.import_module("bitsandbytes")
    state = bnb.state_of(library.functional, desc, given, desc.weight_shape, desc.weight_dtype)
    weight = given["weight"].view(-1, 1)
    return partial(
        library.matmul_4bit, given["input"], weight, quant_state=state, bias=given.get("bias")
    )


def tinygemm(machine: Machine, workload: Workload) -> Peer | None:
    """A product of torch with int4 in groups, whose scales have the type of the activations."""
    desc = workload.case.descriptor
    if not isinstance(machine, CudaMachine):
        return None
    operations: Any = torch.ops.aten

    def prepared(given: Operands) -> Call:
        # Its codes count from the lowest, and the first of a byte is the high one.
        codes = given["weight"] ^ 0x88
        packed = operations._convert_weight_to_int4pack(codes << 4 | codes >> 4, INNER_TILES)
        scales = given["weight_scale"].t()
        both = torch.stack((scales, torch.zeros_like(scales)), -1).to(given["input"].dtype)
        return partial(
            operations._weight_int4pack_mm,
            given["input"],
            packed,
            desc.weight_scope.size,
            both.contiguous(),
        )

    return product_peer("tinygemm", workload, [prepared(given) for given in workload.sets])


def grouped_mm(machine: Machine, workload: Workload) -> Peer:
    """A product of torch for all experts, with weights that were given back before."""
    decode = decoder(workload.case.descriptor)

    def prepared(given: Operands) -> Call:
        weight = decode(given).transpose(1, 2)
        offsets = given["expert_offset"][1:].clone()
        return lambda: torch._grouped_mm(given["input"], weight, offs=offsets)

    return product_peer("grouped_mm", workload, [prepared(given) for given in workload.sets])


def humming(machine: Machine, workload: Workload) -> Peer | None:
    """What vLLM serves int4 groups with, on weights that it has repacked; compiled on first use."""
    desc = workload.case.descriptor
    if not isinstance(machine, CudaMachine) or importlib.util.find_spec("humming") is None:
        return None
    module: Any = importlib.import_module("humming.layer")
    forward: Any = importlib.import_module("humming.forward").humming_forward
    dtype = getattr(torch, desc.input_dtype.value)
    config = {"dtype": desc.code_dtype.value, "group_size": desc.weight_scope.size}
    n, k = desc.weight_shape
    make = partial(
        module.HummingLayer, shape_n=n, shape_k=k, weight_config=config, torch_dtype=dtype
    )
    decode = decoder(desc)

    def prepared(given: Operands) -> Call:
        layer = make().cuda()
        layer.load_from_unquantized(decode(given))
        layer.transform()
        parts = {"weight": layer.weight, "weight_scale": layer.weight_scale, "locks": layer.locks}
        parts["zero_point"] = getattr(layer, "zero_point", None)
        output = torch.empty_like(given["output"])
        return partial(
            forward, layer.humming_config, inputs=given["input"], outputs=output, **parts
        )

    return product_peer("humming", workload, [prepared(given) for given in workload.sets])


def scaled_mm_accurate(machine: Machine, workload: Workload) -> Peer | None:
    """A product of torch with the same codes and scales, without fast accumulation.

    Its sums are promoted as planq's slices are, and scaled in another order.
    """
    desc = workload.case.descriptor
    if not isinstance(machine, CudaMachine):
        return None
    output = getattr(torch, desc.output_dtype.value)

    def prepared(given: Operands) -> Call:
        x, weight = (
            given[side].view(getattr(torch, getattr(desc, f"{side}_dtype").value))
            for side in ("input", "weight")
        )
        return partial(
            torch._scaled_mm,
            x,
            weight.t(),
            given["input_scale"].view(-1, 1),
            given["weight_scale"].view(1, -1),
            out_dtype=output,
            use_fast_accum=False,
        )

    calls = [prepared(given) for given in workload.sets]
    return product_peer("scaled_mm_accurate", workload, calls)


FLOAT_MAKERS: dict[str, Callable[[Machine, Workload], Peer | None]] = {
    "torch_linear": torch_linear,
    "dequantize_linear": dequantize_linear,
    "tinygemm": tinygemm,
    "humming": humming,
    "grouped_mm": grouped_mm,
    "scaled_mm_accurate": scaled_mm_accurate,
}
