"""Digests of tensors and files, and those that a file carries of itself.

The digest of a tensor is the SHA-256 of its bytes, and that of a file its own. The digest of a
*content*, which is tensors with their names, types and shapes, and strings beside them, is the
SHA-256 of a JSON text. Its keys are in order, it has no blanks, and characters beyond ASCII are
escaped::

    {"metadata":{KEY:STRING,...},"tensors":{NAME:{"dtype":T,"sha256":S,"shape":[...]},...}}

A file of ``planq quantize`` has three strings in its metadata: the digests of its tensors, that of
the source file, and that of its content, which is all but the first and the last of these strings.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING

from planq.checkpoint.failure import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from planq.checkpoint.files import CheckpointReader, TensorEntry

TENSORS = "planq.tensor_sha256"
SOURCE = "planq.source_sha256"
CONTENT = "planq.digest"
# What stands for the input in the digest of a restored file, which does not name it itself.
INPUT = "planq.input_digest"

# As long as any, so that a header has its size before there is anything to hash.
UNKNOWN = "0" * 64

_NOTHING = hashlib.sha256().hexdigest()
_DIGEST = re.compile("[0-9a-f]{64}")
_SHORT = 12


class FileDigest:
    """The digest of a file whose bytes pass in order; what passes a second time is left out."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._at = 0

    def update(self, piece: bytes | memoryview, at: int) -> None:
        """Takes some bytes in.

        Args:
            piece: The bytes.
            at: Where they stand in the file.
        """
        if at == self._at:
            data = memoryview(piece)
            self._sha256.update(data)
            self._at += data.nbytes

    def digest(self, size: int) -> str:
        """Returns the digest of a file of this size, all of which has passed."""
        if self._at != size:
            raise AssertionError(f"{self._at} bytes of {size} have passed")
        return self._sha256.hexdigest()


class TensorDigests:
    """The digests of tensors whose bytes pass, each from its first to its last.

    Attributes:
        found: The digests of those that have passed, by name.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._passing: dict[str, tuple[hashlib._Hash, int]] = {}
        self._expected: Mapping[str, str] = {}
        self._path: Path | None = None

    def expect(self, path: Path, digests: Mapping[str, str]) -> None:
        """Refuses from now on a tensor that has another digest.

        Args:
            path: The file to name.
            digests: What the tensors should have, by name.
        """
        self._path, self._expected = path, digests

    def update(self, entry: TensorEntry, piece: bytes | memoryview, at: int) -> None:
        """Takes some bytes in.

        Args:
            entry: Their tensor.
            piece: The bytes.
            at: Where they stand in the tensor; 0 begins anew.

        Raises:
            CheckpointError: They are the last, and the tensor is not the one that is expected.
        """
        sha256, passed = (hashlib.sha256(), 0) if at == 0 else self._passing[entry.name]
        if at != passed:
            raise AssertionError(f"{entry.name}: {passed} bytes have passed, not {at}")
        data = memoryview(piece)
        sha256.update(data)
        self._passing[entry.name] = sha256, at + data.nbytes
        if at + data.nbytes == entry.nbytes:
            del self._passing[entry.name]
            self._finish(entry.name, sha256.hexdigest())

    def of(self, entries: Iterable[TensorEntry]) -> dict[str, str]:
        """Returns the digests of tensors that have passed; one without bytes need not."""
        return {
            entry.name: self.found[entry.name] if entry.nbytes else _NOTHING for entry in entries
        }

    def _finish(self, name: str, found: str) -> None:
        expected = self._expected.get(name, found)
        if found != expected:
            what = f"expected bytes of SHA-256 {short(expected)}, found {short(found)}"
            raise CheckpointError(f"{self._path}: tensor {name!r}: {what}")
        self.found[name] = found


def short(digest: str) -> str:
    """Returns the start of a digest: enough to tell it from another."""
    return f"{digest[:_SHORT]}..."


def content_digest(
    entries: Iterable[TensorEntry], digests: Mapping[str, str], metadata: Mapping[str, str]
) -> str:
    """Returns the digest of a content.

    Args:
        entries: The tensors, in any order.
        digests: Their digests, by name.
        metadata: The strings; digests of the content and of tensors are left out.
    """
    tensors = {
        entry.name: {"dtype": entry.dtype, "sha256": digests[entry.name], "shape": entry.shape}
        for entry in entries
    }
    strings = {key: text for key, text in metadata.items() if key not in (CONTENT, TENSORS)}
    content = {"metadata": strings, "tensors": tensors}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sealed(
    entries: Iterable[TensorEntry],
    digests: Mapping[str, str],
    metadata: Mapping[str, str],
    source: str,
) -> dict[str, str]:
    """Returns metadata with the digests of a file, whose length does not depend on them.

    Args:
        entries: The file's tensors.
        digests: Their digests, by name.
        metadata: The other strings.
        source: The digest of the file that it was made of.
    """
    known = {**metadata, SOURCE: source}
    return known | {
        TENSORS: json.dumps(digests, sort_keys=True, separators=(",", ":")),
        CONTENT: content_digest(entries, digests, known),
    }


def expect_content(reader: CheckpointReader) -> None:
    """Compares a file's header with its digests, and from now on every tensor that is read.

    Raises:
        CheckpointError: There are no digests, or the header is not the one that they are of.
    """
    expected = reader.metadata.get(CONTENT, "")
    digests = _read_digests(reader)
    if not _is_digest(expected) or digests.keys() != reader.by_name.keys():
        key = TENSORS if _is_digest(expected) else CONTENT
        raise CheckpointError(f"{reader.path}: metadata {key} is missing or damaged")
    found = content_digest(reader.entries, digests, reader.metadata)
    if found != expected:
        what = f"expected SHA-256 {short(expected)}, found {short(found)}"
        raise CheckpointError(
            f"{reader.path}: header: {what} of its names, types, shapes and texts"
        )
    reader.digests.expect(reader.path, digests)


def expect_digest(path: Path, metadata: Mapping[str, str], found: str) -> None:
    """Compares the digest of a content, all of which was read, with the one that its file tells.

    Raises:
        CheckpointError: There is none, or it is another.
    """
    expected = metadata.get(CONTENT, "")
    if not _is_digest(expected):
        raise CheckpointError(f"{path}: metadata {CONTENT} is missing or damaged")
    if found != expected:
        what = f"expected SHA-256 {short(expected)}, found {short(found)}"
        raise CheckpointError(f"{path}: content: {what} of its tensors and texts")


def _read_digests(reader: CheckpointReader) -> dict[str, str]:
    """Returns the digests of a file's tensors; nothing, if any of them is none."""
    try:
        digests = json.loads(reader.metadata.get(TENSORS, ""))
    except (ValueError, RecursionError):
        return {}
    sound = isinstance(digests, dict) and all(map(_is_digest, digests.values()))
    return digests if sound else {}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
