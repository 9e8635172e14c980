"""The readers of planq that take text and files of anybody's making, one function for each.

A target takes bytes, and says whether the reader took them. Whatever they are, the reader returns
or raises its own error: anything else that a target raises is a fault.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors

import planq
from checkpoint.gguf_bytes import check_header
from planq.audit.report import differences
from planq.checkpoint import read_layers
from planq.checkpoint.calibration import read_ranges
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_header import parse_gguf_header
from planq.checkpoint.header import parse_header
from planq.checkpoint.restore import RestoreJob, restore_file
from planq.checkpoint.shards import CONFIG, INDEX
from planq.cli.audit import read_report
from planq.cli.failure import CommandError
from planq.executors import open_device
from planq.plan import verify_foreseen
from planq.signatures import SignatureError, signed_bytes
from support.hostile import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What a header may claim beyond the bytes that came with it, so that files stay small.
_PAYLOAD = 1 << 16


def report(data: bytes) -> bool:
    """A report as `planq audit --compare` reads it."""
    try:
        made = read_report(Path("report.json"), data)
    except CommandError:
        return False
    assert not list(differences(made, made))
    with contextlib.suppress(SignatureError):
        assert signed_bytes(signed_bytes(data)) == signed_bytes(data)
    return True


def descriptor(data: bytes) -> bool:
    """A descriptor: what is taken is written and read again, and selection says something of it."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        made = planq.Descriptor.from_json(text)
    except planq.DescriptorError:
        return False
    assert planq.Descriptor.from_json(made.to_json()) == made
    made.operands()
    assert str(planq.explain(made))
    return True


def plan(data: bytes) -> bool:
    """A stored plan, on the host and for a GPU that is elsewhere."""
    text = data.decode("utf-8", "surrogateescape")
    taken = False
    for read in (_host_plan, lambda given: verify_foreseen(given, "sm_90")):
        try:
            read(text)
            taken = True
        except (planq.DescriptorError, planq.PlanMismatchError) as error:
            _check_sentence(str(error))
            taken |= bool(getattr(error, "differences", None))  # those of another build
    return taken


def _host_plan(text: str) -> None:
    assert planq.Plan.from_json(planq.HOST, text).workspace_size() >= 0


def header(data: bytes) -> bool:
    """The header of a safetensors file, up to a NUL, and its payload: the library agrees."""
    text, _, payload = data.partition(b"\0")
    try:
        metadata, places = parse_header(text, len(payload))
    except ValueError:
        return False
    found = safetensors.deserialize(len(text).to_bytes(8, "little") + text + payload)
    assert sorted(name for name, _ in found) == sorted(place.name for place in places)
    assert all(isinstance(value, str) for value in metadata.values())
    return True


def gguf(data: bytes) -> bool:
    """A GGUF file: what is taken stands there, and nothing beyond the file is asked for."""

    def read(at: int, count: int) -> bytes:
        assert 0 <= at <= at + count <= len(data)
        return data[at : at + count]

    try:
        with bounded():
            found = parse_gguf_header(read, len(data))
    except ValueError as error:
        _check_sentence(str(error))
        return False
    check_header(found, data)
    return True


def layers(data: bytes) -> bool:
    """A model's folder: its config, its index and a file's header, each up to a NUL; a payload."""
    config, index, text, payload = (data.split(b"\0", 3) + [b""] * 3)[:4]
    with _folder() as folder, bounded():
        if config:
            (folder / CONFIG).write_bytes(config)
        if index:
            (folder / INDEX).write_bytes(index)
        content = _file(text, payload.ljust(_claimed(text), b"\0"))
        (folder / "model.safetensors").write_bytes(content)
        try:
            with read_layers(folder, weights_only=len(data) % 2 == 0) as found:
                found.check()
        except CheckpointError as error:
            _check_sentence(str(error))
            return False
    return True


def restore(data: bytes) -> bool:
    """A file as `planq dequantize` reads it: a header, a NUL, a payload with zeros behind."""
    text, _, payload = data.partition(b"\0")
    content = _file(text, payload.ljust(_claimed(text), b"\0"))
    with _folder() as folder, bounded():
        source, target = folder / "in.safetensors", folder / "out.safetensors"
        source.write_bytes(content)
        try:
            restore_file(RestoreJob(source, target, damaged_too=True), _HOST, _silent)
        except planq.PlanqError as error:
            _check_sentence(str(error))
            return _check_absent(target)
    return True


def ranges(data: bytes) -> bool:
    """A file of ranges, and the scales that a weight gets of it."""
    with _folder() as folder, bounded():
        path = folder / "ranges.json"
        path.write_bytes(data)
        try:
            found = read_ranges(path)
            found.check_names(["w"], ["w", "v"])
            found.parameters("w", _SCALED)
        except CheckpointError as error:
            _check_sentence(str(error))
            return False
    return True


def state(data: bytes) -> bool:
    """The packed state of a blockwise quantized tensor, nested if its text says so."""
    values: dict[str, Any] = {
        "absmax": np.ones(6, np.float32),
        "quant_map": planq.codebooks.nf4(),
        "quant_state.bitsandbytes__nf4": np.frombuffer(data, np.uint8),
    }
    if b"nested" in data:
        values["absmax"] = np.zeros(6, np.uint8)
        values["nested_absmax"] = np.ones(2, np.float32)
        values["nested_quant_map"] = planq.codebooks.dynamic()
    try:
        made = planq.QuantState.from_dict(values)
    except planq.ArgumentError:
        return False
    assert planq.QuantState.from_dict(made.to_dict(packed=True)).shape == made.shape
    return True


_HOST = open_device("host")
_SCALED = planq.QuantizeDescriptor(
    shape=(2, 8), input_dtype="float32", output_dtype="int8", scope=planq.Scope.channel(0)
)


def _silent(*_: object) -> None:
    """Nobody is told how far it is."""


def _check_sentence(text: str) -> None:
    """What an error says can be printed in a terminal; a table may follow its first line."""
    assert text.splitlines()[0].isprintable(), text


def _check_absent(target: Path) -> bool:
    """No file is left where a command failed."""
    assert not target.exists()
    return False


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A new folder, in memory where the system has such a place."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made)


def _file(header_text: bytes, payload: bytes) -> bytes:
    return len(header_text).to_bytes(8, "little") + header_text + payload


def _claimed(header_text: bytes) -> int:
    """How many bytes of payload a header claims, if that is a small number."""
    try:
        found = json.loads(header_text)
        ends = [facts["data_offsets"][1] for name, facts in found.items() if name[:2] != "__"]
        return int(max((end for end in ends if 0 <= end <= _PAYLOAD), default=0))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return 0


TARGETS: dict[str, Callable[[bytes], bool]] = {
    each.__name__: each
    for each in (report, descriptor, plan, header, gguf, layers, restore, ranges, state)
}
