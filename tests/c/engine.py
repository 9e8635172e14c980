"""What examples/engine_cpp prints, and what it should."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

import planq
from c.programs import run
from planq.audit.reference.formats import Array


def results(engine: Path, *words: str | Path) -> dict[str, str]:
    """The digests that the engine prints, by name."""
    lines = run(engine, *words).splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def digests(values: Array) -> dict[str, str]:
    """What the engine prints for a weight, computed by planq in Python."""
    rows, columns = values.shape
    found = {}

    def quantize(what: str, x: Array, shape: tuple[Any, ...], **fields: Any) -> None:
        desc = planq.DynamicRangeQuantizeDescriptor(
            shape=shape, input_dtype=values.dtype.name, **fields
        )
        plan = planq.Plan.select(planq.HOST, desc)
        outputs = plan.empty_outputs(np, **({"m": len(x)} if desc.dims() else {}))
        plan.run(planq.HOST, None, planq.DynamicRangeQuantizeArgs(input=x, **outputs))
        for name, output in outputs.items():
            found[f"{what}.{name}"] = hashlib.sha256(output.tobytes()).hexdigest()

    fixed = (rows, columns)
    quantize("channel", values, fixed, output_dtype="int8", scope=planq.Scope.channel(0))
    quantize("group128", values, fixed, output_dtype="int4", scope=planq.Scope.group(128))
    for m in (1, 7, 64):
        x = np.ascontiguousarray(values[:m])
        quantize(f"activations{m}", x, (planq.Dim("m", 64), columns), output_dtype="int8")
    return found


def write_safetensors(path: Path, name: str, values: Array) -> None:
    """A file of one float32 tensor, for machines without the package."""
    entry = {"dtype": "F32", "shape": values.shape, "data_offsets": [0, values.nbytes]}
    header = json.dumps({name: entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + values.tobytes())
