"""The quantized linear layers of checkpoints that other programs made, ready for planq's operators.

Formats: GPTQ, AWQ, compressed-tensors, fp8 in blocks, gpt-oss's MXFP4 and bitsandbytes. A layer's
tensors are read when its operands are asked for, so one layer is in memory at a time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from planq.checkpoint.failure import CheckpointError, TensorError
from planq.checkpoint.peers.awq import awq_layers
from planq.checkpoint.peers.bitsandbytes import state_layers
from planq.checkpoint.peers.config import read_config
from planq.checkpoint.peers.float4 import block_layers, float4_layers
from planq.checkpoint.peers.gptq import gptq_layers
from planq.checkpoint.peers.layer import StoredAs
from planq.checkpoint.peers.packed import packed_layers
from planq.checkpoint.peers.unpacked import CODES, unpacked_layers
from planq.checkpoint.shards import Shards

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from planq.checkpoint.files import PartSource, TensorEntry
    from planq.checkpoint.peers.config import PeerConfig
    from planq.checkpoint.peers.layer import Layer

_METHODS = ("gptq", "awq", "compressed-tensors", "mxfp4", "bitsandbytes", "fp8")
_FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "mxfp4-pack-quantized",
    "nvfp4-pack-quantized",
    "mixed-precision",
    "dense",
)
_COLUMNS, _PACKED, _BLOCKS, _UNPACKED = ".qweight", ".weight_packed", "_blocks", ".weight"
_BYTES = ("U8", "F8_E8M0")
# Names that only parts of quantized layers have.
_PART = re.compile(
    r"\.(qweight|qzeros|g_idx|SCB|weight_format|absmax|quant_map|nested_\w+|quant_state\.\w+)$"
    r"|\.weight_(packed|scale|scale_2|scale_inv|zero_point|shape|g_idx|global_scale)$"
)
_ACTIVATIONS = re.compile(r"\.(input|output)_(scale|zero_point|global_scale)$")
_WITHOUT = "weights_only takes the weights without that"
# Activations that share a scale beside blocks of 128 x 128.
GROUP = 128


class Layers:
    """The layers of an open checkpoint: a context manager, iterable, and a mapping by name.

    Args:
        path: As for `read_layers`, which makes these.
        weights_only: Likewise.

    Attributes:
        path: The file or folder.
        rest: The names of all other tensors, such as norms and embeddings, which are floating.
    """

    def __init__(self, path: Path, *, weights_only: bool) -> None:
        self.path = path
        self._shards = Shards(path)
        try:
            config = read_config(self._shards)
            found = find_layers(self._shards, config, weights_only=weights_only)
            self._layers = {layer.name: layer for layer in found}
            self.rest = _rest(self._shards, list(self), weights_only=weights_only)
            if not self._layers:
                raise CheckpointError(f"{path}: no quantized layer of a format that planq knows")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files; layers can be read no more."""
        self._shards.close()

    def check(self) -> None:
        """Reads every layer, one after another, and refuses what is no weight.

        Names, types and shapes were checked when the files were opened.

        Raises:
            CheckpointError: A value means nothing in the format or is not finite, or the files
                changed.
            OSError: The system refused.
        """
        for layer in self:
            layer.check()

    def __enter__(self) -> Layers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers.values())

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, name: str) -> Layer:
        return self._layers[name]

    def __contains__(self, name: object) -> bool:
        return name in self._layers


def read_layers(path: str | os.PathLike[str], *, weights_only: bool = False) -> Layers:
    """Opens the quantized layers of a checkpoint; the caller closes them.

    Only headers and ``config.json`` are read now. Every tensor has to be part of a layer, or an
    ordinary floating one.

    Args:
        path: A safetensors file, or a model's folder.
        weights_only: Whether to take layers whose activations are to be quantized, too, without
            that. Otherwise they are refused.

    Raises:
        TensorError: A tensor is missing, left over, or of another type or shape.
        CheckpointError: A file, an index or the config is damaged, or the format is not known.
        OSError: The system refused.
    """
    return Layers(Path(path), weights_only=weights_only)


def find_layers(
    source: PartSource, config: PeerConfig | None, *, weights_only: bool
) -> Iterator[Layer]:
    """Yields the layers of a source, in the order of its tensors; other tensors are left alone.

    Args:
        source: The tensors.
        config: What tells their format; None if they have to tell it themselves.
        weights_only: As for `read_layers`.

    Raises:
        CheckpointError: A tensor or the config is not what a format has.
    """
    method = None if config is None else _method(config)
    if config is not None and not weights_only:
        _check_activations(config)
    states = state_layers(source) if method in (None, "bitsandbytes") else {}
    for name in source.by_name:
        known = name in states
        for layer in [states[name]] if known else _layers_of(source, name, method, config):
            if not weights_only:
                _check_input(layer)
            yield layer


def _method(config: PeerConfig) -> str:
    """The method that a config names."""
    method = config.word("quant_method", _METHODS)
    if method == "compressed-tensors":
        config.word("format", _FORMATS, "mixed-precision")
    return method


def dynamic_activations(config: PeerConfig | None) -> bool:
    """Whether a config has activations quantized as they come, in the type of the weights.

    They are codes of 8 bits, symmetric, by token; beside blocks of 128 x 128 by groups of 128.

    Raises:
        CheckpointError: The config has them quantized in another way, or some of them.
    """
    if config is None:
        return False
    if config.values.get("quant_method") == "fp8":
        return config.word("activation_scheme", ("dynamic",), "dynamic") == "dynamic"
    if config.values.get("config_groups") is None:
        return False
    groups = config.objects("config_groups")
    asked = [group for group in groups if group.values.get("input_activations") is not None]
    for group in asked:
        _check_dynamic(group)
    if asked and len(asked) < len(groups):
        raise config.refused(
            "config_groups", "activations quantized in all groups or in none", "some"
        )
    return bool(asked)


def _check_dynamic(group: PeerConfig) -> None:
    given, weights = group.section("input_activations"), group.section("weights")
    kind = weights.word("type", ("int", "float"), "int")
    given.word("type", (kind,), "int")
    for each in (given, weights):
        if each.integer("num_bits", 8) != 8:
            raise each.refused("num_bits", "8", each.values.get("num_bits"))
    for key, wanted in (("symmetric", True), ("dynamic", True)):
        if given.flag(key, usual=key == "symmetric") is not wanted:
            raise given.refused(key, "true", given.values.get(key))
    blocks = weights.values.get("strategy") == "block"
    given.word("strategy", ("group" if blocks else "token",))
    if blocks and given.integer("group_size") != GROUP:
        raise given.refused("group_size", str(GROUP), given.values.get("group_size"))


def _check_input(layer: Layer) -> None:
    """Refuses a layer of a format whose activations are quantized in any case."""
    if layer.stored_as in (StoredAs.BITSANDBYTES_INT8, StoredAs.FP8):
        expected = f"no activations that are quantized ({_WITHOUT})"
        found = f"{layer.stored_as}, which quantizes them"
        raise layer.parts["weight_scale"].refused(expected, found)


def _check_activations(config: PeerConfig) -> None:
    if config.values.get("config_groups") is None:
        return
    for group in config.objects("config_groups"):
        if group.values.get("input_activations") is not None:
            raise group.refused("input_activations", f"null; {_WITHOUT}", "a scheme")


def _layers_of(
    shards: PartSource, name: str, method: str | None, config: PeerConfig | None
) -> list[Layer]:
    """The layers whose codes a tensor has."""
    if name.endswith(_COLUMNS) and method in (None, "gptq", "awq"):
        module = name.removesuffix(_COLUMNS)
        awq = method == "awq" or (method is None and _is_awq(shards, module))
        return (awq_layers if awq else gptq_layers)(shards, module, config)
    if name.endswith(_PACKED) and method in (None, "compressed-tensors"):
        module = name.removesuffix(_PACKED)
        if shards.by_name[name].dtype == "U8":
            return float4_layers(shards, module)
        return packed_layers(shards, module, config)
    unpacked = method in (None, "compressed-tensors", "bitsandbytes", "fp8")
    if name.endswith(_UNPACKED) and shards.by_name[name].dtype in CODES and unpacked:
        return unpacked_layers(shards, name.removesuffix(_UNPACKED), config)
    if name.endswith(_BLOCKS) and method in (None, "mxfp4"):
        return block_layers(shards, name.removesuffix(_BLOCKS))
    return []


def _is_awq(shards: PartSource, module: str) -> bool:
    """Whether a word of codes has those of eight columns of scales."""
    codes, scales = (shards.by_name.get(f"{module}.{part}") for part in ("qweight", "scales"))
    return bool(codes and scales and scales.shape[-1:] == (8 * codes.shape[-1],))


def _rest(shards: Shards, layers: Sequence[Layer], *, weights_only: bool) -> tuple[str, ...]:
    """The tensors that are part of no layer.

    Raises:
        TensorError: One of them is no ordinary tensor, but left over of a quantized layer.
    """
    taken = {part.entry.name for layer in layers for part in layer.parts.values()}
    modules = {layer.name for layer in layers}
    rest = []
    for name, entry in shards.by_name.items():
        if name in taken:
            continue
        if _ACTIVATIONS.search(name):
            if not weights_only:
                expected = f"no activations that are quantized ({_WITHOUT})"
                raise TensorError(shards.home(name), name, expected, entry.words)
        elif name.rpartition(".")[0] in modules or _is_left(entry):
            found = f"{entry.words}, which is left over"
            raise TensorError(shards.home(name), name, "a part of a layer", found)
        else:
            rest.append(name)
    return tuple(rest)


def _is_left(entry: TensorEntry) -> bool:
    """Whether only a quantized layer has such a tensor."""
    if entry.name.endswith(".weight"):
        return entry.dtype in (*CODES, "U8", "I32")
    blocks = entry.name.endswith((_BLOCKS, "_scales")) and entry.dtype in _BYTES
    return blocks or _PART.search(entry.name) is not None
