"""The safetensors files of a model: its index, ``config.json``, and all tensors as one set."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import CheckpointReader, TensorEntry
from planq.checkpoint.strict_json import parse
from planq.checkpoint.trees import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from planq.executors import Bytes

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
ENTRY = "quantization_config"


class Shards:
    """The open files of a model. The caller closes them.

    Args:
        path: A safetensors file, or a folder with such files and perhaps an index. All tensors of
            the files that an index names belong to the model.
        whole: As for `CheckpointReader`, of each of the files.

    Attributes:
        readers: The files, in order.
        path: The file or folder, as errors name it.
        by_name: The tensors of all files, by name.

    Raises:
        CheckpointError: A file is damaged or missing, or two files have a tensor of one name.
        OSError: The system refused.
    """

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self.path = path
        self.by_name: dict[str, TensorEntry] = {}
        self._homes: dict[str, CheckpointReader] = {}
        self.readers: list[CheckpointReader] = []
        try:
            places = read_index(path) if path.is_dir() else None
            for shard in shards_of(path, places) if path.is_dir() else [path]:
                self.readers.append(CheckpointReader(shard, whole=whole))
                self._add(self.readers[-1])
            for name, shard_name in (places or {}).items():
                if name not in self._homes or self._homes[name].path.name != shard_name:
                    raise CheckpointError(lost(path, name, shard_name))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the files."""
        while self.readers:
            self.readers.pop().close()

    def home(self, name: str) -> Path:
        """Returns the file that has a tensor."""
        return self._homes[name].path

    def tensor(self, entry: TensorEntry) -> Bytes:
        """Returns the payload of one tensor in new memory, aligned for any element type."""
        return self.piece(entry, 0, entry.nbytes)

    def piece(self, entry: TensorEntry, at: int, count: int) -> Bytes:
        """Returns ``count`` bytes of one tensor from offset ``at``."""
        if not self.readers:
            raise CheckpointError(f"{self.path}: its files are closed")
        return self._homes[entry.name].piece(entry, at, count)

    @property
    def metadata(self) -> dict[str, str]:
        """The strings of the first header."""
        return self.readers[0].metadata

    def _add(self, reader: CheckpointReader) -> None:
        for entry in reader.entries:
            if entry.name in self._homes:
                files = f"{self._homes[entry.name].path.name} and {reader.path.name}"
                raise CheckpointError(f"{self.path}: tensor {entry.name!r}: in {files}")
            self.by_name[entry.name] = entry
            self._homes[entry.name] = reader


def read_index(folder: Path) -> dict[str, str] | None:
    """Returns the file that the index names for each tensor; None without an index."""
    path = folder / INDEX
    if not os.path.lexists(path):
        return None
    places = read_json(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        got = "nothing" if places in (None, {}) else f"a {type(places).__name__}"
        raise CheckpointError(
            f"{path}: weight_map: expected an object with a file for each tensor, got {got}"
        )
    for name, shard in places.items():
        if not isinstance(shard, str):
            got = json.dumps(shard)[:40]
            raise CheckpointError(
                f"{path}: weight_map: {name!r}: expected the name of a file, got {got}"
            )
    return places


def shards_of(folder: Path, places: Mapping[str, str] | None) -> list[Path]:
    """Returns the safetensors files of a model, in order.

    Raises:
        CheckpointError: There is none, or one that the index names is missing.
    """
    found = sorted(path for path in folder.iterdir() if path.suffix == WEIGHTS)
    if places is not None:
        named = set(places.values())
        missing = sorted(named - {path.name for path in found})
        if missing:
            raise CheckpointError(f"{folder / missing[0]}: named by {INDEX}, and not there")
        found = [path for path in found if path.name in named]
    if not found:
        raise CheckpointError(f"{folder}: holds no {WEIGHTS} file")
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: The file is none.
        OSError: It cannot be read.
    """
    try:
        values = parse(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return values


def lost(folder: Path, name: str, shard: str) -> str:
    """Says that an index names a shard for a tensor that the shard does not have."""
    return f"{folder / INDEX}: weight_map: {shard} holds no tensor {name!r}"
