"""`planq.torch.nn`: layers in every format, their gradients, and their state dicts."""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import planq
import planq.torch
from checkpoint import peers
from planq.checkpoint.failure import CheckpointError, TensorError
from support.tensors import as_torch
from support.torch_layers import (
    MADE,
    WITH_CODES,
    blocks,
    check_products,
    check_products_of_codes,
    filled,
    nn,
    sample,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

KINDS = (nn.Linear4bit, nn.Linear8bit, nn.LinearFp8)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors have one type, one shape and the same bytes."""
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    views = (each.contiguous().reshape(-1).view(torch.uint8) for each in (ours, theirs))
    return torch.equal(*views)


@pytest.mark.parametrize("name", MADE)
def test_a_layer_is_what_its_format_says(name: str) -> None:
    """Weight, product, gradient; beside the formula, float64, and torch's product."""
    check_products(name, "cpu")


@pytest.mark.parametrize("name", WITH_CODES)
def test_activations_are_quantized_too(name: str) -> None:
    """Products by the formula; state dicts stay those of the file."""
    check_products_of_codes(name, "cpu")
    make, kind = MADE[name]
    made = make()
    n, k = made.weight.shape
    module = getattr(nn, kind)(k, n, activations="token")
    wanted = state_of(made)
    module.load_state_dict(wanted)
    found = module.state_dict()
    assert found.keys() == wanted.keys()
    assert all(same(found[key], wanted[key]) for key in wanted)
    scope = "group(128)" if WITH_CODES[name] else "token()"
    assert f"activations by {scope}, stored as" in repr(module)
    x = sample(4, k, torch.bfloat16)
    assert torch.equal(module(x)[1], module(x[1]))


@pytest.mark.parametrize("name", ["gptq", "packed-8", "nf4", "mxfp4", "packed-8-asymmetric"])
def test_codes_without_a_product_of_codes_are_refused(name: str) -> None:
    make, kind = MADE[name]
    made = make()
    n, k = made.weight.shape
    module = getattr(nn, kind)(k, n, quantization_config=made.config, activations="token")
    with pytest.raises(planq.ArgumentError, match="activations: expected int8 codes by rows"):
        module.load_state_dict(state_of(made))
    with pytest.raises(planq.ArgumentError, match="activations: expected none or token, got 'x'"):
        getattr(nn, kind)(k, n, activations="x")


@pytest.mark.parametrize("name", MADE)
def test_a_state_dict_has_the_tensors_of_the_file(name: str) -> None:
    """Names, types, shapes and bytes, under any prefix; and in memory hardly more bytes."""
    make, kind = MADE[name]
    made = make()
    wanted = state_of(made)
    module = filled(made, kind)
    found = module.state_dict()
    assert found.keys() == wanted.keys()
    assert all(same(found[key], wanted[key]) for key in wanted)
    n, k = made.weight.shape
    outer = torch.nn.Sequential(
        torch.nn.Identity(), getattr(nn, kind)(k, n, quantization_config=made.config)
    )
    outer.load_state_dict(state_of(made, "1."))
    x = sample(3, k, torch.float32)
    assert torch.equal(outer(x), module(x))
    assert module.nbytes <= sum(value.nbytes for value in wanted.values()) + 4 * n * -(-k // 128)
    assert not list(module.parameters())
    assert not hasattr(module, "weight"), "models take its type for that of activations"


@pytest.mark.parametrize("name", ["gptq", "packed-asymmetric", "nf4-nested", "nvfp4", "fp8-block"])
def test_copies_and_moves_keep_every_number(name: str) -> None:
    """Types are part of the format: `half()` converts none, and `meta` keeps the names."""
    make, kind = MADE[name]
    module = filled(make(), kind)
    wanted = module.state_dict()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    for other in (copy.deepcopy(module), again, copy.deepcopy(module).half().double().bfloat16()):
        state = other.state_dict()
        assert all(same(state[key], wanted[key]) for key in wanted)
        x = sample(3, module.in_features, torch.float32)
        assert torch.equal(other(x), module(x))
    empty = copy.deepcopy(module).to("meta").state_dict()
    told = {key: (value.dtype, value.shape) for key, value in empty.items()}
    assert told == {key: (value.dtype, value.shape) for key, value in wanted.items()}
    moved = copy.deepcopy(module).to("meta")
    moved.load_state_dict(wanted)
    assert torch.equal(moved(x), module(x))


def test_it_says_what_it_is() -> None:
    module = filled(MADE["packed-asymmetric"][0](), "Linear4bit")
    said = "in_features=256, out_features=21, bias=False, uint4 by group(128, axis=-1), zero points"
    assert repr(module) == f"Linear4bit({said}, stored as pack-quantized)"
    nested = filled(MADE["nf4-nested"][0](), "Linear4bit")
    assert "bias=True, nf4 in blocks of 64, nested, stored as bitsandbytes" in repr(nested)
    assert repr(nn.LinearFp8(3, 2)) == "LinearFp8(in_features=3, out_features=2, empty)"
    assert module.stored_as == "pack-quantized"
    assert nn.LinearFp8(3, 2).stored_as is None


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_layer_is_refused(kind: Any) -> None:
    """A call is; a state dict without its tensors is what torch says of missing ones."""
    module = kind(64, 8)
    for call in (lambda: module(torch.ones(2, 64)), module.dequantize):
        with pytest.raises(planq.ArgumentError, match="weight: expected a layer, got none"):
            call()
    assert not module.state_dict()
    model = torch.nn.Sequential(module)
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.weight"):
        model.load_state_dict({})
    model.load_state_dict({}, strict=False)


@pytest.mark.parametrize("name", ["gptq", "awq", "packed-asymmetric", "nf4", "fp8-channel"])
def test_tensors_that_do_not_fit_are_refused_by_name(name: str) -> None:
    """Each missing one, each of another type; the layer stays what it was."""
    make, kind = MADE[name]
    made = make()
    module = filled(made, kind)
    x = sample(3, module.in_features, torch.float32)
    before, state = module(x), state_of(made)
    for key, value in state.items():
        changed = {other: tensor for other, tensor in state.items() if other != key}
        if key != "g_idx":
            with pytest.raises(CheckpointError) as caught:
                module.load_state_dict(changed)
            missing = "weight" if "quant_state" in key else key.rpartition(".")[2]
            assert missing in str(caught.value)
        with pytest.raises(CheckpointError):
            module.load_state_dict({**state, key: value.to(torch.float64)})
        assert torch.equal(module(x), before)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other"):
        module.load_state_dict({**state, "other": torch.ones(1)})


class Marked(nn.Linear4bit):  # type: ignore[misc]
    """A layer with tensors and a state of its own."""

    mark = "none"

    def __init__(self) -> None:
        super().__init__(256, 24)
        self.slope = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(2))

    def get_extra_state(self) -> str:
        return self.mark

    def set_extra_state(self, state: str) -> None:
        self.mark = state


def test_torch_loads_what_else_a_layer_has() -> None:
    """Parameters, buffers and the state of a class that derives from it; and hooks are called."""
    state: dict[str, Any] = state_of(blocks(), "0.")
    state |= {"0.slope": torch.arange(3.0), "0.seen": torch.ones(2), "0._extra_state": "mark"}
    model, old = torch.nn.Sequential(Marked()), {**state, "0.old": state["0.weight"]}
    layer: Any = model[0]
    model.load_state_dict(state)
    assert (layer.slope.tolist(), layer.seen.tolist(), layer.mark) == ([0, 1, 2], [1, 1], "mark")
    found = model.state_dict()
    assert found.keys() == state.keys()
    del old["0.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.slope"):
        model.load_state_dict({key: old for key, old in state.items() if key != "0.slope"})
    with pytest.raises(RuntimeError, match=r"Unexpected key.*0\.slopes"):
        model.load_state_dict(state | {"0.slopes": torch.ones(1)})
    layer.register_load_state_dict_pre_hook(
        lambda module, given, prefix, *_: given.update({"0.weight": given.pop("0.old")})
    )
    model.load_state_dict(old)


def test_a_bias_is_not_lost() -> None:
    """A layer that has one takes no state without it; one without takes both."""
    layer = nn.Linear8bit.from_linear(torch.nn.Linear(64, 8))
    wanted, bare = layer.state_dict(), nn.Linear8bit(64, 8)
    state = {key: value for key, value in wanted.items() if key != "bias"}
    for strict in (True, False):
        with pytest.raises(TensorError, match=r"no tensor 'Linear8bit.bias', expected 8 numbers"):
            layer.load_state_dict(state, strict=strict)
    assert torch.equal(layer.state_dict()["bias"], wanted["bias"])
    bare.load_state_dict(state)
    assert "bias" not in bare.state_dict()
    bare.load_state_dict(wanted)
    assert torch.equal(bare.state_dict()["bias"], wanted["bias"])


def test_codes_of_another_class_or_size_are_refused() -> None:
    made = peers.packed(bits=8, size=64)
    n, k = made.weight.shape
    module = nn.Linear4bit(k, n)
    with pytest.raises(planq.ArgumentError) as refused:
        module.load_state_dict(state_of(made))
    assert refused.value.expected == "codes of uint4 or int4 or float4_e2m1fn"
    assert "got int8: Linear8bit takes them" in str(refused.value).replace("; ", ": ")
    with pytest.raises(TensorError) as caught:
        nn.Linear8bit(k, n + 1).load_state_dict(state_of(made))
    assert f"expected codes of a weight [{n + 1}, {k}]" in str(caught.value)
    assert f"found of [{n}, {k}]" in str(caught.value)


@pytest.mark.parametrize("name", ["gptq", "packed", "nf4", "fp8-channel"])
def test_tensors_without_memory_are_refused(name: str) -> None:
    make, kind = MADE[name]
    made = make()
    n, k = made.weight.shape
    state = {key: value.to("meta") for key, value in state_of(made).items()}
    module = getattr(nn, kind)(k, n, quantization_config=made.config)
    with pytest.raises(CheckpointError, match=r"expected numbers in memory, found .* on meta"):
        module.load_state_dict(state)
    assert module.stored_as is None


def test_gptq_needs_the_config_that_tells_its_version() -> None:
    made = peers.gptq()
    module = nn.Linear4bit(256, 32)
    with pytest.raises(CheckpointError, match="which alone tells gptq and gptq_v2 apart"):
        module.load_state_dict(state_of(made))


def test_rows_of_any_shape() -> None:
    """One row without an axis, batches, none at all, and columns that lie apart."""
    made = blocks()
    module = filled(made, "Linear4bit")
    x = sample(6, 256, torch.float32)
    wanted = module(x)
    assert torch.equal(module(input=x), wanted)  # as torch.nn.Linear calls it
    assert torch.equal(module(x[0]), wanted[0])
    assert torch.equal(module(x.reshape(2, 1, 3, 256)), wanted.reshape(2, 1, 3, 24))
    assert module(x[:0]).shape == (0, 24)
    apart = x.T.contiguous().T
    assert apart.stride(-1) != 1
    assert torch.equal(module(apart), wanted)
    for rows in (x[0], x.reshape(2, 1, 3, 256), x[:0], apart):
        leaf = rows.clone().requires_grad_()
        module(leaf).sum().backward()  # an expanded gradient
        assert leaf.grad is not None
        exact = torch.from_numpy(made.weight).double().sum(0).expand(leaf.shape)
        torch.testing.assert_close(leaf.grad.double(), exact, rtol=1e-4, atol=1e-4)


def test_the_input_is_checked_by_the_operator() -> None:
    module = filled(blocks(), "Linear4bit")
    with pytest.raises(planq.PlanqError, match="256"):
        module(torch.ones(2, 255))
    with pytest.raises(planq.PlanqError, match="float64"):
        module(torch.ones(2, 256, dtype=torch.float64))


def test_autocast_decides_the_dtype() -> None:
    module = filled(blocks(), "Linear4bit")
    x = sample(4, 256, torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(x)
    assert torch.equal(y, module(x.bfloat16()))
    y.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    y = module(x)
    (outside,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (inside,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(inside, outside)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.complex64])
def test_autocast_converts_what_torch_does_alone(dtype: torch.dtype) -> None:
    """torch refuses these, and so does a layer."""
    linear = torch.nn.Linear(256, 24)
    x = torch.ones(2, 256, dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(RuntimeError):
            linear(x)
        with pytest.raises(planq.DescriptorError, match="input_dtype: expected"):
            filled(blocks(), "Linear4bit")(x)


def test_a_layer_without_memory_tells_shapes() -> None:
    """On `meta`, also inside of autocast."""
    module = filled(blocks(), "Linear4bit").to("meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module(torch.ones(2, 3, 256, device="meta"))
    assert (y.shape, y.dtype, y.device.type) == ((2, 3, 24), torch.float32, "meta")


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_checkpointed_layers(reentrant: bool, dtype: torch.dtype) -> None:
    """The forward pass is computed again, and what it saved is looked at once."""
    module = filled(blocks(), "Linear4bit")
    found = []
    for checkpointed in (True, False):
        x = sample(4, 256, dtype).requires_grad_()
        y = checkpoint(module, x, use_reentrant=reentrant) if checkpointed else module(x)
        y.sum().backward()
        assert x.grad is not None
        found.append(x.grad)
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize(
    ("name", "activations"),
    [
        ("gptq", "none"),
        ("nf4-nested", "none"),
        ("mxfp4", "none"),
        ("int8-channel", "token"),
        ("fp8-block", "token"),
    ],
)
def test_compiled_whole(name: str, activations: str) -> None:
    """Forward and backward as one graph each, for any number of rows from 2 on."""
    make, kind = MADE[name]
    module = filled(make(), kind, activations=activations)
    torch.compiler.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (2, 3, 7):
        for dtype in (torch.float32, torch.bfloat16):
            pair = [sample(rows, module.in_features, dtype).requires_grad_() for _ in range(2)]
            ours, theirs = compiled(pair[0]), module(pair[1])
            assert torch.equal(ours, theirs)
            for y in (ours, theirs):
                y.backward(sample(rows, module.out_features, dtype))
            assert pair[0].grad is not None
            assert pair[1].grad is not None
            assert torch.equal(pair[0].grad, pair[1].grad)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_exported_for_any_number_of_rows() -> None:
    """As a program without Python's module."""
    module = filled(blocks(), "Linear4bit")
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(
        module, (sample(4, 256, torch.float32),), dynamic_shapes=({0: rows},)
    )
    x = sample(9, 256, torch.float32)
    assert torch.equal(program.module()(x), module(x))


def test_weights_are_frozen() -> None:
    """A gradient of the gradient is refused, and nothing but the input has one."""
    module = filled(blocks(), "Linear4bit")
    x = sample(4, 256, torch.bfloat16).requires_grad_()
    (grad,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
    assert grad.shape == x.shape
    y = module(x)
    dy = torch.ones_like(y).requires_grad_()
    with pytest.raises(planq.ArgumentError, match="requires a gradient, which would be lost"):
        torch.autograd.grad(y, x, dy, create_graph=True)


def test_a_backward_pass_meets_the_policy_of_its_forward_pass() -> None:
    x = sample(4, 256, torch.bfloat16).requires_grad_()
    module = filled(blocks(), "Linear4bit")
    with planq.policy(planq.PlanPreference(backend="host")):
        loss = module(x).sum()
    planq.set_policy(planq.PlanPreference(backend="cuda"))
    try:
        with pytest.raises(planq.DescriptorError, match="got host and cuda"):
            loss.backward()
    finally:
        planq.set_policy(None)


def test_an_audit_sees_plans_alone() -> None:
    """Of a forward pass."""
    module = filled(blocks(), "Linear4bit")
    policy = planq.PlanPreference(determinism="bit_exact", batch_invariant=True)
    audit = planq.torch.audit(module, sample(4, 256, torch.bfloat16), policy=policy)
    assert not audit.refused
    assert [call.operator for call in audit.calls] == ["planq::linear_4bit"]


SCHEMES: dict[str, Callable[[torch.nn.Linear], Any]] = {
    scheme: (lambda linear, kind=kind, scheme=scheme: kind.from_linear(linear, scheme))
    for kind in KINDS
    for scheme in kind.schemes
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_floating_layer_is_quantized(scheme: str, dtype: torch.dtype) -> None:
    """Near its numbers; its state dict is what loads again."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 40).to(dtype)
    module = SCHEMES[scheme](linear)
    weight = linear.weight.detach().double()
    lost = (module.dequantize().double() - weight).norm() / weight.norm()
    assert lost < (0.13 if "4" in scheme.partition("-")[0] else 0.03)
    again = type(module)(256, 40)
    again.load_state_dict(module.state_dict())
    x = sample(3, 256, dtype)
    assert torch.equal(again(x), module(x))
    assert torch.equal(module.state_dict()["bias"], linear.bias)
    exact = x.double() @ module.dequantize().double().T + linear.bias.double()
    torch.testing.assert_close(module(x).double(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nn.Linear8bit.from_linear(torch.nn.Linear(8, 8), "nf4"), "expected int8-channel"),
        (
            lambda: nn.Linear4bit.from_linear(torch.nn.Linear(8, 8, device="meta")),
            "linear.weight: expected a matrix of float16, bfloat16 or float32 in memory, "
            "got float32 on meta",
        ),
        (
            lambda: nn.Linear8bit.from_linear(torch.nn.Linear(8, 8, dtype=torch.float64)),
            "linear.weight: expected a matrix of float16, bfloat16 or float32 in memory, "
            "got float64 on cpu",
        ),
        (
            lambda: nn.Linear8bit.from_linear(
                torch.nn.Linear(8, 8, device="meta", dtype=torch.float8_e4m3fn)
            ),
            "got float8_e4m3fn on meta",
        ),
        (
            lambda: nn.Linear4bit.from_linear(torch.nn.Linear(8, 8), "nf4", group_size=32),
            "--group-size: expected one of the schemes",
        ),
        (
            lambda: nn.Linear4bit.from_linear(torch.nn.Linear(8, 8), "nf4", search="best"),
            "search: expected none or mse",
        ),
        (
            lambda: nn.Linear4bit.from_linear(torch.nn.Linear(100, 8), "int4-group"),
            "a width of 100 is no multiple of 128",
        ),
    ],
)
def test_what_cannot_be_quantized_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(planq.PlanqError) as caught:
        make()
    assert said in str(caught.value)


def test_numbers_of_a_search_lose_less() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 40)
    lost = []
    for search in ("none", "mse"):
        module = nn.Linear4bit.from_linear(linear, "int4-group", group_size=32, search=search)
        lost.append((module.dequantize() - linear.weight).norm())
    assert lost[1] < lost[0]


def test_operands_of_a_layer_of_a_file_go_where_they_should(tmp_path: Any) -> None:
    from planq.checkpoint import read_layers

    made = peers.awq()
    with read_layers(made.save(tmp_path / "model")) as layers:
        module = nn.Linear4bit.from_layer(layers[made.name])
    assert torch.equal(module.dequantize(), torch.from_numpy(made.weight))
    assert same(module.state_dict()["qweight"], as_torch(made.tensors[f"{made.name}.qweight"]))
    assert module.device == torch.device("cpu")
    assert np.array_equal(module.dequantize().numpy(), made.weight)
