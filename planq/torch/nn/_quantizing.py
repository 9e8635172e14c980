"""Quantizes the weight of a floating layer, as ``planq quantize`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch

from planq.checkpoint.files import TensorEntry
from planq.checkpoint.formats import Activations, Form, Format
from planq.checkpoint.job import Job, quantize_weight
from planq.checkpoint.layers import find_layers
from planq.checkpoint.peers.layer import Layer
from planq.checkpoint.schemes import Scheme, Search, choose_blocks, choose_groups
from planq.errors import ArgumentError
from planq.executors import HostExecutor
from planq.torch.nn._states import TensorDict, bytes_of, name_of, part_tensor

_DTYPES: Final = (torch.float16, torch.bfloat16, torch.float32)
_BLOCKS: Final = (Scheme.NF4, Scheme.FP4)


def form_of(scheme: Scheme, activations: str = "none") -> Form:
    """The format that layers of a scheme have: bitsandbytes for blocks, else compressed-tensors.

    Raises:
        ArgumentError: There is no such way of quantizing activations.
    """
    if activations not in list(Activations):
        raise ArgumentError("activations", " or ".join(Activations), repr(activations))
    form = Format.BITSANDBYTES if scheme in _BLOCKS else Format.COMPRESSED_TENSORS
    return Form(form, Activations(activations))


def quantized_layer(
    linear: torch.nn.Linear,
    scheme: str,
    *,
    name: str = "linear",
    block_size: int | None = None,
    nested: bool = False,
    group_size: int | None = None,
    search: str = "none",
    activations: str = "none",
) -> Layer:
    """Returns a layer of a floating one's numbers, in the format that its scheme has.

    Args:
        linear: The floating one.
        scheme: How its weight is quantized.
        name: The layer's name, in errors too.
        block_size: Elements of a block of nf4 and fp4; None for 64.
        nested: Whether the absmax of these blocks are quantized, too.
        group_size: Elements of a group of int4 and uint4; None for 128.
        search: ``"mse"`` searches for the range of each group.
        activations: ``"token"`` for a format whose activations are quantized, too.

    Raises:
        ArgumentError: The weight is no matrix of float16, bfloat16 or float32 in memory, or there
            is no such search.
        CheckpointError: An option does not go with the scheme, or a shape with its groups.
    """
    weight = linear.weight.detach()
    if weight.dtype not in _DTYPES or weight.dim() != 2 or weight.device.type == "meta":
        found = f"{str(weight.dtype).removeprefix('torch.')} on {weight.device.type}"
        expected = "a matrix of float16, bfloat16 or float32 in memory"
        raise ArgumentError(f"{name}.weight", expected, found)
    if search not in list(Search):
        raise ArgumentError("search", " or ".join(Search), repr(search))
    kind = Scheme(scheme)
    form = form_of(kind, activations)
    blocks = choose_blocks(kind, block_size, nested=nested, calibrated=False)
    groups = choose_groups(kind, group_size, Search(search))
    form.check(kind, blocks, calibrated=False)
    job = Job(Path(), Path(), kind, form=form, blocks=blocks, groups=groups)
    shape = tuple(weight.shape)
    entry = TensorEntry(f"{name}.weight", name_of(weight.dtype), shape, weight.nbytes)
    made = quantize_weight(job, entry, bytes_of(weight), HostExecutor(torch.get_num_threads()))
    tensors = {part.name: part_tensor(data, part.dtype, part.shape) for part, data in made.items()}
    if linear.bias is not None:
        tensors[f"{name}.bias"] = linear.bias.detach()
    (layer,) = find_layers(TensorDict(tensors), None, weights_only=True)
    return layer
