"""Whatever stands in a checkpoint of others: its layers are sound, or one sentence says why not.

`make fuzz` runs these for longer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from checkpoint import peers
from checkpoint.test_peer_layers import check_operands, run
from checkpoint.test_peer_refusals import E4M3, MAKE
from cli.files import pack
from planq.checkpoint import read_layers
from planq.checkpoint.failure import CheckpointError
from support.hostile import Chaos, bounded, fuzzing

if TYPE_CHECKING:
    from pathlib import Path

KINDS = {
    **MAKE,
    "gptq-8": lambda: peers.gptq(bits=8),
    "channel": lambda: peers.packed(size=None),
    "unpacked": peers.unpacked,
    "unpacked-blocks": lambda: peers.unpacked(code=E4M3, scales="block", suffix="weight_scale_inv"),
    "rows-of-bitsandbytes": peers.rows_of_bitsandbytes,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of one example at a time."""
    return tmp_path_factory.mktemp("fuzz")


def read_all(folder: Path, *, weights_only: bool) -> None:
    """Reads a checkpoint: each layer that is taken multiplies."""
    said = "-"
    try:
        with bounded(), read_layers(folder, weights_only=weights_only) as layers:
            for layer in layers:
                check_operands(layer)
                n, k = layer.shape
                if k > 512:
                    continue
                y = np.empty((2, n), np.float32)
                x = np.ones((2, k), np.float32)
                desc = layer.descriptor(planq.Dim("m", max=2), "float32")
                run(desc, layer.args(input=x, output=y, **layer.operands()), m=2)
    except CheckpointError as error:
        said = str(error)
    assert said.isprintable()
    assert len(said) < 4000


@fuzzing(150)
def test_no_header_is_an_internal_error(folder: Path, chaos: Chaos) -> None:
    path = chaos.choice(sorted(KINDS.items()))[1]().save(folder) / "model.safetensors"
    whole = path.read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header: dict[str, Any] = json.loads(whole[8:end])
    match chaos.randint(0, 5):
        case 0:
            path.write_bytes(chaos.spliced(whole))
        case 1 | 2:
            path.write_bytes(pack(renamed(header, chaos), whole[end:]))
        case _:
            path.write_bytes(pack(reshaped(header, chaos), whole[end:]))
    read_all(folder, weights_only=chaos.random() < 0.5)


def renamed(header: dict[str, Any], chaos: Chaos) -> dict[str, Any]:
    """A header with a tensor of another name, or with another's bytes."""
    first, second = chaos.sample(sorted(header), 2)
    part = chaos.choice(("qzeros", "weight_scale", "weight_g_idx", "bias", "weight", "input_scale"))
    match chaos.randint(0, 2):
        case 0:
            header[f"model.q_proj.{part}"] = header.pop(first)
        case 1:
            header[chaos.word().encode("utf-8", "ignore").decode()] = header.pop(first)
        case _:
            header[first], header[second] = header[second], header[first]
    return header


def reshaped(header: dict[str, Any], chaos: Chaos) -> dict[str, Any]:
    """A header with a tensor of another type or shape, perhaps of the same size."""
    entry = header[chaos.choice(sorted(header))]
    shape = entry["shape"]
    types = ("F16", "BF16", "I32", "F32", "U8", "I8", "F8_E4M3", "F8_E8M0", "I64", "F64")
    match chaos.randint(0, 4):
        case 0:
            entry["dtype"] = chaos.choice(types)
        case 1:
            shape.reverse()
        case 2:
            shape.insert(chaos.randint(0, len(shape)), 1)
        case 3 if len(shape) > 1 and shape[0] % 2 == 0:
            shape[0], shape[1] = shape[0] // 2, shape[1] * 2
        case _:
            wide = {"F32": "I32", "I32": "F32", "BF16": "F16", "F16": "BF16", "U8": "F8_E8M0"}
            entry["dtype"] = wide.get(entry["dtype"], "U8")
    return header


@fuzzing(150)
def test_no_config_is_an_internal_error(folder: Path, chaos: Chaos) -> None:
    made = chaos.choice(sorted(KINDS.items()))[1]()
    made.save(folder)
    config = {"quantization_config": made.config}
    text = json.dumps(chaos.tampered(config)).encode()
    if chaos.random() < 0.2:
        text = chaos.spliced(text)
    (folder / "config.json").write_bytes(text)
    read_all(folder, weights_only=chaos.random() < 0.5)


@fuzzing(100)
def test_no_values_are_an_internal_error(folder: Path, chaos: Chaos) -> None:
    made = chaos.choice(sorted(KINDS.items()))[1]()
    name = chaos.choice(sorted(made.tensors))
    values = made.tensors[name]
    noise = np.frombuffer(chaos.randbytes(values.nbytes), values.dtype).reshape(values.shape)
    made.tensors[name] = noise if chaos.random() < 0.7 else np.zeros_like(values)
    made.save(folder)
    read_all(folder, weights_only=False)
