"""Digests of tensors and files, and those that a file holds of itself.

The digest of a tensor is the SHA-256 of its bytes. The digest of a file is the SHA-256 of the file.
A *content* is a set of tensors with names, types and shapes, and strings of metadata. Its digest is
the SHA-256 of a JSON text with sorted keys, without blanks, and with characters beyond ASCII
escaped::

    {"metadata":{KEY:STRING,...},"tensors":{NAME:{"dtype":T,"sha256":S,"shape":[...]},...}}

A file of ``planq quantize`` has three such strings in its metadata: the digests of its tensors, the
digest of the source file, and the digest of its content. The content leaves out the first and the
last of these.
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
# The key of the input's digest in the content of a restored file, whose metadata has no such key.
INPUT = "planq.input_digest"

# As long as any digest, so that the header has its final size before anything is hashed.
UNKNOWN = "0" * 64

_NOTHING = hashlib.sha256().hexdigest()
_DIGEST = re.compile("[0-9a-f]{64}")
_SHORT = 12


class FileDigest:
    """The digest of a file whose bytes pass in order; bytes that pass again are ignored."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._at = 0

    def update(self, piece: bytes | memoryview, at: int) -> None:
        """Takes some bytes in.

        Args:
            piece: The bytes.
            at: Their offset in the file.
        """
        if at == self._at:
            data = memoryview(piece)
            self._sha256.update(data)
            self._at += data.nbytes

    def digest(self, size: int) -> str:
        """Returns the digest; all bytes of a file of this size must have passed."""
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
            at: Their offset in the tensor; 0 starts the tensor's digest again.

        Raises:
            CheckpointError: They complete the tensor, and its digest is not the expected one.
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
        """Returns the digests of tensors that have passed; empty tensors need not have."""
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
    """Returns the start of a digest, for people to compare."""
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
    """Returns metadata with the digests of a file; their values do not change its length.

    Args:
        entries: The file's tensors.
        digests: Their digests, by name.
        metadata: The other strings.
        source: The digest of the file that was quantized.
    """
    known = {**metadata, SOURCE: source}
    return known | {
        TENSORS: json.dumps(digests, sort_keys=True, separators=(",", ":")),
        CONTENT: content_digest(entries, digests, known),
    }


def expect_content(reader: CheckpointReader) -> None:
    """Compares a file's header with its digests, and every tensor that is read from now on.

    Raises:
        CheckpointError: The file has no digests, or they are of another header.
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
    """Compares the digest of a content that was read in full with the one in the file's metadata.

    Raises:
        CheckpointError: The metadata has no digest, or another one.
    """
    expected = metadata.get(CONTENT, "")
    if not _is_digest(expected):
        raise CheckpointError(f"{path}: metadata {CONTENT} is missing or damaged")
    if found != expected:
        what = f"expected SHA-256 {short(expected)}, found {short(found)}"
        raise CheckpointError(f"{path}: content: {what} of its tensors and texts")


def _read_digests(reader: CheckpointReader) -> dict[str, str]:
    """Returns the digests of a file's tensors; empty if any of them is malformed."""
    try:
        digests = json.loads(reader.metadata.get(TENSORS, ""))
    except (ValueError, RecursionError):
        return {}
    sound = isinstance(digests, dict) and all(map(_is_digest, digests.values()))
    return digests if sound else {}


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
