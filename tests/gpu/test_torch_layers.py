"""`planq.torch.nn` on a GPU: bits of the host, gradients, captured and compiled, and training."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import planq
from support.gpu import cuda
from support.torch_layers import (
    DTYPES,
    MADE,
    WITH_CODES,
    adapt,
    check_products,
    check_products_of_codes,
    filled,
    nn,
    sample,
)

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
DEVICE = "cuda:0"
EXACT = planq.PlanPreference(determinism="bit_exact")


def bits(tensor: torch.Tensor) -> bytes:
    """Its bytes."""
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("name", MADE)
def test_a_layer_is_what_its_format_says(name: str) -> None:
    """Weight, product, gradient; beside the formula, float64, and torch's product."""
    check_products(name, DEVICE)


@pytest.mark.parametrize("name", WITH_CODES)
def test_activations_are_quantized_too(name: str) -> None:
    """Products of codes by the formula, and with the host's bits."""
    check_products_of_codes(name, DEVICE)
    make, kind = MADE[name]
    made = make()
    found = []
    for device in ("cpu", DEVICE):
        module = filled(made, kind, device, "token")
        x = sample(7, module.in_features, torch.bfloat16, device)
        with planq.policy(EXACT):
            found.append(bits(module(x)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", MADE)
def test_bits_are_the_hosts(name: str) -> None:
    """Products, and gradients of 16 bits; the state dict, too, and it stays on the GPU."""
    make, kind = MADE[name]
    made = make()
    here, there = filled(made, kind), filled(made, kind, DEVICE)
    state, wanted = there.state_dict(), here.state_dict()
    assert state.keys() == wanted.keys()
    for key, value in state.items():
        assert value.device == torch.device(DEVICE)
        assert bits(value) == bits(wanted[key])
    for dtype in DTYPES:
        x, dy = sample(7, here.in_features, dtype), sample(7, here.out_features, dtype)
        found = []
        with planq.policy(EXACT):
            for module, device in ((here, "cpu"), (there, DEVICE)):
                leaf = x.to(device, copy=True).requires_grad_()
                y = module(leaf)
                y.backward(dy.to(device))
                assert leaf.grad is not None
                found.append((bits(y), bits(leaf.grad)))
        assert found[0][0] == found[1][0]
        assert dtype == torch.float32 or found[0][1] == found[1][1]


@pytest.mark.parametrize("name", ["gptq", "nf4-nested", "fp8-channel", "mxfp4", "packed-8"])
def test_captured(name: str) -> None:
    """Forward and backward, after a call that selected the plans."""
    make, kind = MADE[name]
    module = filled(make(), kind, DEVICE)
    x = sample(5, module.in_features, torch.bfloat16, DEVICE).requires_grad_()
    dy = sample(5, module.out_features, torch.bfloat16, DEVICE)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        y = module(x)
        (grad,) = torch.autograd.grad(y, x, dy)
        return y, grad

    wanted = [bits(each) for each in step()]
    graph: Any = cuda.CUDAGraph()
    cuda.synchronize()
    with cuda.graph(graph):
        results = step()
    for _ in range(2):
        for each in results:
            each.detach().zero_()
        graph.replay()
        cuda.synchronize()
        assert [bits(each) for each in results] == wanted


@pytest.mark.parametrize("name", ["gptq", "nf4"])
def test_compiled_whole(name: str) -> None:
    make, kind = MADE[name]
    module = filled(make(), kind, DEVICE)
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True)
    for rows in (2, 3, 100):
        pair = [
            sample(rows, module.in_features, torch.bfloat16, DEVICE).requires_grad_()
            for _ in range(2)
        ]
        for call, x in zip((compiled, module), pair, strict=True):
            y = call(x)
            y.backward(sample(rows, module.out_features, torch.bfloat16, DEVICE))
        assert torch.equal(compiled(pair[0]), module(pair[1]))
        assert pair[0].grad is not None
        assert pair[1].grad is not None
        assert torch.equal(pair[0].grad, pair[1].grad)


def network() -> torch.nn.Module:
    """Three layers with random weights."""
    torch.manual_seed(0)
    parts = (torch.nn.Linear(256, 512), torch.nn.SiLU(), torch.nn.Linear(512, 256))
    return torch.nn.Sequential(*parts).bfloat16()


def test_layers_of_a_model_have_the_digests_of_the_host() -> None:
    """Those of a model that was moved before, and after."""
    with planq.policy(EXACT):
        wanted = nn.quantize_layers(network(), "nf4", default_excludes=False)
        found = nn.quantize_layers(network().to(DEVICE), "nf4", default_excludes=False)
    assert [layer.digest for layer in found.layers] == [layer.digest for layer in wanted.layers]
    for ours, theirs in zip(found.layers, wanted.layers, strict=True):
        assert ours.cosine == pytest.approx(theirs.cosine, abs=1e-4)


def test_adapters_learn_beside_frozen_layers() -> None:
    """QLoRA: the loss falls."""
    model = network().to(DEVICE)
    nn.quantize_layers(model, "nf4", default_excludes=False)
    trained = adapt(model, (nn.Linear4bit,))
    assert len(trained) == 4
    x = sample(64, 256, torch.bfloat16, DEVICE)
    wanted = torch.roll(x, 1, 1).float()
    optimizer, losses = torch.optim.AdamW(trained, lr=2e-2), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).float(), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
