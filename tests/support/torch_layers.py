"""Layers of `planq.torch.nn` in every format, and what is asked of each, on any device.

Weights are those of `checkpoint.peers`: the formula of a format's description on codes that were
drawn. Products and gradients are compared with float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import torch

import planq
import planq.torch.nn
from checkpoint import peers
from support.tensors import as_torch

if TYPE_CHECKING:
    from collections.abc import Callable

nn: Any = planq.torch.nn
E4M3 = ml_dtypes.float8_e4m3fn
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Of a product, beside the sum of magnitudes: the weight's rounding to 16 bits, or that of the
# result; of float32 the rounding of sums.
ERRORS = {torch.float32: 2.0**-18, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}


def blocks(table: str = "nf4", n: int = 24, k: int = 256, nested: bool = False) -> peers.Made:
    """Blocks of bitsandbytes; nested absmax are ``codes * absmax + mean``, in float32."""
    random = np.random.default_rng(7)
    codes = random.integers(0, 16, (n, k))
    codebook = getattr(planq.codebooks, table)()
    absmax = (random.random(n * k // 64) + 0.5).astype(np.float32)
    state: dict[str, Any] = {"absmax": absmax}
    if nested:
        state["absmax"] = random.integers(0, 256, absmax.size).astype(np.uint8)
        dynamic = planq.codebooks.dynamic()
        largest = (random.random(-(-absmax.size // 256)) + 0.5).astype(np.float32)
        offset = np.float32(1.25)
        state |= {
            "nested_absmax": largest,
            "nested_codebook": dynamic,
            "nested_block_size": 256,
            "nested_offset": np.array(offset),
        }
        absmax = dynamic[state["absmax"]] * np.repeat(largest, 256)[: absmax.size] + offset
    packed = planq.QuantState(
        codebook=codebook, block_size=64, dtype="float32", shape=(n, k), quant_type=table, **state
    ).to_dict(packed=True)
    flat = codes.reshape(-1)
    name = "model.q_proj"
    tensors = {f"{name}.weight": (flat[0::2] << 4 | flat[1::2]).astype(np.uint8)[:, None]}
    tensors |= {f"{name}.weight.{key}": values for key, values in packed.items()}
    weight = (codebook[flat] * np.repeat(absmax, 64)).reshape(n, k)
    return peers.Made(tensors, {"quant_method": "bitsandbytes"}, weight)


def with_bias(made: peers.Made) -> peers.Made:
    """The layer with a bias in bfloat16."""
    made.bias = np.random.default_rng(8).standard_normal(len(made.weight))
    made.bias = made.bias.astype(ml_dtypes.bfloat16)
    made.tensors[f"{made.name}.bias"] = made.bias
    return made


MADE: dict[str, tuple[Callable[[], peers.Made], str]] = {
    "gptq": (peers.gptq, "Linear4bit"),
    "gptq-short-group": (lambda: peers.gptq(k=320), "Linear4bit"),
    "gptq_v2": (lambda: with_bias(peers.gptq(version="gptq_v2", size=32)), "Linear4bit"),
    "gptq-8": (lambda: peers.gptq(bits=8), "Linear8bit"),
    "awq": (peers.awq, "Linear4bit"),
    "awq-odd": (lambda: peers.awq(k=131, size=131), "Linear4bit"),
    "packed": (lambda: with_bias(peers.packed()), "Linear4bit"),
    "packed-asymmetric": (lambda: peers.packed(n=21, symmetric=False), "Linear4bit"),
    "packed-channel": (lambda: peers.packed(n=21, k=131, size=None), "Linear4bit"),
    "packed-8": (lambda: peers.packed(bits=8, size=64), "Linear8bit"),
    "packed-8-channel": (lambda: peers.packed(bits=8, k=131, size=None), "Linear8bit"),
    "packed-8-asymmetric": (
        lambda: peers.packed(n=21, bits=8, symmetric=False, dtype=np.float32),
        "Linear8bit",
    ),
    "mxfp4": (peers.float4, "Linear4bit"),
    "nvfp4": (lambda: peers.float4(size=16), "Linear4bit"),
    "nf4": (blocks, "Linear4bit"),
    "nf4-nested": (lambda: with_bias(blocks(nested=True)), "Linear4bit"),
    "fp4": (lambda: blocks("fp4"), "Linear4bit"),
    "int8-channel": (peers.unpacked, "Linear8bit"),
    "int8-tensor": (lambda: peers.unpacked(scales="tensor"), "Linear8bit"),
    "bitsandbytes-int8": (peers.rows_of_bitsandbytes, "Linear8bit"),
    "fp8-channel": (lambda: peers.unpacked(code=E4M3, dtype=np.float16), "LinearFp8"),
    "fp8-e5m2": (lambda: peers.unpacked(code=ml_dtypes.float8_e5m2), "LinearFp8"),
    "fp8-block": (
        lambda: peers.unpacked(
            code=E4M3, scales="block", dtype=np.float32, suffix="weight_scale_inv"
        ),
        "LinearFp8",
    ),
}


def state_of(made: peers.Made, prefix: str = "") -> dict[str, torch.Tensor]:
    """The tensors of the file as a state dict."""
    start = len(made.name) + 1
    return {prefix + name[start:]: as_torch(values) for name, values in made.tensors.items()}


def filled(made: peers.Made, kind: str, device: str = "cpu", activations: str = "none") -> Any:
    """A module that has loaded the layer."""
    n, k = made.weight.shape
    config = made.config
    module = getattr(nn, kind)(k, n, quantization_config=config, activations=activations)
    module.load_state_dict(state_of(made))
    return module.to(device)


def sample(rows: int, columns: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Normal numbers."""
    values = np.random.default_rng(rows * columns).standard_normal((rows, columns))
    return torch.from_numpy(values).to(device, dtype)


def near(
    found: torch.Tensor, a: torch.Tensor, b: torch.Tensor, added: torch.Tensor, error: float
) -> bool:
    """Whether a product is that of float64, within a part of the sum of magnitudes."""
    a, b, added = (each.detach().double().cpu() for each in (a, b, added))
    exact = a @ b + added
    bound = error * (a.abs() @ b.abs() + added.abs())
    return bool(((found.detach().double().cpu() - exact).abs() <= bound).all())


def check_products(name: str, device: str) -> None:
    """The weight, the product and the gradient of a format's layer."""
    make, kind = MADE[name]
    made = make()
    module = filled(made, kind, device)
    weight = torch.from_numpy(np.ascontiguousarray(made.weight))
    found = module.dequantize()
    if "nested" in name:  # the sum of a product and a number, which NumPy rounds twice
        torch.testing.assert_close(found.cpu(), weight, rtol=2.0**-22, atol=0)
    else:
        assert torch.equal(found.cpu(), weight)
    bias = torch.zeros(1) if made.bias is None else as_torch(made.bias)
    n, k = weight.shape
    for dtype in DTYPES:
        if dtype == torch.float16 and weight.abs().max() > 1e3:
            continue  # numbers of these scales do not fit
        x = sample(5, k, dtype, device).requires_grad_()
        y = module(x)
        assert (y.dtype, y.shape, y.device) == (dtype, (5, n), x.device)
        assert near(y, x, weight.T, bias, ERRORS[dtype])
        dy = sample(5, n, dtype, device)
        y.backward(dy)
        assert x.grad is not None
        assert x.grad.dtype == dtype
        assert near(x.grad, dy, weight, torch.zeros(1), ERRORS[dtype])
        # torch's own product with the same weight, rounded to the same type.
        theirs = dy.float() @ module.dequantize(dtype).float()
        assert near(theirs, dy, weight, torch.zeros(1), ERRORS[dtype])
        scale = dy.float().abs() @ weight.abs().to(device)
        assert bool(((x.grad.float() - theirs).abs() <= ERRORS[dtype] * scale).all())


# Formats whose activations may be quantized as they come, and what shares a scale among them.
WITH_CODES = {
    "int8-channel": 0,
    "int8-tensor": 0,
    "fp8-channel": 0,
    "fp8-e5m2": 0,
    "fp8-block": 128,
}


def check_products_of_codes(name: str, device: str) -> None:
    """Products of codes on both sides, beside float64; the gradient is that of floating ones."""
    make, kind = MADE[name]
    made = with_bias(make())
    n, k = made.weight.shape
    module = getattr(nn, kind)(k, n, activations="token")
    module.load_state_dict(state_of(made))
    module = module.to(device)
    weight, bias = torch.from_numpy(np.ascontiguousarray(made.weight)), as_torch(made.bias)
    assert torch.equal(module.dequantize().cpu(), weight)
    for dtype in DTYPES:
        x = sample(5, k, dtype, device).requires_grad_()
        groups = x.detach().float().cpu().split(WITH_CODES[name] or k, dim=1)
        rounded = []
        for group in groups:
            largest = group.abs().amax(1, keepdim=True)
            scale = largest / (127 if kind == "Linear8bit" else 448)
            codes = group / scale
            codes = codes.round() if kind == "Linear8bit" else codes.to(torch.float8_e4m3fn).float()
            rounded.append(codes.double() * scale.double())
        y = module(x)
        assert (y.dtype, y.shape) == (dtype, (5, n))
        # Sums of integers are exact; those of fp8 keep 13 bits. One rounding to the output's type.
        error = torch.finfo(dtype).eps + (2.0**-22 if kind == "Linear8bit" else 2.0**-10)
        assert near(y, torch.cat(rounded, 1), weight.T, bias, error)
        dy = sample(5, n, dtype, device)
        y.backward(dy)
        assert x.grad is not None
        assert near(x.grad, dy, weight, torch.zeros(1), ERRORS[dtype])


class LowRank(torch.nn.Module):
    """A frozen layer with an adapter beside it: ``y = layer(x) + x A^T B^T``."""

    def __init__(self, layer: torch.nn.Module, rank: int = 4) -> None:
        super().__init__()
        n, k = int(layer.out_features), int(layer.in_features)  # type: ignore[arg-type]
        draw = torch.Generator().manual_seed(n * k)
        self.layer = layer
        self.down = torch.nn.Parameter(torch.randn(rank, k, generator=draw) / k**0.5)
        self.up = torch.nn.Parameter(torch.randn(n, rank, generator=draw) / 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.nn.functional.linear(x, self.down.to(x.dtype))
        made: torch.Tensor = self.layer(x) + torch.nn.functional.linear(low, self.up.to(x.dtype))
        return made


def adapt(model: torch.nn.Module, kinds: tuple[type[torch.nn.Module], ...]) -> list[Any]:
    """Freezes a model, adapts each layer of these types, and returns the parameters that train."""
    model.requires_grad_(False)
    places = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    for name in places:
        layer = model.get_submodule(name)
        device = next(iter((*layer.parameters(), *layer.buffers()))).device
        model.set_submodule(name, LowRank(layer).to(device))
    return [parameter for parameter in model.parameters() if parameter.requires_grad]
