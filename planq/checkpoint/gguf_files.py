"""GGUF files as llama.cpp and others write them: one file, or the parts of a split one.

Every tensor is listed, whatever its type, and its bytes can be read. The package ``gguf`` is not
needed: it maps files, and reads lengths as they come.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.files import TensorFile, placed
from planq.checkpoint.gguf_header import parse_gguf_header

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from planq.checkpoint.files import TensorEntry
    from planq.checkpoint.gguf_header import Value
    from planq.executors import Bytes

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_PART = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)


class GgufFile(TensorFile):
    """One open GGUF file; `TensorEntry.dtype` is ggml's name of a type, such as ``Q4_K``.

    Attributes:
        version: 2 or 3.
        alignment: What the offsets of tensors are multiples of, in bytes.
        metadata: The values, by key.
    """

    FORMAT = "GGUF"
    version: int
    alignment: int
    metadata: dict[str, Value]

    def _read_header(self) -> Iterable[TensorEntry]:
        header = parse_gguf_header(lambda at, count: os.pread(self._fd, count, at), self.size)
        self.version, self.alignment = header.version, header.alignment
        self.metadata = header.metadata
        self.payload = header.payload
        return [placed(place, header.payload) for place in header.places]

    def split(self, key: str, expected: int | None = None) -> int:
        """Returns a number of the metadata that tells how a model is split.

        Args:
            key: Its key.
            expected: What it has to be; None where any number from 0 on will do.

        Raises:
            CheckpointError: It is not there, no such number, or not the expected one.
        """
        found = self.metadata.get(key)
        if type(found) is int and found >= 0 and expected in (None, found):
            return found
        wanted = "a number from 0 on" if expected is None else expected
        got = {int: found, type(None): "nothing"}.get(type(found), f"a {type(found).__name__}")
        raise CheckpointError(f"{self.path}: metadata {key!r}: expected {wanted}, got {got}")


class GgufFiles:
    """The open files of a model: a context manager, and a source of tensors.

    Args:
        path: As for `read_gguf`, which makes these.

    Attributes:
        path: The file that was given.
        files: It, or all parts of the model, in order.
        metadata: The values of the first file, by key. Arrays of numbers are NumPy's, others lists.
        entries: The tensors of all files, in order; `TensorEntry.offset` counts in its own file.
        by_name: The same, by name.
        size: The bytes of all files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: list[GgufFile] = []
        self._homes: dict[str, GgufFile] = {}
        try:
            first = self._open(path)
            if _COUNT in first.metadata:
                self._open_parts(first)
        except BaseException:
            self.close()
            raise
        self.metadata = first.metadata
        self.entries = tuple(entry for each in self.files for entry in each.entries)
        self.by_name = {entry.name: entry for entry in self.entries}
        self.size = sum(each.size for each in self.files)

    def __enter__(self) -> GgufFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; tensors can be read no more."""
        while self.files:
            self.files.pop().close()

    def home(self, name: str) -> Path:
        """Returns the file that has a tensor."""
        return self._homes[name].path

    def tensor(self, entry: TensorEntry) -> Bytes:
        """Returns the payload of one tensor in new memory, aligned for any element type.

        Raises:
            CheckpointError: A file has become shorter, or is closed.
            OSError: The system refused.
        """
        if not self.files:
            raise CheckpointError(f"{self.path}: its files are closed")
        return self._homes[entry.name].tensor(entry)

    def digests(self) -> dict[str, str]:
        """Returns the digests of all tensors, which were all read, by name."""
        found = (each.digests.of(each.entries) for each in self.files)
        return {name: digest for digests in found for name, digest in digests.items()}

    def check_unchanged(self) -> None:
        """Refuses files that were written to since they were opened: old and new may be mixed.

        Raises:
            CheckpointError: A size or a time of modification has changed.
        """
        for each in self.files:
            each.check_unchanged()

    def _open(self, path: Path) -> GgufFile:
        opened = GgufFile(path)
        self.files.append(opened)
        for entry in opened.entries:
            other = self._homes.setdefault(entry.name, opened)
            if other is not opened:
                files = f"{other.path.name} and {path.name}"
                raise CheckpointError(f"{self.path}: tensor {entry.name!r}: in {files}")
        return opened

    def _open_parts(self, first: GgufFile) -> None:
        """Opens the other parts, and refuses those that are not of this model."""
        count = first.split(_COUNT)
        if count <= 1:
            return
        first.split(_NUMBER, 0)
        tensors = first.split(_TENSORS)
        for number, path in enumerate(_names(first.path, count)[1:], start=1):
            if not path.exists():
                raise CheckpointError(f"{path}: part {number + 1} of {count} is not there")
            part = self._open(path)
            for key, expected in ((_NUMBER, number), (_COUNT, count), (_TENSORS, tensors)):
                part.split(key, expected)
        if len(self._homes) != tensors:
            what = f"expected {tensors} tensors, got {len(self._homes)} in {count} files"
            raise CheckpointError(f"{first.path}: metadata {_TENSORS!r}: {what}")


def read_gguf(path: str | os.PathLike[str]) -> GgufFiles:
    """Opens a GGUF file, or all parts of a split one; the caller closes them.

    Only headers are read now.

    Args:
        path: The file; of a split model the first, ``NAME-00001-of-0000N.gguf``.

    Raises:
        CheckpointError: A file is damaged or missing, or the parts do not belong together.
        OSError: The system refused.
    """
    return GgufFiles(Path(path))


def _names(first: Path, count: int) -> list[Path]:
    """The files of a model that is split into so many, the first of which is given."""
    found = _PART.fullmatch(first.name)
    wanted = f"-00001-of-{count:05}.gguf"
    if found is None or not first.name.endswith(wanted):
        raise CheckpointError(f"{first}: the first of {count} files: expected a name in {wanted}")
    names = (f"{found[1]}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1))
    return [first.with_name(name) for name in names]
