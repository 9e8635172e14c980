"""Reading and writing files of tensors, safetensors unless told, one tensor at a time.

The reader copies and never maps: a file that shrinks under a mapping kills the process. The writer
is told every size before it starts. So it writes the header first and each payload at its offset,
in any order. Neither ever holds the whole file.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from planq.checkpoint.digests import FileDigest, TensorDigests
from planq.checkpoint.failure import CheckpointError, TensorError, note_output
from planq.checkpoint.header import BITS, LARGEST_HEADER, LENGTH_BYTES, METADATA, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from planq.checkpoint.header import Place
    from planq.executors import Bytes

_COPY_BYTES = 8 << 20
# Large tensors are read in pieces, so that an interrupt is handled soon.
_READ_BYTES = 64 << 20
_CANNOT_RESERVE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as the header names it.

    Attributes:
        name: Its key in the header.
        dtype: The format's own name of the type, such as ``BF16``.
        shape: Its extents.
        nbytes: Size of its payload.
        offset: Where its payload starts, in bytes from the start of the file as it is read; the
            writer computes it, from the end of the header.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int = 0

    @property
    def words(self) -> str:
        """Its type and shape, as errors name them."""
        return f"{self.dtype} {list(self.shape)}"


class TensorSource(Protocol):
    """Where tensors come from: an open file, or the open files of a model.

    Attributes:
        path: The file or folder, as errors name it.
        by_name: The tensors, by name.
    """

    path: Path
    by_name: dict[str, TensorEntry]

    def tensor(self, entry: TensorEntry) -> Bytes:
        """Returns the payload of one tensor in new memory, aligned for any element type."""


class PartSource(TensorSource, Protocol):
    """Where the tensors of layers come from: files, or a dictionary of tensors in memory."""

    def home(self, name: str) -> Path:
        """Returns the file that has a tensor, as errors name it."""

    def piece(self, entry: TensorEntry, at: int, count: int) -> Bytes:
        """Returns ``count`` bytes of one tensor from offset ``at``, in new memory."""


def expect(source: TensorSource, part: TensorEntry) -> None:
    """Refuses a source that lacks a tensor.

    Args:
        source: The file or files.
        part: The tensor's name, type and shape.

    Raises:
        TensorError: No tensor has this name, or it has another type or shape.
    """
    found = source.by_name.get(part.name)
    if found is None or (found.dtype, found.shape) != (part.dtype, part.shape):
        has = None if found is None else found.words
        raise TensorError(source.path, part.name, part.words, has)


class TensorFile(ABC):
    """An open file of tensors, read by copies. The caller closes it.

    Args:
        path: The file. Its header is checked against its size.
        whole: Whether to compute the digest of the whole file; all tensors are then to be read,
            in order. Otherwise the digest of each tensor is computed when it is read.

    Attributes:
        path: The file, as errors name it.
        size: Its size in bytes.
        entries: The tensors, in the order of their payloads.
        by_name: The same, by name.
        digests: The digests of tensors that were read; it compares them with expected ones.
        payload: Where the payloads begin, in bytes from the start of the file.

    Raises:
        CheckpointError: The file is not a valid one of its format.
        OSError: The file cannot be opened.
    """

    FORMAT: ClassVar[str]
    payload: int

    def __init__(self, path: Path, *, whole: bool = False) -> None:
        self.path = path
        self.digests = TensorDigests()
        self._whole = FileDigest() if whole else None
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path}: not a regular file")
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._opened = os.fstat(self._fd)
        self.size = self._opened.st_size
        try:
            with _blamed(path):
                found = self._read_header()
            self.entries = tuple(sorted(found, key=lambda entry: entry.offset))
            self.by_name = {entry.name: entry for entry in self.entries}
        except ValueError as error:
            os.close(self._fd)
            raise CheckpointError(f"{path}: not a valid {self.FORMAT} file: {error}") from error
        except BaseException:
            os.close(self._fd)
            raise

    @abstractmethod
    def _read_header(self) -> Iterable[TensorEntry]:
        """Reads what stands before the tensors; a ValueError says what is wrong with it."""

    def close(self) -> None:
        """Closes the file."""
        os.close(self._fd)

    def header(self) -> bytes:
        """Returns what stands before the payloads."""
        with _blamed(self.path):
            return os.pread(self._fd, self.payload, 0)

    def sha256(self) -> str:
        """Returns the digest of the file, which was opened with ``whole`` and read in full."""
        if self._whole is None:
            raise AssertionError(f"{self.path}: opened without a digest")
        return self._whole.digest(self.size)

    def tensor(self, entry: TensorEntry) -> Bytes:
        """Returns the payload of one tensor in new memory, aligned for any element type.

        Args:
            entry: One of `entries`.

        Raises:
            CheckpointError: The file has become shorter.
        """
        payload = np.empty(entry.nbytes, np.uint8)
        rest, at = payload.data, entry.offset
        while rest.nbytes:
            with _blamed(self.path):
                read = os.preadv(self._fd, [rest[:_READ_BYTES]], at)
            if not read:
                raise self._changed()
            self._pass(entry, rest[:read], at - entry.offset)
            rest, at = rest[read:], at + read
        return payload

    def chunks(self, entry: TensorEntry) -> Iterator[bytes]:
        """Yields the payload of one tensor in pieces of bounded size."""
        at, end = entry.offset, entry.offset + entry.nbytes
        while at < end:
            with _blamed(self.path):
                piece = os.pread(self._fd, min(_COPY_BYTES, end - at), at)
            if not piece:
                raise self._changed()
            self._pass(entry, piece, at - entry.offset)
            yield piece
            at += len(piece)

    def piece(self, entry: TensorEntry, at: int, count: int) -> Bytes:
        """Returns ``count`` bytes of one tensor from offset ``at``; no digest is computed."""
        data = np.empty(count, np.uint8)
        passed = 0
        while passed < count:
            with _blamed(self.path):
                read = os.preadv(self._fd, [data.data[passed:]], entry.offset + at + passed)
            if not read:
                raise self._changed()
            passed += read
        return data

    def check_unchanged(self) -> None:
        """Refuses a file that was written to since it was opened: old and new may be mixed.

        Raises:
            CheckpointError: Its size or its time of modification has changed.
        """
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self.size, self._opened.st_mtime_ns):
            raise self._changed()

    def _pass(self, entry: TensorEntry, piece: bytes | memoryview, at: int) -> None:
        if self._whole is None:
            self.digests.update(entry, piece, at)
        else:
            self._whole.update(piece, entry.offset + at)

    def _changed(self) -> CheckpointError:
        return CheckpointError(f"{self.path}: the file changed while it was read")


class CheckpointReader(TensorFile):
    """An open safetensors file.

    Attributes:
        metadata: The header's free-form strings.
    """

    FORMAT = "safetensors"
    metadata: dict[str, str]

    def _read_header(self) -> Iterable[TensorEntry]:
        if self.size < LENGTH_BYTES:
            raise ValueError(f"a file of {self.size} bytes")
        start = os.pread(self._fd, LENGTH_BYTES, 0)
        length = int.from_bytes(start, "little")
        payload = LENGTH_BYTES + length
        if self.size < payload or length > LARGEST_HEADER:
            raise ValueError(f"{length} bytes of header in a file of {self.size}")
        text = os.pread(self._fd, length, LENGTH_BYTES)
        if len(start + text) < payload:
            raise self._changed()
        if self._whole is not None:
            self._whole.update(start + text, 0)
        self.payload = payload
        self.metadata, places = parse_header(text, self.size - payload)
        return [placed(place, payload) for place in places]


def placed(place: Place, payload: int) -> TensorEntry:
    """Returns a tensor of a header in a file whose payload starts at this byte."""
    nbytes = place.end - place.start
    return TensorEntry(place.name, place.dtype, place.shape, nbytes, payload + place.start)


R_co = TypeVar("R_co", bound=TensorFile, covariant=True)


class Container(Protocol[R_co]):
    """A format of files of tensors."""

    def open(self, path: Path) -> R_co:
        """Opens a file; the caller closes it."""

    def lay_out(self, entries: Sequence[TensorEntry]) -> tuple[dict[str, TensorEntry], int]:
        """Returns the tensors with their offsets from the end of the header, and where they end.

        Raises:
            CheckpointError: A name appears twice, or is not allowed.
        """

    def header(self, placed: Iterable[TensorEntry], metadata: Mapping[str, Any]) -> bytes:
        """Returns what stands before the payloads.

        Raises:
            CheckpointError: It would be too long to read.
        """


class _Safetensors:
    """The format safetensors. Payloads are sorted by element size; equal ones keep their order."""

    def open(self, path: Path) -> CheckpointReader:
        return CheckpointReader(path)

    def lay_out(self, entries: Sequence[TensorEntry]) -> tuple[dict[str, TensorEntry], int]:
        placed = _layout(entries)
        return placed, sum(entry.nbytes for entry in entries)

    def header(self, placed: Iterable[TensorEntry], metadata: Mapping[str, Any]) -> bytes:
        return _header(placed, metadata)


SAFETENSORS: Container[CheckpointReader] = _Safetensors()


class TensorWriter(Generic[R_co]):
    """A file of tensors in the making, under another name until it is complete.

    The caller closes it in any case. Closing without `commit` removes the partial file.

    Args:
        path: The file to make.
        entries: Every tensor that it will hold.
        metadata: What the header tells beside the tensors; in safetensors free-form strings.
        overwrite: Whether a file already at `path` may be replaced.
        container: The format of the file.

    Raises:
        CheckpointError: A name appears twice or belongs to the format, or `path` is taken.
        OSError: The folder cannot be written, or has no room for the file.
    """

    def __init__(
        self,
        path: Path,
        entries: Sequence[TensorEntry],
        metadata: Mapping[str, Any],
        *,
        overwrite: bool,
        container: Container[R_co],
    ) -> None:
        self._path = path
        self._overwrite = overwrite
        self._container = container
        self._entries, end = container.lay_out(entries)
        header = container.header(self._entries.values(), metadata)
        self._payload = len(header)
        self.size = self._payload + end
        self._missing = {name: entry.nbytes for name, entry in self._entries.items()}
        self._digests = TensorDigests()
        check_target(path, overwrite=overwrite)
        self._partial = path.with_name(f".planq-{os.getpid()}-{os.urandom(4).hex()}.partial")
        self._fd = -1
        try:
            with _blamed(self._path):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                self._fd = os.open(self._partial, flags, 0o666)
                _reserve(self._fd, self.size)
                os.ftruncate(self._fd, self.size)
            self._write_at(header, 0)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes the partial file, unless `commit` has renamed it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._partial.unlink(missing_ok=True)

    def write(self, name: str, payload: bytes | memoryview, at: int = 0) -> None:
        """Writes bytes of one tensor; its pieces come in order, from first to last.

        Args:
            name: The tensor.
            payload: The bytes.
            at: Their offset from the start of the tensor.
        """
        entry = self._entries[name]
        data = memoryview(payload)
        if at + data.nbytes > entry.nbytes:
            raise AssertionError(f"{name}: {at + data.nbytes} bytes do not fit in {entry.nbytes}")
        self._digests.update(entry, data, at)
        self._write_at(data, self._payload + entry.offset + at)
        self._missing[name] -= data.nbytes

    def digests(self, entries: Iterable[TensorEntry]) -> dict[str, str]:
        """Returns the digests of tensors that are written, by name."""
        return self._digests.of(entries)

    def write_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replaces what the header tells by something of the same length."""
        header = self._container.header(self._entries.values(), metadata)
        if len(header) != self._payload:
            raise AssertionError(f"a header of {len(header)} bytes instead of {self._payload}")
        self._write_at(header, 0)

    def reopen(self) -> R_co:
        """Returns a reader of the complete file, which still has its partial name.

        The file's pages are dropped from the page cache first, where the system can, so that the
        disk is read. The caller closes the reader.
        """
        self._sync()
        with suppress(OSError):
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)
        reader = self._container.open(self._partial)
        reader.path = self._path
        return reader

    def commit(self) -> None:
        """Makes the file durable, then gives it its name in one step."""
        self._sync()
        check_target(self._path, overwrite=self._overwrite)
        self._give_name()
        _sync_folder(self._path.parent)

    def _give_name(self) -> None:
        refused = False
        try:
            with _blamed(self._path):
                self._partial.replace(self._path)
        except OSError:
            refused = True
            raise
        finally:  # a signal may have come before or after the rename: look which
            if not refused and not os.path.lexists(self._partial):
                note_output(self._path)

    def _sync(self) -> None:
        short = [name for name, missing in self._missing.items() if missing]
        if short:
            raise AssertionError(f"payload incomplete: {', '.join(short)}")
        with _blamed(self._path):
            os.fsync(self._fd)

    def _write_at(self, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data)
        with _blamed(self._path):
            while rest.nbytes:
                written = os.pwrite(self._fd, rest, offset)
                rest = rest[written:]
                offset += written


class CheckpointWriter(TensorWriter[CheckpointReader]):
    """A safetensors file in the making; `TensorWriter` has the arguments."""

    def __init__(
        self,
        path: Path,
        entries: Sequence[TensorEntry],
        metadata: Mapping[str, str],
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(path, entries, metadata, overwrite=overwrite, container=SAFETENSORS)


class TensorComparer(Generic[R_co]):
    """Takes what a `TensorWriter` takes, but compares it with an existing file.

    The caller closes it.

    Args:
        path: The file.
        entries: Every tensor that it should hold.
        container: The format of the file.

    Attributes:
        reader: The open file.
        differing: The tensors that differ, by name, each with the number of bytes that differ;
            None if the file lacks the tensor, or it has another type or shape.

    Raises:
        CheckpointError: The file is not a valid one of its format.
        OSError: It cannot be opened.
    """

    def __init__(
        self, path: Path, entries: Sequence[TensorEntry], container: Container[R_co]
    ) -> None:
        self._container = container
        self._entries, self._end = container.lay_out(entries)
        self.reader = container.open(path)
        self._digests = TensorDigests()
        self.differing: dict[str, int | None] = {}
        for name, entry in self._entries.items():
            found = self.reader.by_name.get(name)
            if found is None or (found.dtype, found.shape) != (entry.dtype, entry.shape):
                self.differing[name] = None

    def close(self) -> None:
        """Closes the file."""
        self.reader.close()

    def write(self, name: str, payload: bytes | memoryview, at: int = 0) -> None:
        """Compares bytes of one tensor; its pieces come in order, from first to last.

        Args:
            name: The tensor.
            payload: The bytes that are expected.
            at: Their offset from the start of the tensor.
        """
        self._digests.update(self._entries[name], payload, at)
        before = self.differing.get(name, 0)
        if before is None:
            return
        wanted = np.frombuffer(payload, np.uint8)
        found = self.reader.piece(self.reader.by_name[name], at, wanted.size)
        differing = before + int((wanted != found).sum())
        if differing:
            self.differing[name] = differing

    def digests(self, entries: Iterable[TensorEntry]) -> dict[str, str]:
        """Returns the digests that tensors should have, by name."""
        return self._digests.of(entries)

    def unexpected(self) -> list[str]:
        """Returns the names of tensors that should not be there."""
        return [name for name in self.reader.by_name if name not in self._entries]

    def has_header(self, metadata: Mapping[str, Any]) -> bool:
        """Whether the header is, byte for byte, the one that a writer makes of this."""
        header = self._container.header(self._entries.values(), metadata)
        size = len(header) + self._end
        return size == self.reader.size and header == self.reader.header()


class CheckpointComparer(TensorComparer[CheckpointReader]):
    """The same for a safetensors file."""

    def __init__(self, path: Path, entries: Sequence[TensorEntry]) -> None:
        super().__init__(path, entries, SAFETENSORS)


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    """Puts the file's name into system errors that name none, or name the partial output."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def copy_tensor(
    entry: TensorEntry, reader: CheckpointReader, writer: CheckpointWriter | CheckpointComparer
) -> None:
    """Copies one tensor from file to file, or compares it, in pieces of bounded size."""
    at = 0
    for piece in reader.chunks(entry):
        writer.write(entry.name, piece, at)
        at += len(piece)


def check_paths(source: Path, target: Path, *, overwrite: bool) -> None:
    """Refuses to overwrite the input, or something that may not be replaced.

    Args:
        source: The file to read.
        target: The file to make.
        overwrite: Whether a regular file already there may be replaced.

    Raises:
        CheckpointError: `target` is `source`, or exists and may not be replaced.
    """
    if target.exists() and target.samefile(source):
        raise CheckpointError(f"{target}: the output is the input")
    check_target(target, overwrite=overwrite)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuses a path where something is that may not be replaced.

    Args:
        path: The file to make.
        overwrite: Whether a regular file already there may be replaced.

    Raises:
        CheckpointError: `path` exists and may not be replaced.
    """
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise CheckpointError(f"{path}: exists and is not a regular file")
    if not overwrite:
        raise CheckpointError(f"{path}: exists; --force replaces it")


def _layout(entries: Sequence[TensorEntry]) -> dict[str, TensorEntry]:
    """Gives every tensor its offset from the end of the header, by name.

    Payloads are sorted by element size, the largest first. So each is aligned to its element size,
    as loaders that use the bytes in place require.
    """
    placed: dict[str, TensorEntry] = {}
    at = 0
    for entry in sorted(entries, key=lambda entry: -_alignment(entry.dtype)):
        if entry.name in placed:
            raise CheckpointError(f"two tensors of the output would be named {entry.name!r}")
        if entry.name == METADATA:
            raise CheckpointError(f"safetensors has no tensors that are named {entry.name!r}")
        placed[entry.name] = replace(entry, offset=at)
        at += entry.nbytes
    return placed


def _alignment(dtype: str) -> int:
    """The alignment of a payload in bytes; types of one byte or less need none."""
    return max(BITS[dtype] // 8, 1)


def _header(placed: Iterable[TensorEntry], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    for entry in placed:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": entry.shape,
            "data_offsets": (entry.offset, entry.offset + entry.nbytes),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    if len(text) > LARGEST_HEADER:
        raise CheckpointError(f"the output's header would have {len(text)} bytes, too many to load")
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _reserve(fd: int, size: int) -> None:
    """Reserves the disk space at once, so that a full disk fails before the work, not after."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in _CANNOT_RESERVE:
            raise


def _sync_folder(folder: Path) -> None:
    """Makes a rename durable, where the file system can; the file's content already is."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
