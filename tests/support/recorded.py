"""What a recording left in its folder, read without planq's own reader."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planq import recording

if TYPE_CHECKING:
    from collections.abc import Iterator

Record = dict[str, Any]


@contextmanager
def recorded(folder: Path, **settings: Any) -> Iterator[Path]:
    """Records every run inside the block, or as the settings say; afterwards all is written."""
    recording.start(recording.Settings(folder, **{"every": 1, **settings}))
    try:
        yield folder
        assert recording.flush(30)
    finally:
        recording.stop()


def run_files(folder: Path) -> list[Path]:
    """The files of runs, those of one process in their order."""
    return sorted(path for path in folder.glob("*/*.json") if path.name != "process.json")


def runs(folder: Path) -> list[Record]:
    """Their contents."""
    return [json.loads(path.read_text()) for path in run_files(folder)]


def counts(folder: Path) -> dict[str, int]:
    """What became of samples, in the folder of one process."""
    [path] = folder.glob("*/process.json")
    found: dict[str, int] = json.loads(path.read_text())["counts"]
    return found


def operand(record: Record, name: str, member: int = -1) -> Record:
    """What a run's record says of an operand."""
    [found] = [
        each
        for each in record["operands"]
        if (each["name"], each.get("member", -1)) == (name, member)
    ]
    return dict(found)


def blob(folder: Path, digest: str) -> bytes:
    """The bytes of an operand."""
    data = (folder / "blobs" / digest).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    return data


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()
