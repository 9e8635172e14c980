"""Layers of `linear_gguf` on the host, as one call; run as a program, a digest of many."""

from __future__ import annotations

import hashlib
import sys

import numpy as np

import planq
from planq.audit.ops.gguf.blocks import FORMATS
from planq.audit.ops.gguf.inputs import made
from planq.audit.ops.gguf.linear_gguf.cases import KNOWN
from planq.audit.reference.formats import STORAGE, Array

COLUMNS = 19


def blocks_of(kind: str, terms: int, data: str = "near", columns: int = COLUMNS) -> Array:
    """Rows of bytes."""
    form = FORMATS[kind]
    return made(form, (columns, terms // form.elements * form.nbytes), data, terms)


def layer(given: dict[str, Array], kind: str, output_dtype: str = "float32") -> Array:
    """The output of a layer, whose activations are codes if there are scales."""
    x = given["input"]
    form = FORMATS[kind]
    columns, nbytes = given["weight"].shape
    added = given.keys() & {"bias", "residual"}
    fields = {f"{name}_dtype": given[name].dtype.name for name in added}
    desc = planq.LinearGgufDescriptor(
        input_shape=x.shape,
        weight_shape=(columns, nbytes // form.nbytes * form.elements),
        type=kind,
        input_dtype=x.dtype.name,
        output_dtype=output_dtype,
        **fields,
    )
    plan = planq.Plan.select(planq.HOST, desc)
    output = np.empty((*x.shape[:-1], columns), STORAGE[output_dtype])
    room = np.empty(plan.workspace_size() + planq.WORKSPACE_ALIGNMENT, np.uint8)
    room = room[-room.ctypes.data % planq.WORKSPACE_ALIGNMENT :][: plan.workspace_size()]
    args = planq.LinearGgufArgs(output=output, **given)
    plan.run(planq.HOST, room if room.size else None, args)
    return output


def codes(shape: tuple[int, ...], seed: int = 3) -> dict[str, Array]:
    """Every code there is, under scales of about one size."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-128, 128, shape, np.int8)
    scale = rng.uniform(0.01, 0.02, (*shape[:-1], shape[-1] // 32)).astype(np.float32)
    return {"input": x, "input_scale": scale}


def digest() -> str:
    """Of layers of every type, of few rows and of many, and of floats."""
    found = hashlib.sha256()
    for kind in KNOWN:
        for rows in (1, 5, 33):
            given = codes((rows, 768), seed=rows)
            weight = {"weight": blocks_of(kind, 768, columns=37)}
            found.update(layer(given | weight, kind).tobytes())
        floating = codes((3, 768))["input"].astype(np.float32)
        found.update(layer({"input": floating, "weight": weight["weight"]}, kind).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
