"""Reads records, which may have been written by anybody."""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from planq import _core
from planq.descriptor import Descriptor
from planq.dtypes import Backend, Determinism
from planq.errors import DescriptorError, PlanqError, shown
from planq.preference import PlanPreference
from planq.recording.operands import ITEM_BYTES
from planq.recording.writer import BLOBS, FORMAT, OUTCOMES, PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planq.recording.ring import Bytes

_MOST_TEXT: Final = 16 << 20
_MOST_RANK: Final = 8
_MOST_COUNT: Final = 1 << 62
_PROCESS_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{16}", re.ASCII)
_RUN_NAME: Final = re.compile(r"[0-9]{8}\.json", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_BACKENDS: Final = {backend.name.lower(): backend for backend in Backend}
_LADDER: Final = {rung.name.lower(): rung for rung in Determinism}
_BITS: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)


class RecordError(PlanqError):
    """A record is damaged, or there is none. The message is one complete line."""

    code = "record"


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor or a scalar of a recorded run.

    Attributes:
        name: The operand.
        member: Which tensor of a list; -1 if the operand is no list.
        dtype: The element type in memory.
        shape: Its extents.
        bits: Of a scalar by value.
        before: SHA-256 of its bytes before the run; None if they were not read.
        after: SHA-256 of its bytes after the run; None if they were not written.
    """

    name: str
    member: int
    dtype: str
    shape: tuple[int, ...]
    bits: int | None
    before: str | None
    after: str | None

    @property
    def place(self) -> str:
        """The operand for a message, as in ``params[3]``."""
        return self.name if self.member < 0 else f"{self.name}[{self.member}]"

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; 0 for a scalar by value."""
        return 0 if self.bits is not None else math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run.

    Attributes:
        path: Its file.
        number: Which run of its plan it was.
        time: When it began.
        device: The name of the device that it ran on.
        backend: The backend that it ran on.
        descriptor: What was computed.
        preference: The requirements on the kernel.
        sku: The kernel.
        revision: The revision of the kernel.
        determinism: What the plan promised.
        build_id: The build that ran it.
        operands: Its operands.
    """

    path: Path
    number: int
    time: str
    device: str
    backend: Backend
    descriptor: Descriptor
    preference: PlanPreference
    sku: str
    revision: int
    determinism: Determinism
    build_id: str
    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """What a folder holds.

    Attributes:
        folder: The folder.
        runs: All runs, the oldest first.
        counts: What became of the samples of all processes, by outcome.
    """

    folder: Path
    runs: tuple[Run, ...]
    counts: dict[str, int]

    def blob(self, run: Run, operand: Operand) -> Bytes:
        """The bytes of an operand before a run.

        Raises:
            RecordError: They are missing, or others than were recorded.
        """
        path = self.folder / BLOBS / str(operand.before)
        data = _bytes_of(path, operand.nbytes)
        if data is None:
            raise RecordError(
                f"{run.path}: {operand.place}: expected a file of {operand.nbytes} bytes, {path}"
            )
        if hashlib.sha256(data.data).hexdigest() != operand.before:
            raise RecordError(f"{path}: its bytes have another SHA-256 than its name")
        return data


def read(folder: Path) -> Records:
    """Reads the runs of a folder, but not yet the bytes of their operands.

    Raises:
        RecordError: There is no run, or a file is damaged or missing.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder}: expected a folder of recorded runs")
    counts = dict.fromkeys(OUTCOMES, 0)
    runs: list[Run] = []
    for process in sorted(path for path in folder.iterdir() if _PROCESS_NAME.fullmatch(path.name)):
        found = _process(process / PROCESS)
        files = sorted(path for path in process.iterdir() if _RUN_NAME.fullmatch(path.name))
        names = [f"{number:08d}.json" for number in range(len(files))]
        if [path.name for path in files] != names or len(files) < found["recorded"]:
            raise RecordError(
                f"{process}: runs are missing: it has {len(files)} of {found['recorded']}"
            )
        # A process that was killed had no time to count its last run.
        found["recorded"] = len(files)
        runs += map(_run, files)
        counts = {outcome: counts[outcome] + found[outcome] for outcome in OUTCOMES}
    if not runs:
        lost = ", ".join(f"{counts[each]} {each}" for each in OUTCOMES if counts[each])
        raise RecordError(f"{folder}: no recorded run" + (f" ({lost})" if lost else ""))
    return Records(folder, tuple(sorted(runs, key=lambda run: (run.time, run.path))), counts)


def _process(path: Path) -> dict[str, int]:
    """The counts of a process."""
    with _Fields(path, _text_of(path)) as fields:
        fields.constant("format", FORMAT)
        for name in ("began", "version", "build_id", "source_id"):
            fields.text(name)
        fields.natural("every")
        machine = fields.inner("machine", fields.values("machine", dict))
        for name in ("processor", "os"):
            machine.text(name)
        machine.end()
        counts = fields.inner("counts", fields.values("counts", dict))
        found = {outcome: counts.natural(outcome) for outcome in OUTCOMES}
        counts.end()
    return found


def _run(path: Path) -> Run:
    """One run."""
    with _Fields(path, _text_of(path)) as fields:
        fields.constant("format", FORMAT)
        number, time = fields.natural("run"), fields.matched("time", _TIME)
        device, backend = fields.text("device"), fields.member("backend", _BACKENDS)
        operands = tuple(
            _operand(fields.inner(f"operands[{i}]", entry))
            for i, entry in enumerate(fields.values("operands", list))
        )
        plan = fields.inner("plan", fields.values("plan", dict))
        descriptor = plan.made("descriptor", Descriptor.from_dict)
        preference = plan.made("preference", PlanPreference.from_dict)
        sku, revision = plan.text("sku"), plan.natural("revision")
        guarantee = plan.inner("plan.guarantee", plan.values("guarantee", dict))
        determinism = guarantee.member("determinism", _LADDER)
        build_id = plan.text("build_id")
        plan.end()
    return Run(
        path,
        number,
        time,
        device,
        backend,
        descriptor,
        preference,
        sku,
        revision,
        determinism,
        build_id,
        operands,
    )


def _operand(fields: _Fields) -> Operand:
    """One operand of a run."""
    name, dtype = fields.text("name"), fields.text("dtype")
    if dtype not in ITEM_BYTES:
        raise fields.wrong("dtype", "an element type", dtype)
    member = fields.natural("member") if fields.has("member") else -1
    if fields.has("bits"):
        bits = int(fields.matched("bits", _BITS), 16)
        fields.end()
        return Operand(name, member, dtype, (), bits, None, None)
    shape = fields.values("shape", list)
    if len(shape) > _MOST_RANK or not all(_is_natural(extent) for extent in shape):
        raise fields.wrong("shape", "extents", shape)
    before, after = (
        fields.matched(moment, _DIGEST) if fields.has(moment) else None
        for moment in ("before", "after")
    )
    fields.end()
    return Operand(name, member, dtype, tuple(shape), None, before, after)


def _is_natural(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST_COUNT


class _Fields:
    """Takes the fields of a JSON object, each of which has to be taken."""

    def __init__(self, path: Path, values: Any, within: str = "") -> None:
        self._path, self._within = path, within
        if type(values) is not dict:
            raise RecordError(f"{path}: {within or 'it'}: expected a JSON object")
        self._values: dict[str, Any] = dict(values)

    def __enter__(self) -> _Fields:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end()

    def end(self) -> None:
        """Refuses fields that nobody has taken."""
        for name in self._values:
            raise RecordError(f"{self._path}: {self._named(name)}: there is no such field")

    def inner(self, within: str, values: Any) -> _Fields:
        """An object inside of this one."""
        return _Fields(self._path, values, within)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return name in self._values

    def wrong(self, name: str, expected: str, found: object) -> RecordError:
        """The error for a field."""
        return RecordError(
            f"{self._path}: {self._named(name)}: expected {expected}, got {shown(found)}"
        )

    def values(self, name: str, kind: type[Any]) -> Any:
        """A field of exactly this Python type."""
        if name not in self._values:
            raise RecordError(f"{self._path}: {self._named(name)} is missing")
        value = self._values.pop(name)
        if type(value) is not kind:
            raise self.wrong(name, f"a JSON {_KINDS[kind]}", value)
        return value

    def text(self, name: str) -> str:
        """A printable text."""
        found: str = self.values(name, str)
        if not found.isprintable():
            raise self.wrong(name, "printable text", found)
        return found

    def matched(self, name: str, pattern: re.Pattern[str]) -> str:
        """A text of a form."""
        found = self.text(name)
        if not pattern.fullmatch(found):
            raise self.wrong(name, f"the form {pattern.pattern}", found)
        return found

    def natural(self, name: str) -> int:
        """A count."""
        found: int = self.values(name, int)
        if not _is_natural(found):
            raise self.wrong(name, "a count", found)
        return found

    def constant(self, name: str, wanted: int) -> None:
        """A number that is known."""
        found = self.natural(name)
        if found != wanted:
            raise self.wrong(name, str(wanted), found)

    def member(self, name: str, known: dict[str, Any]) -> Any:
        """What a name stands for."""
        found = self.text(name)
        if found not in known:
            raise self.wrong(name, " or ".join(known), found)
        return known[found]

    def made(self, name: str, make: Callable[[Any], Any]) -> Any:
        """What is made of an object."""
        try:
            return make(self.values(name, dict))
        except DescriptorError as error:
            raise RecordError(f"{self._path}: {self._named(name)}: {_line(error)}") from None

    def _named(self, name: str) -> str:
        return f"{self._within}.{name}" if self._within else shown(name).strip("'")


_KINDS: Final = {dict: "object", list: "list", str: "text", int: "integer"}


def _line(error: Exception) -> str:
    """The first line of a message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _text_of(path: Path) -> Any:
    """The JSON of a small file."""
    data = _bytes_of(path, None)
    if data is None:
        raise RecordError(f"{path}: expected a file of at most {_MOST_TEXT >> 20} MiB")
    try:
        return _core.parse_json(data.tobytes().decode())
    except UnicodeDecodeError:
        raise RecordError(f"{path}: not JSON: it is no UTF-8") from None
    except ValueError as error:
        raise RecordError(f"{path}: {_line(error)}") from None


def _bytes_of(path: Path, nbytes: int | None) -> Bytes | None:
    """The bytes of a file with this size, or of any small one; None: there is none."""
    try:
        # Neither a link that leads elsewhere nor a pipe that nobody writes to.
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        fits = found.st_size <= _MOST_TEXT if nbytes is None else found.st_size == nbytes
        if not stat.S_ISREG(found.st_mode) or not fits:
            return None
        return np.frombuffer(bytearray(file.read(found.st_size)), np.uint8)
