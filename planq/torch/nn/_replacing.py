"""Puts quantized layers in the place of a model's linear layers, and says what that changed."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import torch

from planq.checkpoint.layers import dynamic_activations, find_layers, read_layers
from planq.checkpoint.peers.config import PeerConfig, read_config
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.checkpoint.schemes import Scheme
from planq.checkpoint.shards import Shards
from planq.errors import ArgumentError
from planq.torch.nn._modules import QuantizedLinear, class_of, class_of_scheme
from planq.torch.nn._quantizing import form_of, quantized_layer
from planq.torch.nn._states import TensorDict, bytes_of

PROBE_ROWS: Final = 16
"""Rows of the input that digests are of."""
_WORDS: Final = {False: "none", True: "token"}

Checkpoint = str | os.PathLike[str] | Mapping[str, torch.Tensor]


@final
@dataclass(frozen=True, slots=True)
class LayerReport:
    """What a layer became.

    Attributes:
        name: The layer, such as ``model.layers.0.self_attn.q_proj``.
        module: The class that took its place.
        stored_as: The format of its state dict.
        shape: The shape ``(n, k)`` of its weight.
        nbytes: The bytes of its operands.
        cosine: Of its outputs with those of the layer that was there, in float64: ``x·y / (|x|
            |y|)`` over all rows. The input is the model's own, if ``inputs`` were given, else that
            of the digest. None if the layer that was there has no numbers, or if the model did
            not call it.
        digest: SHA-256 of its outputs for an input that is a function of its shape alone, in the
            model's dtype. It is the same on every device where the plan promises ``BIT_EXACT``.
    """

    name: str
    module: str
    stored_as: StoredAs
    shape: tuple[int, int]
    nbytes: int
    cosine: float | None
    digest: str


@final
@dataclass(frozen=True, slots=True)
class ModelReport:
    """What became of the layers of a model, in its order. ``str()`` is a table.

    Attributes:
        layers: The layers.
    """

    layers: tuple[LayerReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {"layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        head = ("layer", "module", "stored as", "n x k", "bytes", "cosine", "digest")
        lines = [head, *map(_line, self.layers)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


def _line(layer: LayerReport) -> tuple[str, ...]:
    cosine = "" if layer.cosine is None else f"{layer.cosine:.5f}"
    shape = "{} x {}".format(*layer.shape)
    told = (layer.module, layer.stored_as.value, shape, str(layer.nbytes))
    return (layer.name, *told, cosine, layer.digest[:12])


def quantize_layers(
    model: torch.nn.Module,
    scheme: str = "nf4",
    *,
    block_size: int | None = None,
    nested: bool = False,
    group_size: int | None = None,
    search: str = "none",
    activations: str = "none",
    include: str | None = None,
    exclude: str | None = None,
    default_excludes: bool = True,
    inputs: Mapping[str, Any] | None = None,
) -> ModelReport:
    """Quantizes the linear layers of a floating model, in place.

    Every weight gets the bits that ``planq quantize`` makes of it, in the format of bitsandbytes
    (nf4, fp4) or of compressed-tensors. Nothing is replaced if one of the layers is refused. A
    layer at several places of the model stays one layer; it is taken if all of its names are.
    Hooks of a layer go with it.

    Args:
        model: The model. It is on one device, or on several.
        scheme: A scheme of ``planq quantize``: nf4, fp4, int4-group, uint4-group, int4-group128,
            int8-channel, int8-tensor, fp8-channel, fp8-tensor or fp8-block128.
        block_size: Elements of a block of nf4 and fp4; None for 64.
        nested: Whether the absmax of these blocks are quantized, too.
        group_size: Elements of a group of int4 and uint4; None for 128.
        search: ``"mse"`` searches for the range of each group.
        activations: ``"token"`` quantizes them as they come, too; of schemes of 8 bits.
        include: A regular expression: take only layers in whose names it is found.
        exclude: A regular expression: leave out layers in whose names it is found.
        default_excludes: Whether to leave out layers whose names tell of output layers and routers,
            as ``planq quantize`` does, and of models of transformers the output embedding and the
            modules that they keep in float32, such as T5's ``wo``.
        inputs: Arguments of the model by name. With them, it is called once before its layers are
            replaced, and cosines are those of its own activations.

    Raises:
        ArgumentError: There is no such scheme or search, or no layer to replace.
        CheckpointError: An option does not go with the scheme, or a shape with its groups.
    """
    kind = class_of_scheme(scheme)
    form = form_of(Scheme(scheme), activations)

    def taken(name: str, module: torch.nn.Module) -> bool:
        if type(module) is not torch.nn.Linear:
            return False
        if default_excludes and (form.leaves(f"{name}.weight") or _stays(model, name, module)):
            return False
        return not (
            (include is not None and re.search(include, name) is None)
            or (exclude is not None and re.search(exclude, name) is not None)
        )

    options: Any = {"block_size": block_size, "nested": nested, "group_size": group_size}
    options |= {"search": search, "activations": activations}
    made = {}
    places = _places(model)
    for name, module in model.named_modules():
        if not name or not isinstance(module, torch.nn.Linear):
            continue
        if all(taken(place, module) for place in places[module]):
            layer = quantized_layer(module, scheme, name=name, **options)
            device = module.weight.device
            made[name] = kind.from_layer(layer, device=device, activations=activations)
    if not made:
        raise ArgumentError("model", "linear layers to quantize", "none that is taken")
    return _replaced(model, made, inputs)


def load_layers(
    model: torch.nn.Module,
    checkpoint: Checkpoint | None = None,
    *,
    quantization_config: Mapping[str, Any] | None = None,
    weights_only: bool = False,
    inputs: Mapping[str, Any] | None = None,
) -> ModelReport:
    """Puts the quantized layers of a checkpoint in the place of a model's layers, by name.

    Only quantized layers are loaded; embeddings, norms and the like stay those of the model. Names
    are the checkpoint's. Where they begin with the model's ``base_model_prefix`` and the model's
    own do not, or the other way round, they still fit. Nothing is replaced if a layer is refused.

    Args:
        model: The model: floating, without memory (on ``meta``), or one that transformers loaded in
            a format that planq reads.
        checkpoint: A safetensors file, a model's folder, or a state dict. None: the model's own
            state dict, and the config that it has.
        quantization_config: What ``config.json`` says, for state dicts; of a file or a folder it is
            read from there.
        weights_only: Whether to leave activations floating in any case. Otherwise those that the
            config has quantized as they come, by token in 8 bits, are so; other ways of quantizing
            them are refused. Without a config, layers of this package keep the way they have.
        inputs: As for :func:`quantize_layers`.

    Raises:
        TensorError: A tensor is missing, or of another type or shape than its format has.
        CheckpointError: A file or the config is damaged, or the format is not known.
        ArgumentError: The model has no such layer, or one of another shape, or one with a bias
            where the checkpoint has none.
        OSError: The system refused.
    """
    made: dict[str, QuantizedLinear] = {}
    found = _layers(model, checkpoint, quantization_config, weights_only=weights_only)
    for layer, said in found:
        name = _place(model, layer)
        before = model.get_submodule(name)
        own = before.activations if isinstance(before, QuantizedLinear) else "none"
        activations = ("none" if weights_only else own) if said is None else said
        device = _device_of(before)
        made[name] = class_of(layer).from_layer(layer, device=device, activations=activations)
    if not made:
        raise ArgumentError("checkpoint", "quantized layers", "none")
    return _replaced(model, made, inputs)


def _layers(
    model: torch.nn.Module,
    checkpoint: Checkpoint | None,
    given: Mapping[str, Any] | None,
    *,
    weights_only: bool,
) -> Iterator[tuple[Layer, str | None]]:
    """The layers of a checkpoint while its files are open, and how their activations are taken.

    None: there is no config that says it.
    """
    if checkpoint is not None and not isinstance(checkpoint, Mapping):
        path = Path(checkpoint)
        with closing(Shards(path)) as shards:
            config = read_config(shards)
        dynamic = not weights_only and dynamic_activations(config)
        with read_layers(path, weights_only=weights_only or dynamic) as layers:
            for layer in layers:
                yield layer, _word(config, dynamic=dynamic)
        return
    if checkpoint is None:
        checkpoint = model.state_dict()
        given = _config_of(model) if given is None else given
    config = None if given is None else PeerConfig("quantization_config", dict(given))
    dynamic = not weights_only and dynamic_activations(config)
    source = TensorDict(checkpoint)
    for layer in find_layers(source, config, weights_only=weights_only or dynamic):
        yield layer, _word(config, dynamic=dynamic)


def _word(config: PeerConfig | None, *, dynamic: bool) -> str | None:
    return None if config is None else _WORDS[dynamic]


def _config_of(model: torch.nn.Module) -> dict[str, Any] | None:
    """What a model of transformers says of its quantization; None if it says nothing."""
    found = getattr(getattr(model, "config", None), "quantization_config", None)
    to_dict: Callable[[], dict[str, Any]] | None = getattr(found, "to_dict", None)
    return to_dict() if to_dict is not None else found


def _place(model: torch.nn.Module, layer: Layer) -> str:
    """The name that the model has for a layer of the checkpoint."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in (layer.name, layer.name.removeprefix(prefix), prefix + layer.name):
        module = modules.get(name)
        if module is None or module is model:
            continue
        shape = (getattr(module, "out_features", None), getattr(module, "in_features", None))
        if shape != layer.shape:
            there = f"{type(module).__name__} of {list(shape)}"
            raise ArgumentError(layer.name, f"a linear layer of {list(layer.shape)}", there)
        if getattr(module, "bias", None) is not None and "bias" not in layer.parts:
            expected = "a bias, since the model's layer has one"
            raise ArgumentError(f"{layer.name}.bias", expected, "none")
        return name
    raise ArgumentError(layer.name, "a layer of this name in the model", "none")


def _device_of(module: torch.nn.Module) -> torch.device:
    """Where a module has its numbers; the host, if it has none."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != "meta":
            return tensor.device
    return torch.device("cpu")


def _stays(model: torch.nn.Module, name: str, module: torch.nn.Module) -> bool:
    """Whether a model of transformers says that a layer stays floating.

    It has an output layer, which may share its embedding's weight, and names of modules that are
    kept in float32, whose ``weight`` its code may look at.
    """
    output: Callable[[], torch.nn.Module] | None = getattr(model, "get_output_embeddings", None)
    kept = getattr(model, "_keep_in_fp32_modules", None) or ()
    alone = output is not None and output() is module
    return alone or any(f".{part}." in f".{name}." for part in kept)


# --- Reports


def _replaced(
    model: torch.nn.Module, made: dict[str, QuantizedLinear], inputs: Mapping[str, Any] | None
) -> ModelReport:
    """Replaces layers, and reports each."""
    likeness = {} if inputs is None else _likeness(model, made, inputs)
    reports = []
    for name, module in made.items():
        there = model.get_submodule(name)
        dtype = _dtype_of(there, model)
        x = probe(module.in_features, dtype).to(module.device)
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            y = module(x)
            cosine = likeness.get(name)
            if inputs is None and _has_numbers(there):
                cosine = _Cosine().add(there(x), y).value
        digest = hashlib.sha256(bytes_of(y)).hexdigest()
        shape = (module.out_features, module.in_features)
        form = module.stored_as
        assert form is not None
        kind = type(module).__name__
        reports.append(LayerReport(name, kind, form, shape, module.nbytes, cosine, digest))
        module.train(there.training)
    places = _places(model)
    for there, module in [(model.get_submodule(name), module) for name, module in made.items()]:
        for place in places[there]:
            model.set_submodule(place, module)
    return ModelReport(tuple(reports))


def _places(model: torch.nn.Module) -> dict[torch.nn.Module, list[str]]:
    """All names of each module: a model may have one at several places."""
    found: dict[torch.nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        found.setdefault(module, []).append(name)
    return found


def _dtype_of(there: torch.nn.Module, model: torch.nn.Module) -> torch.dtype:
    """The dtype that a layer multiplies in."""
    floating = (torch.float16, torch.bfloat16, torch.float32)
    for tensor in (*there.parameters(), *model.parameters()):
        if tensor.dtype in floating:
            return tensor.dtype
    return torch.float32


def _has_numbers(module: torch.nn.Module) -> bool:
    """Whether the layer that was there is in memory; bitsandbytes' are linear layers, too."""
    weight = getattr(module, "weight", None)
    linear = isinstance(module, torch.nn.Linear) and isinstance(weight, torch.Tensor)
    return linear and weight is not None and weight.device.type != "meta"


class _Cosine:
    """The cosine of two vectors that come piece by piece."""

    def __init__(self) -> None:
        self._sums, self.is_begun = [0.0, 0.0, 0.0], False

    def add(self, wanted: torch.Tensor, found: torch.Tensor) -> _Cosine:
        """Takes a piece of both in."""
        self.is_begun = True
        a, b = wanted.double().flatten(), found.double().flatten()
        for place, (left, right) in enumerate(((a, b), (a, a), (b, b))):
            self._sums[place] += float(left @ right)
        return self

    @property
    def value(self) -> float:
        """The cosine; NaN if one of the vectors is 0 or not finite."""
        product, first, second = self._sums
        return product / (first**0.5 * second**0.5) if first and second else float("nan")


def _likeness(
    model: torch.nn.Module, made: Mapping[str, QuantizedLinear], inputs: Mapping[str, Any]
) -> dict[str, float]:
    """The cosine of each layer's outputs, on the activations that the model has for it now."""
    found = {name: _Cosine() for name in made if _has_numbers(model.get_submodule(name))}

    def watch(name: str) -> Callable[..., None]:
        def see(module: torch.nn.Module, args: Any, named: Any, output: torch.Tensor) -> None:
            found[name].add(output, made[name](*args, **named))

        return see

    hooks = [
        model.get_submodule(name).register_forward_hook(watch(name), with_kwargs=True)
        for name in found
    ]
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: cosine.value for name, cosine in found.items() if cosine.is_begun}


def probe(columns: int, dtype: torch.dtype, rows: int = PROBE_ROWS) -> torch.Tensor:
    """Numbers from -1 to 1 that are a function of the shape: multiples of 2^-20, then rounded.

    Element i is ``(h >> 43) * 2^-20 - 1``, h the number i of SplitMix64 with the seed 0.
    """
    bits = np.arange(1, rows * columns + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    bits = (bits ^ bits >> np.uint64(31)) >> np.uint64(43)
    values = bits.astype(np.float64) * 2.0**-20 - 1
    return torch.from_numpy(values.astype(np.float32)).reshape(rows, columns).to(dtype)
