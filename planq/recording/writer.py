"""Writes samples to files, on a thread of its own.

A folder of records has a folder for each process that has written there, and ``blobs``, where the
bytes of operands are in files named by their SHA-256. A process has ``process.json``, which says
what it is and what became of its samples, and a file for each run.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import logging
import os
import queue
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planq import _core
from planq.machine import device_name, operating_system, processor

if TYPE_CHECKING:
    from planq.recording.operands import Tensor
    from planq.recording.recorder import Sample
    from planq.recording.ring import Bytes, Ring
    from planq.recording.settings import Settings

FORMAT: Final = 1
BLOBS: Final = "blobs"
PROCESS: Final = "process.json"
_SECONDS_BETWEEN: Final = 1.0
_MOST_PLACES: Final = 1 << 14
_CHUNK: Final = 1 << 20
OUTCOMES: Final = ("recorded", "dropped", "captured", "failed")
"""What may become of a sample: written; no room in the ring; its stream was being captured in a
graph; it could not be copied or written."""


class Writer:
    """A queue of samples, and the thread that empties it; the thread begins with the first one."""

    def __init__(self, settings: Settings, ring: Ring) -> None:
        """Touches no file."""
        self._settings, self._ring = settings, ring
        self._name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._folder = settings.folder / self._name
        self._blobs = settings.folder / BLOBS
        # What was last found at an address.
        self._last: dict[tuple[int | None, int], str] = {}
        self._began = time.time()
        self._counts = dict.fromkeys(OUTCOMES, 0)
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Sample | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stale = False  # whether counts have changed since they were written
        self._described = time.monotonic()
        self._told = False
        self._closed = False

    def put(self, sample: Sample) -> None:
        """Takes over a sample and its memory."""
        self._queue.put(sample)
        self._start()

    def count(self, outcome: str) -> None:
        """Counts a sample that will not be written."""
        with self._lock:
            self._counts[outcome] += 1
            waking, self._stale = not self._stale, True
        if waking:
            self._queue.put(None)
        self._start()

    def fail(self, error: Exception) -> None:
        """Counts a sample that could not be kept; the first such error is logged."""
        self._log(error)
        self.count("failed")

    def _log(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            words = "a run could not be recorded, and others may follow"
            reason = f"{type(error).__name__}: {error}"
            logging.getLogger("planq").warning("PLANQ_RECORD: %s: %s", words, reason)

    def flush(self, seconds: float) -> bool:
        """Waits until everything before is done, so many seconds at most; says whether it is."""
        if self._thread is None:
            return True
        done = threading.Event()
        self._queue.put(done)
        return done.wait(seconds)

    def close(self) -> None:
        """Lets the thread end after everything before."""
        self._closed = True
        self._queue.put(threading.Event())

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="planq-record", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=self._patience())
            except queue.Empty:
                self._try_to_describe()
                continue
            if isinstance(item, threading.Event):
                if self._stale:  # who has waited once may look at the files
                    self._try_to_describe()
                item.set()
                if self._closed and self._ends():
                    return
            elif item is not None:
                try:
                    self._finish(item)
                except Exception as error:
                    self.fail(error)
            # A sample keeps its plan; the next one may be long in coming.
            del item

    def _ends(self) -> bool:
        """Whether the thread may end: what is put later begins another one."""
        with self._lock:
            if not self._queue.empty():
                return False
            self._thread = None
            return True

    def _patience(self) -> float | None:
        """Seconds until the counts have to be written; None: they are."""
        if not self._stale:
            return None
        return max(self._described + _SECONDS_BETWEEN - time.monotonic(), 0)

    def _try_to_describe(self) -> None:
        self._described = time.monotonic()
        try:
            self._describe()
        except Exception as error:  # the next count tries it again
            self._log(error)

    def _finish(self, sample: Sample) -> None:
        """Writes a sample and gives its memory back."""
        sample.copies.wait()  # if this fails, nobody knows when the memory is free
        try:
            if sample.complete:
                self._write(sample)
        finally:
            self._ring.give_back(sample.piece)

    def _write(self, sample: Sample) -> None:
        if not self._counts["recorded"]:
            self._describe()
        operands = self._operands(sample)
        moment = datetime.datetime.fromtimestamp(sample.time, datetime.UTC)
        record = {
            "format": FORMAT,
            "run": sample.number,
            "time": moment.isoformat(timespec="microseconds"),
            "backend": sample.plan.device.backend,
            "device": _device_name(sample.plan.device),
            "plan": sample.plan.to_dict(),
            "operands": operands,
        }
        number = self._counts["recorded"]
        self._replace(self._folder / f"{number:08d}.json", _text(record))
        with self._lock:
            self._counts["recorded"] += 1
            self._stale = True

    def _operands(self, sample: Sample) -> list[dict[str, Any]]:
        """What a record says of each operand; the bytes of those that were read become blobs."""
        found = {(each.name, each.member): _described(each) for each in sample.tensors}
        for data, tensor in sample.before:
            found[tensor.name, tensor.member]["before"] = self._blob(data, tensor)
        for data, tensor in sample.after:
            found[tensor.name, tensor.member]["after"] = _sha256(data)
        return list(found.values())

    def _blob(self, data: Bytes, tensor: Tensor) -> str:
        """Stores bytes once, and returns their digest."""
        place = (tensor.pointer, data.size)
        last = self._last.get(place)
        if last is not None and self._holds(last, data):
            return last
        digest = _sha256(data)
        path = self._blobs / digest
        if not path.exists():
            self._replace(path, data.data)
        if len(self._last) >= _MOST_PLACES:
            self._last.clear()
        self._last[place] = digest
        return digest

    def _holds(self, digest: str, data: Bytes) -> bool:
        """Whether a blob has these bytes. Weights have; to compare them is faster than to hash."""
        try:
            stored = np.memmap(self._blobs / digest, np.uint8, "r")
        except (OSError, ValueError):  # it is gone, or empty
            return False
        return stored.size == data.size and all(
            np.array_equal(stored[start : start + _CHUNK], data[start : start + _CHUNK])
            for start in range(0, data.size, _CHUNK)
        )

    def _describe(self) -> None:
        """Writes what the process is, with the counts as they are now."""
        build = _core.build_info()
        with self._lock:
            self._stale = False
            counts = dict(self._counts)
        described = {
            "format": FORMAT,
            "began": datetime.datetime.fromtimestamp(self._began, datetime.UTC).isoformat(),
            "version": build["version"],
            "build_id": build["build_id"],
            "source_id": build["source_id"],
            "machine": _machine(),
            "every": self._settings.every,
            "counts": counts,
        }
        self._replace(self._folder / PROCESS, _text(described))

    def _replace(self, path: Path, content: bytes | memoryview) -> None:
        """Writes a file that is complete or not there."""
        partial = path.with_name(f".{path.name}.{self._name}")
        try:
            self._write_new(partial, content)
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise

    def _write_new(self, path: Path, content: bytes | memoryview) -> None:
        """Writes a file for the user alone; makes its folder where there is none."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            number = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            number = os.open(path, flags, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(content)


@functools.cache
def _machine() -> dict[str, str]:
    return {"processor": processor(), "os": operating_system()}


_device_name = functools.cache(device_name)


def _described(tensor: Tensor) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": tensor.name, "dtype": tensor.dtype}
    if tensor.bits is not None:
        return {**entry, "bits": f"{tensor.bits:016x}"}
    member = {} if tensor.member < 0 else {"member": tensor.member}
    return {**entry, **member, "shape": list(tensor.shape)}


def _sha256(data: Bytes) -> str:
    return hashlib.sha256(data.data).hexdigest()


def _text(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, sort_keys=True, separators=(",", ":")) + "\n").encode()
