"""Layers of a model of transformers are replaced, reported, and trained through."""

from __future__ import annotations

import hashlib
import logging
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import planq
from checkpoint import architectures, peers
from planq.checkpoint.failure import CheckpointError
from planq.cli import main
from support.torch_layers import E4M3, adapt, nn, state_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import transformers
    from bitsandbytes import functional
    from safetensors.torch import load_file

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]

IDS = {"input_ids": torch.arange(3, 19)[None]}
WIDE = {"hidden_size": 128, "intermediate_size": 256}


def llama(**more: Any) -> Any:
    """A small model with random weights."""
    config = {**architectures.MODELS["llama"].config, **WIDE, **more}
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).eval()


def linear_names(model: torch.nn.Module) -> list[str]:
    """All linear layers but the output layer."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    ]


def logits(model: Any) -> torch.Tensor:
    """Of sixteen tokens."""
    with torch.no_grad():
        found: torch.Tensor = model(**IDS).logits
    return found


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """In float64."""
    x, y = (each.detach().numpy().astype(np.float64).reshape(-1) for each in (a, b))
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def hashed(columns: int) -> torch.Tensor:
    """Sixteen rows of numbers of SplitMix64, as the report documents them."""
    mask, found = (1 << 64) - 1, []
    for i in range(1, 16 * columns + 1):
        h = i * 0x9E3779B97F4A7C15 & mask
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & mask
        h = (h ^ h >> 27) * 0x94D049BB133111EB & mask
        found.append(((h ^ h >> 31) >> 43) / 2**20 - 1)
    return torch.tensor(found, dtype=torch.float64).float().reshape(16, columns)


@pytest.mark.parametrize("scheme", ["nf4", "int4-group", "int8-channel", "fp8-block128"])
def test_the_layers_of_a_model_are_quantized(scheme: str) -> None:
    """Each is reported: how like it is, and the digest of what it makes of hashed numbers."""
    model, before = llama(), llama()
    report = nn.quantize_layers(model, scheme)
    assert [layer.name for layer in report.layers] == linear_names(before)
    for layer in report.layers:
        module, there = model.get_submodule(layer.name), before.get_submodule(layer.name)
        assert type(module).__name__ == layer.module
        assert (layer.stored_as, layer.nbytes) == (module.stored_as, module.nbytes)
        x = hashed(there.in_features)
        y = x @ module.dequantize().T
        assert layer.cosine == pytest.approx(cosine(there(x), y), abs=1e-5)
        assert layer.digest == hashlib.sha256(module(x).numpy().tobytes()).hexdigest()
        assert layer.cosine > 0.99
    assert type(model.lm_head) is torch.nn.Linear
    assert cosine(logits(model), logits(before)) > 0.97
    lines = str(report).splitlines()
    assert len(lines) == 1 + len(report.layers)
    assert re.fullmatch(r"layer +module +stored as +n x k +bytes +cosine +digest", lines[0])
    assert report.to_dict()["layers"][0]["digest"] == report.layers[0].digest


KINDS = ("albert", "bert", "bloom", "clip", "gpt-neox", "mpnet", "opt", "phi3", "t5", "whisper")


@pytest.mark.parametrize("name", KINDS)
def test_models_of_many_kinds(name: str) -> None:
    """What they make of some input hardly changes in int8."""
    model = architectures.build(name)
    before = architectures.answer(name, model)
    report = nn.quantize_layers(model, "int8-channel")
    assert len(report.layers) >= 6
    assert cosine(architectures.answer(name, model), before) > 0.9995


def test_cosines_are_those_of_the_models_own_activations() -> None:
    model, before = llama(), llama()
    seen: dict[str, torch.Tensor] = {}
    name = "model.layers.1.mlp.down_proj"
    before.get_submodule(name).register_forward_hook(
        lambda module, args, output: seen.update(x=args[0], y=output)
    )
    logits(before)
    report = nn.quantize_layers(model, "nf4", inputs=IDS)
    (found,) = (layer for layer in report.layers if layer.name == name)
    y = seen["x"] @ model.get_submodule(name).dequantize().T
    assert found.cosine == pytest.approx(cosine(seen["y"], y), abs=1e-6)
    plain = nn.quantize_layers(llama(), "nf4")
    assert [layer.digest for layer in plain.layers] == [layer.digest for layer in report.layers]


def test_which_layers_are_taken() -> None:
    """Names decide as they do for `planq quantize`; nothing is replaced where one is refused."""
    taken = [layer.name for layer in nn.quantize_layers(llama(), include="mlp").layers]
    assert taken == [name for name in linear_names(llama()) if "mlp" in name]
    taken = [layer.name for layer in nn.quantize_layers(llama(), exclude="layers.0|up").layers]
    assert taken == [
        name for name in linear_names(llama()) if "layers.0" not in name and "up" not in name
    ]
    every = nn.quantize_layers(llama(), default_excludes=False)
    assert every.layers[-1].name == "lm_head"
    narrow = llama(intermediate_size=96)
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.down_proj.*width of 96"):
        nn.quantize_layers(narrow, "int4-group")
    assert linear_names(narrow) == linear_names(llama())
    with pytest.raises(planq.ArgumentError, match="none that is taken"):
        nn.quantize_layers(llama(), include="nothing")
    with pytest.raises(
        planq.ArgumentError, match=r"scheme: expected nf4 or .*mean int8-channel or"
    ):
        nn.quantize_layers(llama(), "int8")


@pytest.mark.parametrize(
    ("form", "scheme"),
    [("bitsandbytes", "nf4"), ("compressed-tensors", "uint4-group"), ("bitsandbytes", "fp4")],
)
def test_a_checkpoint_takes_the_place_of_floating_layers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, scheme: str
) -> None:
    """The bits of `planq quantize` are those of `quantize_layers`, and of its state dict."""
    source, target = tmp_path / "source", tmp_path / "target"
    llama().save_pretrained(source)
    command = ["quantize", str(source), str(target), "--format", form, "--scheme", scheme]
    assert main(command) == 0
    capsys.readouterr()
    loaded, quantized = llama(), llama()
    report, other = nn.load_layers(loaded, target), nn.quantize_layers(quantized, scheme)
    assert {layer.name: layer.digest for layer in report.layers} == {
        layer.name: layer.digest for layer in other.layers
    }
    assert all(layer.cosine is not None and layer.cosine > 0.98 for layer in report.layers)
    assert torch.equal(logits(loaded), logits(quantized))
    state = loaded.state_dict()
    third = llama()
    nn.load_layers(third, state)
    assert torch.equal(logits(third), logits(loaded))
    inner = transformers.LlamaModel(llama().config)
    assert [f"model.{layer.name}" for layer in nn.load_layers(inner, target).layers] == [
        layer.name for layer in report.layers
    ]


def test_a_whole_checkpoint_is_loaded_and_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Layers first; then torch's own loading takes every tensor of the file, by its name."""
    source, target, again = (tmp_path / name for name in ("source", "target", "again"))
    llama().save_pretrained(source)
    command = ["quantize", str(source), str(target), "--format", "compressed-tensors"]
    assert main([*command, "--scheme", "int4-group", "--group-size", "32"]) == 0
    capsys.readouterr()
    wanted = llama()
    nn.load_layers(wanted, target)
    model = llama()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    nn.load_layers(model, target)
    assert not torch.equal(logits(model), logits(wanted))
    model.load_state_dict(load_file(target / "model.safetensors"))
    assert torch.equal(logits(model), logits(wanted))
    model.save_pretrained(again)
    ours, theirs = (load_file(each / "model.safetensors") for each in (again, target))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("scheme", ["int8-channel", "fp8-channel", "fp8-block128"])
def test_a_checkpoint_has_its_activations_quantized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    """As its config says, and as `quantize_layers` has them; with weights_only they are not."""
    source, target = tmp_path / "source", tmp_path / "target"
    llama().save_pretrained(source)
    command = ["quantize", str(source), str(target), "--format", "compressed-tensors"]
    assert main([*command, "--scheme", scheme, "--activations", "token"]) == 0
    capsys.readouterr()
    loaded, quantized, plain = llama(), llama(), llama()
    report = nn.load_layers(loaded, target)
    other = nn.quantize_layers(quantized, scheme, activations="token")
    digests = {layer.name: layer.digest for layer in report.layers}
    assert digests == {layer.name: layer.digest for layer in other.layers}
    assert torch.equal(logits(loaded), logits(quantized))
    floating = nn.load_layers(plain, target, weights_only=True)
    assert not set(digests.values()) & {layer.digest for layer in floating.layers}
    assert {loaded.get_submodule(name).activations for name in digests} == {"token"}
    assert cosine(logits(loaded), logits(llama())) > 0.99
    assert cosine(logits(plain), logits(llama())) > 0.99


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dynamic": False}, "dynamic: expected true, got False"),
        ({"symmetric": False}, "symmetric: expected true, got False"),
        ({"strategy": "tensor"}, "strategy: expected token, got 'tensor'"),
        ({"num_bits": 4}, "num_bits: expected 8, got 4"),
        ({"type": "float"}, "type: expected int, got 'float'"),
    ],
)
def test_other_activations_are_refused(change: dict[str, Any], said: str) -> None:
    """By the config's own words; the weights alone are taken where that is meant."""
    made = peers.unpacked()
    assert made.config is not None
    group = made.config["config_groups"]["group_0"]
    activations = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    group["input_activations"] = activations
    state, options = state_of(made, "q_proj."), {"quantization_config": made.config}
    model = one_layer(300, 200)
    nn.load_layers(model, state, **options)
    assert model.get_submodule("q_proj").activations == "token"
    group["input_activations"] = activations | change
    model = one_layer(300, 200)
    with pytest.raises(CheckpointError, match="input_activations") as caught:
        nn.load_layers(model, state, **options)
    assert said in str(caught.value)
    assert type(model.get_submodule("q_proj")) is torch.nn.Linear
    nn.load_layers(model, state, **options, weights_only=True)
    assert model.get_submodule("q_proj").activations == "none"
    group["input_activations"] = activations
    made.config["config_groups"]["group_1"] = {**group, "input_activations": None}
    with pytest.raises(CheckpointError, match="quantized in all groups or in none"):
        nn.load_layers(model, state, **options)


def one_layer(columns: int, rows: int) -> torch.nn.Module:
    """A model that is a layer."""
    model = torch.nn.Sequential()
    model.add_module("q_proj", torch.nn.Linear(columns, rows, bias=False))
    return model


def test_a_layer_at_several_places_stays_one() -> None:
    """Where one of its names is left out, it stays as it is."""

    def tied() -> Any:
        shared, own = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
        inner = torch.nn.ModuleDict({"first": shared, "own": own})
        return torch.nn.ModuleDict({"inner": inner, "again": inner, "last": shared})

    model = tied()
    report = nn.quantize_layers(model, "nf4")
    assert [layer.name for layer in report.layers] == ["inner.first", "inner.own"]
    assert not linear_names(model)
    assert model["last"] is model["inner"]["first"]
    assert model["again"] is model["inner"]
    other = tied()
    nn.load_layers(other, model.state_dict())
    assert not linear_names(other)
    assert other["last"] is other["inner"]["first"]
    x = torch.randn(3, 64)
    assert torch.equal(other["last"](x), model["last"](x))
    model = tied()
    nn.quantize_layers(model, "nf4", exclude="last")
    assert model["last"] is model["inner"]["first"]
    assert linear_names(model) == ["inner.first"]


def test_a_bias_of_the_model_is_not_lost() -> None:
    """A checkpoint without it is refused; one with a bias more is taken."""
    bare, full = (torch.nn.Sequential(torch.nn.Linear(64, 8, bias=b)) for b in (False, True))
    nn.quantize_layers(bare, "nf4")
    with pytest.raises(planq.ArgumentError, match=r"0\.bias: expected a bias.*got none"):
        nn.load_layers(full, bare.state_dict())
    assert linear_names(full) == ["0"]
    nn.quantize_layers(full, "nf4")
    with pytest.raises(planq.ArgumentError, match=r"0\.bias: expected a bias.*got none"):
        nn.load_layers(full, bare.state_dict())
    nn.load_layers(bare, full.state_dict())
    x = torch.randn(3, 64)
    assert torch.equal(bare(x), full(x))


def test_a_report_does_not_depend_on_where_it_is_made() -> None:
    """Inside of autocast, too; a layer that the model does not call has no cosine."""

    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.used, self.idle = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.used(x)
            return made

    outside = nn.quantize_layers(Half(), "nf4")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = nn.quantize_layers(Half(), "nf4")
    assert inside == outside
    assert all(layer.cosine > 0.99 for layer in outside.layers)
    used, idle = nn.quantize_layers(Half(), "nf4", inputs={"x": torch.randn(3, 64)}).layers
    assert used.cosine > 0.99
    assert idle.cosine is None
    assert idle.digest == outside.layers[1].digest


def test_formats_with_activations_of_their_own() -> None:
    """DeepSeek's are known by their config; those of bitsandbytes' int8 have no module."""
    made = peers.unpacked(code=E4M3, scales="block", dtype=np.float32, suffix="weight_scale_inv")
    state, model = state_of(made, "q_proj."), one_layer(300, 200)
    with pytest.raises(CheckpointError, match="no activations that are quantized"):
        nn.load_layers(model, state)
    nn.load_layers(model, state, quantization_config=made.config)
    assert model.get_submodule("q_proj").activations == "token"
    made = peers.rows_of_bitsandbytes()
    state, model = state_of(made, "q_proj."), one_layer(100, 24)
    with pytest.raises(CheckpointError, match="no activations that are quantized"):
        nn.load_layers(model, state, quantization_config=made.config)
    nn.load_layers(model, state, quantization_config=made.config, weights_only=True)
    assert model.get_submodule("q_proj").activations == "none"


@pytest.mark.parametrize("version", ["gptq", "gptq_v2"])
def test_a_checkpoint_of_gptq(tmp_path: Path, version: str) -> None:
    """Its version is known afterwards, too: a state dict alone does not tell it."""
    made = peers.gptq(version=version)
    model = torch.nn.Sequential()
    model.add_module("model", torch.nn.Module())
    model.model.q_proj = torch.nn.Linear(256, 32, bias=False)
    (layer,) = nn.load_layers(model, made.save(tmp_path / "source")).layers
    assert (layer.name, layer.stored_as) == (made.name, version)
    for _ in range(2):
        weight = model.get_submodule(made.name).dequantize().numpy()
        assert np.array_equal(weight, made.weight)
        model.load_state_dict(model.state_dict())


def test_a_model_without_memory_gets_layers_with_it() -> None:
    model = llama()
    nn.quantize_layers(model, "nf4")
    with torch.device("meta"):
        empty = llama()
    report = nn.load_layers(empty, model.state_dict())
    assert {layer.cosine for layer in report.layers} == {None}
    assert "0.9" not in str(report)
    name = report.layers[0].name
    assert torch.equal(
        empty.get_submodule(name).dequantize(), model.get_submodule(name).dequantize()
    )


def test_layers_of_bitsandbytes_are_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that transformers loaded: what its layers make is what planq's make, nearly."""
    source, target = tmp_path / "source", tmp_path / "target"
    llama().save_pretrained(source)
    command = ["quantize", str(source), str(target), "--format", "bitsandbytes", "--scheme", "nf4"]
    assert main([*command, "--nested"]) == 0
    capsys.readouterr()
    model = transformers.LlamaForCausalLM.from_pretrained(target, dtype=torch.float32)
    model.train()  # otherwise some processors multiply in bfloat16 there
    theirs = logits(model)
    report = nn.load_layers(model)
    assert len(report.layers) == 14
    assert all(layer.cosine is not None and layer.cosine > 0.99999 for layer in report.layers)
    torch.testing.assert_close(logits(model), theirs, rtol=1e-3, atol=1e-3)


def test_bitsandbytes_reads_our_state_dict() -> None:
    """And has the numbers."""
    torch.manual_seed(0)
    module = nn.Linear4bit.from_linear(torch.nn.Linear(256, 32, bias=False), "nf4", nested=True)
    tensors = module.state_dict()
    codes = tensors.pop("weight")
    named = {key.removeprefix("weight."): value for key, value in tensors.items()}
    state = functional.QuantState.from_dict(named, device=torch.device("cpu"))
    theirs = functional.dequantize_4bit(codes, state)
    torch.testing.assert_close(module.dequantize(), theirs, rtol=2.0**-22, atol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": 64}, "model.layers.0.self_attn.q_proj: expected a linear layer of [128"),
        ({"num_hidden_layers": 1}, "model.layers.1.self_attn.q_proj: expected a layer of this"),
    ],
)
def test_a_model_that_a_checkpoint_does_not_fit(change: dict[str, Any], said: str) -> None:
    """Nothing is replaced."""
    source = llama()
    nn.quantize_layers(source, "nf4")
    model = llama(**change)
    with pytest.raises(planq.ArgumentError) as caught:
        nn.load_layers(model, source.state_dict())
    assert str(caught.value).startswith(said)
    assert linear_names(model) == linear_names(llama(**change))
    with pytest.raises(planq.ArgumentError, match="quantized layers, got none"):
        nn.load_layers(model, llama().state_dict())


def test_checkpointed_blocks_have_the_same_gradients() -> None:
    """A model's blocks compute their activations again in the backward pass."""
    model = llama()
    nn.quantize_layers(model, "nf4")
    adapters, found = adapt(model, (nn.Linear4bit,)), []
    model.train()
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (2, 16)))
    for checkpointed in (False, True):
        if checkpointed:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        model.zero_grad()
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        found.append([adapter.grad for adapter in adapters])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


def test_layers_whose_weight_is_looked_at_are_left_out() -> None:
    """As the page says of torch's own encoder."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True))
    model.eval()
    model.add_module("last", torch.nn.Linear(64, 64))
    report = nn.quantize_layers(model, "int8-channel", exclude=r"linear[12]$")
    assert [layer.name for layer in report.layers] == ["last"]
    assert model(torch.randn(2, 5, 64)).shape == (2, 5, 64)


def test_adapters_learn_beside_frozen_layers() -> None:
    """QLoRA: gradients are those of torch through the dequantized weights, and the loss falls."""
    model, reference = llama(), llama()
    nn.quantize_layers(model, "nf4")
    for name in linear_names(reference):
        weight = model.get_submodule(name).dequantize()
        reference.get_submodule(name).weight.data.copy_(weight)
    ours = adapt(model, (nn.Linear4bit,))
    theirs = adapt(reference.model, (torch.nn.Linear,))
    assert len(ours) == len(theirs) == 28
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 100, (4, 16)))
    for network in (model, reference):
        network(input_ids=ids, labels=ids).loss.backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-6)
    optimizer, losses = torch.optim.AdamW(ours, lr=1e-2), []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5


def test_layers_keep_their_activations_where_no_config_says_them() -> None:
    """A state dict of planq's own layers, loaded into these and into floating ones."""
    model = llama()
    nn.quantize_layers(model, "int8-channel", activations="token")
    wanted, saved = logits(model), {k: v.clone() for k, v in model.state_dict().items()}
    name = "model.layers.0.self_attn.q_proj"
    nn.load_layers(model, saved)
    assert model.get_submodule(name).activations == "token"
    assert torch.equal(logits(model), wanted)
    nn.load_layers(model, saved, weights_only=True)
    assert model.get_submodule(name).activations == "none"
    other = llama()
    nn.load_layers(other, saved)
    assert other.get_submodule(name).activations == "none"
