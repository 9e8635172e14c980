"""Who else multiplies codes: torch, torchao, bitsandbytes, CUTLASS, and torch's fp8."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from harness.core.cuda import CudaMachine
from harness.core.workload import Machine, Operands, Workload
from harness.native.native import cutlass_products
from harness.peers.float_peers import FLOAT_MAKERS, four_bit_layer
from harness.peers.peer import Call, Peer, product_peer

FLOAT8 = torch.float8_e4m3fn
BITSANDBYTES_RANGE = 127.0  # its scales are the largest magnitudes, for codes up to this


def _scales(given: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the rows and the columns, in shapes that broadcast."""
    return given["input_scale"].view(-1, 1), given["weight_scale"].view(1, -1)


def int_mm(machine: Machine, workload: Workload) -> Peer:
    """The product alone, whatever is made of it."""

    def call(given: Operands) -> torch.Tensor:
        found: torch.Tensor = torch._int_mm(given["input"], given["weight"].t())
        return found

    return product_peer("int_mm", workload, [partial(call, given) for given in workload.sets])


def int_mm_scaled(machine: Machine, workload: Workload) -> Peer:
    """The product, then torch's operations for scales and bias."""
    output = getattr(torch, workload.case.descriptor.output_dtype.value)

    def call(given: Operands) -> torch.Tensor:
        rows, columns = _scales(given)
        t = torch._int_mm(given["input"], given["weight"].t()).to(rows.dtype) * rows * columns
        return (t + given["bias"].to(t.dtype) if "bias" in given else t).to(output)

    return product_peer(
        "int_mm_scaled", workload, [partial(call, given) for given in workload.sets]
    )


def torchao(machine: Machine, workload: Workload) -> Peer | None:
    """Its kernel in Triton, tuned for the problem; scales have the type of the output."""
    missing = [name for name in ("torchao", "triton") if importlib.util.find_spec(name) is None]
    if missing or not isinstance(machine, CudaMachine):
        return None
    module: Any = importlib.import_module("torchao.prototype.quantized_training.int8_mm")
    output = getattr(torch, workload.case.descriptor.output_dtype.value)

    def prepared(given: Operands) -> Call:
        scales = [scale.to(output) for scale in _scales(given)]
        return partial(module.scaled_int8_mm, given["input"], given["weight"].t(), *scales)

    return product_peer("torchao", workload, [prepared(given) for given in workload.sets])


def scaled_mm(machine: Machine, workload: Workload) -> Peer | None:
    """The same problem in fp8, with scales of rows and columns: other numbers, as many bytes."""
    if not isinstance(machine, CudaMachine):
        return None
    output = getattr(torch, workload.case.descriptor.output_dtype.value)

    def prepared(given: Operands) -> Call:
        x, weight = (given[name].to(FLOAT8) for name in ("input", "weight"))
        rows, columns = _scales(given)
        return partial(
            torch._scaled_mm, x, weight.t(), rows, columns, out_dtype=output, use_fast_accum=True
        )

    # Not one result can be compared.
    calls = [prepared(given) for given in workload.sets]
    begin = time.perf_counter()
    calls[0]()
    return Peer("scaled_mm", list(calls), prepared=time.perf_counter() - begin)


def cutlass(machine: Machine, workload: Workload) -> Peer | None:
    """The faster of its tiles, to bfloat16 with scales or to int32 without."""
    if not isinstance(machine, CudaMachine):
        return None
    products = cutlass_products(machine.device.arch, machine.stream.cuda_stream)
    problem = workload.case.product
    if products is None or problem is None:
        return None
    made = [(given, torch.empty_like(given["output"])) for given in workload.sets]

    def call(tile: int, given: Operands, output: torch.Tensor) -> torch.Tensor:
        scales = _scales(given) if output.dtype is torch.bfloat16 else (None, None)
        products(tile, (given["input"], given["weight"], *scales, output), problem)
        return output

    def calls(tile: int) -> list[Call]:
        return [partial(call, tile, given, output) for given, output in made]

    traffic = workload.case.traffic
    tiles = range(len(products.tiles))
    seconds = [machine.measure(list(calls(tile)), traffic).seconds for tile in tiles]
    best = min(tiles, key=lambda tile: seconds[tile])
    what = f"CUTLASS {products.version}, {products.tiles[best]}"
    return product_peer("cutlass", workload, calls(best), what=what)


def bitsandbytes(workload: Workload) -> Peer:
    """Its int8 layer on the same codes: product and scales, from floating inputs all of it."""
    importlib.import_module("bitsandbytes")
    operations: Any = torch.ops.bitsandbytes
    desc = workload.case.descriptor
    output = getattr(torch, desc.output_dtype.value)
    makers: dict[str, Callable[[Any, Operands, torch.dtype], Call]] = {
        "linear_4bit": partial(four_bit_layer, desc),
        "matmul_int8": _bnb_product,
        "linear_w8a8": _bnb_layer,
        "linear_w8a8_dynamic": _bnb_dynamic,
        "linear_llm_int8": _bnb_mixed,
    }
    maker = makers[desc.operator]
    calls = [maker(operations, given, output) for given in workload.sets]
    return product_peer("bitsandbytes", workload, calls, capturable=False)


def _bnb_product(operations: Any, given: Operands, output: torch.dtype) -> Call:
    return partial(operations.int8_linear_matmul, given["input"], given["weight"])


def _bnb_layer(operations: Any, given: Operands, output: torch.dtype) -> Call:
    rows, columns = (scale.flatten() * BITSANDBYTES_RANGE for scale in _scales(given))
    codes = given["input"], given["weight"]
    return partial(
        operations.int8_scaled_mm, *codes, rows, columns, bias=given.get("bias"), dtype=output
    )


def _bnb_dynamic(operations: Any, given: Operands, output: torch.dtype) -> Call:
    columns = given["weight_scale"] * BITSANDBYTES_RANGE

    def call() -> torch.Tensor:
        codes, rows, _ = operations.int8_vectorwise_quant(given["input"], 0.0)
        found: torch.Tensor = operations.int8_scaled_mm(
            codes, given["weight"], rows, columns, bias=given.get("bias"), dtype=output
        )
        return found

    return call


def _bnb_mixed(operations: Any, given: Operands, output: torch.dtype) -> Call:
    """Its outliers are columns of the activations before they were quantized."""
    rows, columns = (scale.flatten() * BITSANDBYTES_RANGE for scale in _scales(given))
    codes, weight = given["input"], given["weight"]
    count = int(given["count"])
    places = given["index"][:count].long()
    before = torch.zeros(codes.shape, dtype=output, device=codes.device)
    before[:, places] = given["outlier"][:, :count].to(output)

    def call() -> torch.Tensor:
        found: torch.Tensor
        found, _ = operations.int8_mixed_scaled_mm(
            before, codes, weight, rows, columns, places, given.get("bias")
        )
        return found

    return call


MAKERS: dict[str, Callable[[Machine, Workload], Peer | None]] = {
    "int_mm": int_mm,
    "int_mm_scaled": int_mm_scaled,
    "torchao": torchao,
    "scaled_mm": scaled_mm,
    "cutlass": cutlass,
    **FLOAT_MAKERS,
}
