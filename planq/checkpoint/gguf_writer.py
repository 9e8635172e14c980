"""Writing GGUF files: version 3, little-endian, every tensor at a multiple of 32 bytes.

planq writes the container itself, as it reads it: the package ``gguf`` does not know all types, and
holds all tensors of a file in memory.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_files import GgufFile
from planq.checkpoint.gguf_header import TYPES
from planq.checkpoint.header import LARGEST_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from planq.checkpoint.files import Container, TensorEntry
    from planq.checkpoint.gguf_header import Value

_ALIGNMENT = 32
_LONGEST_NAME = 63  # ggml's names of tensors have room for a byte of 0 beyond that
_NUMBERS = {block.name: number for number, block in TYPES.items()}
_INT32, _UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 5, 4, 6, 7, 8, 9


class _Gguf:
    """The format GGUF; tensors keep their order."""

    def open(self, path: Path) -> GgufFile:
        return GgufFile(path)

    def lay_out(self, entries: Sequence[TensorEntry]) -> tuple[dict[str, TensorEntry], int]:
        placed: dict[str, TensorEntry] = {}
        at = 0
        for entry in entries:
            if entry.name in placed:
                what = f"two tensors of the output would be named {entry.name!r}"
                raise CheckpointError(what)
            if len(entry.name.encode()) > _LONGEST_NAME:
                what = f"expected a name of at most {_LONGEST_NAME} bytes"
                raise CheckpointError(f"tensor {entry.name!r}: {what}")
            placed[entry.name] = replace(entry, offset=at)
            at += _padded(entry.nbytes)
        return placed, at

    def header(self, placed: Iterable[TensorEntry], metadata: Mapping[str, Value]) -> bytes:
        infos = [_info(entry) for entry in placed]
        pairs = [_pair(key, found) for key, found in metadata.items()]
        start = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs))
        header = b"".join((start, *pairs, *infos))
        if len(header) > LARGEST_HEADER:
            what = f"the output's header would have {len(header)} bytes, too many to load"
            raise CheckpointError(what)
        return header.ljust(_padded(len(header)), b"\0")


GGUF: Container[GgufFile] = _Gguf()


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _info(entry: TensorEntry) -> bytes:
    axes = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
    return _text(entry.name) + axes + struct.pack("<IQ", _NUMBERS[entry.dtype], entry.offset)


def _text(text: str) -> bytes:
    content = text.encode()
    return struct.pack("<Q", len(content)) + content


def _pair(key: str, found: Value) -> bytes:
    try:
        return _text(key) + _value(found)
    except UnicodeEncodeError as error:  # JSON spells lone surrogates, which UTF-8 has not
        raise CheckpointError(
            f"metadata {key!r}: expected Unicode, got {error.object!r:.60}"
        ) from error


def _value(found: Value) -> bytes:
    """A value after its type: numbers have 32 bits, as llama.cpp reads them."""
    if isinstance(found, bool):
        return struct.pack("<I?", _BOOL, found)
    if isinstance(found, int):
        return struct.pack("<II", _UINT32, found)
    if isinstance(found, float):
        return struct.pack("<If", _FLOAT32, found)
    if isinstance(found, str):
        return struct.pack("<I", _STRING) + _text(found)
    if isinstance(found, np.ndarray):
        kind = {"<i4": _INT32, "<f4": _FLOAT32}[found.dtype.str]
        return struct.pack("<IIQ", _ARRAY, kind, found.size) + found.tobytes()
    texts = b"".join(_text(str(each)) for each in found)
    return struct.pack("<IIQ", _ARRAY, _STRING, len(found)) + texts
