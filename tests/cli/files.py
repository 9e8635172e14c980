"""Small safetensors files, sound and damaged, made byte by byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

Array = npt.NDArray[Any]

HEEDING = """import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)"""

# The format's names of the types that these files hold.
FORMAT = {
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
NUMPY = {
    name: np.dtype(getattr(ml_dtypes, numpy_name, None) or numpy_name)
    for numpy_name, name in FORMAT.items()
}


def pack(header: Mapping[str, Any] | bytes, payload: bytes) -> bytes:
    """A file of this header and payload, whatever the header claims."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + payload


def describe(dtype: str, shape: Iterable[int], start: int, end: int) -> dict[str, Any]:
    """A header's entry."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def checkpoint(
    path: Path, tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None
) -> Path:
    """Writes tensors one after another in the given order, without any padding."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    payload = b""
    for name, values in tensors.items():
        start = len(payload)
        payload += values.tobytes()
        dtype = FORMAT[values.dtype.name]
        header[name] = describe(dtype, values.shape, start, len(payload))
    path.write_bytes(pack(header, payload))
    return path


@dataclass(frozen=True)
class Loaded:
    """A file read back without any library."""

    tensors: dict[str, Array]
    metadata: dict[str, str]
    offsets: dict[str, int]


def load(path: Path) -> Loaded:
    """Reads a file; offsets count from its start."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    metadata = header.pop("__metadata__", {})
    tensors, offsets = {}, {}
    for name, entry in header.items():
        start, stop = (end + offset for offset in entry["data_offsets"])
        values = np.frombuffer(content[start:stop], NUMPY[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
        offsets[name] = start
    return Loaded(tensors, metadata, offsets)


def weight(rows: int, columns: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Values like those of a layer, with rows of different size."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns)) * np.exp2(np.arange(rows) % 5)[:, None]
    return values.astype(np.dtype(getattr(ml_dtypes, dtype, None) or dtype))


def planq_process(*arguments: object, before: str = "") -> subprocess.Popen[str]:
    """Starts the command line in a process of its own, after some Python to set a scene.

    It heeds every signal, also where these tests run in the background and ignore some.
    """
    script = f"{HEEDING}\n{before}\nfrom planq.cli import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
    )
