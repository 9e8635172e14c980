"""PLANQ_RECORD keeps sampled runs: what was read, and digests of what was written."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import re
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import planq
import planq.torch  # registers the operators
from planq import recording
from planq.recording import Settings
from planq.recording.copies import rows_of
from planq.recording.operands import Tensor
from planq.recording.ring import Piece, Ring
from support.recorded import blob, counts, operand, recorded, run_files, runs, sha256
from support.samples import make_descriptor, make_sample

HOST = planq.HOST


def quantize() -> planq.Plan:
    """A plan whose operands `make_sample` makes."""
    return planq.Plan.select(HOST, make_descriptor())


def fill(shape: tuple[int, ...] = (3,)) -> planq.Plan:
    """A plan with an output of float32 and a scalar."""
    return planq.Plan.select(HOST, planq.FillDescriptor(shape=shape, output_dtype="float32"))


def filled(plan: planq.Plan, value: Any, shape: tuple[int, ...] = (3,)) -> np.ndarray[Any, Any]:
    """Runs it, and returns the output."""
    output = np.zeros(shape, np.float32)
    plan.run(HOST, None, planq.FillArgs(output=output, value=value))
    return output


# --- What is kept


def test_a_record_has_the_plan_the_inputs_and_the_digests_of_outputs(tmp_path: Path) -> None:
    """Of operands with gaps between rows, the elements alone."""
    sample, plan = make_sample(), quantize()
    wide = np.full((6, 40), 7, np.float32)
    wide[:, 3:35] = sample.x
    codes = np.full((6, 50), 9, np.int8)
    with recorded(tmp_path):
        plan.run(HOST, None, sample.args(input=wide[:, 3:35], output=codes[:, :32]))
    [record] = runs(tmp_path)
    assert record["format"] == 1
    assert (record["run"], record["backend"]) == (0, "host")
    assert record["plan"] == plan.to_dict()
    assert [each["name"] for each in record["operands"]] == ["input", "output", "scale"]
    given = operand(record, "input")
    assert (given["dtype"], given["shape"]) == ("float32", [6, 32])
    assert "after" not in given
    assert blob(tmp_path, given["before"]) == sample.x.tobytes()
    scale = np.abs(sample.x).max(axis=1) / np.float32(127)
    right = np.rint(sample.x / scale[:, None]).astype(np.int8)
    assert operand(record, "output") == {
        "name": "output",
        "dtype": "int8",
        "shape": [6, 32],
        "after": sha256(right.tobytes()),
    }
    assert operand(record, "scale")["after"] == sha256(scale.tobytes())


def test_rows_that_run_backwards_are_gathered(tmp_path: Path) -> None:
    """In the order of their indices."""
    sample = make_sample()
    backwards = sample.x[::-1].copy()
    with recorded(tmp_path):
        quantize().run(HOST, None, sample.args(input=backwards[::-1]))
    [record] = runs(tmp_path)
    assert blob(tmp_path, operand(record, "input")["before"]) == sample.x.tobytes()


def test_what_is_updated_in_place_is_kept_as_it_was_before(tmp_path: Path) -> None:
    """Parameters and states of an optimizer, which come as lists."""
    shapes = ((5,), (2, 3))
    desc = planq.OptimizerStepDescriptor(
        shapes=shapes, algorithm="MOMENTUM", parameter_dtype="float32", gradient_dtype="float32"
    )
    before = [np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in shapes]
    parameter, state = [x.copy() for x in before], [np.zeros_like(x) for x in before]
    gradient = [np.ones_like(x) for x in before]
    args = planq.OptimizerStepArgs(
        parameter=parameter, gradient=gradient, state1=state, lr=0.5, beta1=0, beta2=0, step=1
    )
    with recorded(tmp_path):
        planq.Plan.select(HOST, desc).run(HOST, None, args)
    [record] = runs(tmp_path)
    for member, was in enumerate(before):
        entry = operand(record, "parameter", member)
        assert blob(tmp_path, entry["before"]) == was.tobytes()
        assert entry["after"] == sha256((was - np.float32(0.5)).tobytes())
    assert int(operand(record, "lr")["bits"], 16).to_bytes(8, "big") == struct.pack(">d", 0.5)


@pytest.mark.parametrize("value", [2.5, -0.0, float("-inf"), np.float64(1 / 3)])
def test_a_scalar_by_value_is_kept_by_its_bits(tmp_path: Path, value: float) -> None:
    """Those of a float64."""
    with recorded(tmp_path):
        output = filled(fill(), value)
    [record] = runs(tmp_path)
    wanted = struct.pack(">d", value).hex()
    assert operand(record, "value") == {"name": "value", "dtype": "float64", "bits": wanted}
    assert operand(record, "output")["after"] == sha256(np.full(3, value, "<f4").tobytes())
    assert (output == np.float32(value)).all()


def test_a_scalar_in_memory_is_a_tensor(tmp_path: Path) -> None:
    """With its own type."""
    with recorded(tmp_path):
        filled(fill(), np.array([1.5], np.float32))
    [record] = runs(tmp_path)
    entry = operand(record, "value")
    assert (entry["dtype"], entry["shape"]) == ("float32", [1])
    assert blob(tmp_path, entry["before"]) == struct.pack("<f", 1.5)


def test_an_operand_that_stays_is_stored_once(tmp_path: Path) -> None:
    """Its bytes are its name, in whatever run and process."""
    sample, plan = make_sample(), quantize()
    for _ in range(2):
        with recorded(tmp_path):
            plan.run(HOST, None, sample.args())
            plan.run(HOST, None, sample.args())
    digests = {operand(record, "input")["before"] for record in runs(tmp_path)}
    assert len(runs(tmp_path)) == 4
    assert {path.name for path in (tmp_path / "blobs").iterdir()} == digests
    assert len(digests) == 1


def test_an_operand_that_changes_where_it_lies_is_stored_again(tmp_path: Path) -> None:
    """Be it in its last byte alone."""
    given = np.zeros((6, 1 << 16), np.float32)
    desc = make_descriptor(shape=given.shape)
    output, scale = np.empty(given.shape, np.int8), np.empty(6, np.float32)
    args = planq.DynamicRangeQuantizeArgs(input=given, output=output, scale=scale)
    plan, wanted = planq.Plan.select(HOST, desc), []
    with recorded(tmp_path):
        for value in (1, 1, 2, 1):
            given[-1, -1] = value
            wanted.append(sha256(given.tobytes()))
            plan.run(HOST, None, args)
    assert [operand(record, "input")["before"] for record in runs(tmp_path)] == wanted
    for digest in wanted:
        blob(tmp_path, digest)


def test_the_thread_ends_with_the_recording(tmp_path: Path) -> None:
    """And nothing that was sampled is lost."""
    plan, others = fill(), set(threading.enumerate())
    with recorded(tmp_path):
        filled(plan, 1)
        [writer] = set(threading.enumerate()) - others
    writer.join(30)
    assert not writer.is_alive()
    assert len(runs(tmp_path)) == 1
    filled(plan, 1)
    assert len(runs(tmp_path)) == 1


def test_only_the_user_can_read_it(tmp_path: Path) -> None:
    """Whatever the process's mask allows."""
    before = os.umask(0)
    try:
        with recorded(tmp_path / "new"):
            quantize().run(HOST, None, make_sample().args())
    finally:
        os.umask(before)
    modes = {
        path.is_dir(): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "new", *(tmp_path / "new").rglob("*"))
    }
    assert modes == {True: 0o700, False: 0o600}


# --- Which runs


def test_the_first_run_of_each_plan_and_then_one_in_so_many(tmp_path: Path) -> None:
    """A bound launch is a run like any other; a call through torch is one of another plan."""
    sample, plan, other = make_sample(), quantize(), fill()
    with recorded(tmp_path, every=3):
        for _ in range(5):
            plan.run(HOST, None, sample.args())
        launch = plan.bind(None, sample.args())
        for _ in range(4):
            launch(HOST)
        filled(other, 1)
    found = [(record["plan"]["descriptor"]["op"], record["run"]) for record in runs(tmp_path)]
    assert found == [("dynamic_range_quantize", n) for n in (0, 3, 6)] + [("fill", 0)]


def test_calls_through_torch_are_runs(tmp_path: Path) -> None:
    """With what they allocate as outputs."""
    given = torch.arange(12, dtype=torch.float32).reshape(3, 4) - 5
    with recorded(tmp_path):
        codes, scale = torch.ops.planq.dynamic_range_quantize(given, "int8", scope="token()")
    [record] = runs(tmp_path)
    assert blob(tmp_path, operand(record, "input")["before"]) == given.numpy().tobytes()
    assert operand(record, "output")["after"] == sha256(codes.numpy().tobytes())
    assert operand(record, "scale")["after"] == sha256(scale.numpy().tobytes())


@pytest.mark.parametrize(("pattern", "kept"), [("^fill$", 1), ("/host/f32_s8$", 1), ("cuda", 0)])
def test_plans_are_chosen_by_operator_or_sku(tmp_path: Path, pattern: str, kept: int) -> None:
    """By a regular expression that is found there."""
    sample = make_sample()
    with recorded(tmp_path, operators=re.compile(pattern)):
        quantize().run(HOST, None, sample.args())
        filled(fill(), 1)
    assert len(runs(tmp_path)) == kept


def test_a_run_that_is_refused_leaves_no_record(tmp_path: Path) -> None:
    """It wrote nothing, either."""
    sample, plan = make_sample(), quantize()
    with recorded(tmp_path):
        with pytest.raises(planq.ArgumentError):
            plan.run(HOST, None, sample.args(output=None))
        plan.run(HOST, None, sample.args())
    assert [record["run"] for record in runs(tmp_path)] == [1]


def test_threads_record_their_own_operands(tmp_path: Path) -> None:
    """Every run once, with inputs and outputs that belong together."""
    plan = fill((1000,))

    def work(first: int) -> None:
        for value in range(first, first + 10):
            filled(plan, value, (1000,))

    with recorded(tmp_path):
        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10, 20, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = runs(tmp_path)
    assert sorted(record["run"] for record in found) == list(range(40))
    values = set()
    for record in found:
        bits = int(operand(record, "value")["bits"], 16)
        [value] = struct.unpack(">d", bits.to_bytes(8, "big"))
        values.add(value)
        right = np.full(1000, value, np.float32)
        assert operand(record, "output")["after"] == sha256(right.tobytes())
    assert values == set(range(40))


# --- What never breaks a run


def test_a_sample_that_the_ring_has_no_room_for_is_dropped_and_counted(tmp_path: Path) -> None:
    """The run goes on."""
    count = (1 << 20) // 4 + 1
    with recorded(tmp_path, mebibytes=1):
        assert (filled(fill((count,)), 2, (count,)) == 2).all()
        filled(fill(), 1)
    assert counts(tmp_path) == {"recorded": 1, "dropped": 1, "captured": 0, "failed": 0}
    assert len(runs(tmp_path)) == 1


def test_pieces_of_the_ring_never_meet_and_room_comes_back() -> None:
    """Taken and given back in any order, a thousand times."""
    dice, ring, held = random.Random(5), Ring(1 << 12), list[Piece]()
    refused = 0
    for _ in range(1000):
        if held and dice.random() < 0.5:
            ring.give_back(held.pop(dice.randrange(len(held))))
            continue
        piece = ring.take(dice.randrange(1500))
        if piece is None:
            refused += 1
            continue
        assert 0 <= piece.start < piece.end <= 1 << 12
        assert all(piece.end <= other.start or other.end <= piece.start for other in held)
        held.append(piece)
    assert 0 < refused < 900
    for piece in held:
        ring.give_back(piece)
    assert ring.take(1 << 12) is not None
    assert ring.take(1) is None


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """What planq logs."""
    kept, logger = Kept(), logging.getLogger("planq")
    logger.addHandler(kept)
    yield kept.records
    logger.removeHandler(kept)


def test_a_folder_that_cannot_be_written_is_logged_once(
    tmp_path: Path, logged: list[logging.LogRecord]
) -> None:
    """Runs go on, and nothing is raised."""
    (tmp_path / "file").write_text("")
    sample, plan = make_sample(), quantize()
    with recorded(tmp_path / "file" / "in"):
        for _ in range(3):
            plan.run(HOST, None, sample.args())
            assert recording.flush(30)
    assert sample.right()
    assert [each.levelname for each in logged] == ["WARNING"]
    assert "PLANQ_RECORD: a run could not be recorded" in logged[0].getMessage()


def test_a_full_disk_is_counted_and_leaves_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes later, when there is room again, is recorded."""
    sample, plan = make_sample(), quantize()
    rename = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if target.parent.name == "blobs":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    with recorded(tmp_path):
        with monkeypatch.context() as full:
            full.setattr(Path, "replace", refuse)
            plan.run(HOST, None, sample.args())
            assert recording.flush(30)
        assert [path for path in tmp_path.rglob("*") if path.name.startswith(".")] == []
        plan.run(HOST, None, sample.args())
    assert counts(tmp_path) == {"recorded": 1, "dropped": 0, "captured": 0, "failed": 1}
    assert [path.name for path in run_files(tmp_path)] == ["00000000.json"]


def test_no_fault_of_the_recording_reaches_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the run nor after it."""
    sample = make_sample()

    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with recorded(tmp_path):
        for method in ("begin", "end"):
            with monkeypatch.context() as broken:
                broken.setattr(f"planq.recording.copies.HostCopies.{method}", fail)
                sample.poison()
                quantize().run(HOST, None, sample.args())
            assert sample.right()
        filled(fill(), 1)
    assert counts(tmp_path) == {"recorded": 1, "dropped": 0, "captured": 0, "failed": 2}


# --- The environment

CODE = """
import os, sys, numpy as np, planq
plan = planq.Plan.select(planq.HOST, planq.FillDescriptor(shape=(3,), output_dtype="float32"))
args = planq.FillArgs(output=np.zeros(3, np.float32), value=1.0)
for _ in range(int(sys.argv[1])):
    plan.run(planq.HOST, None, args)
if len(sys.argv) > 2:
    child = os.fork()
    plan.run(planq.HOST, None, args)
    if child:
        assert os.waitpid(child, 0)[1] == 0
print("planq.recording" in sys.modules)
"""


def execute(runs: int, *more: str, **variables: str) -> str:
    """Runs the program under these variables; returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PLANQ_RECORD")}
    result = subprocess.run(
        [sys.executable, "-c", CODE, str(runs), *more],
        capture_output=True,
        text=True,
        env={**environment, **variables},
        cwd=Path(sys.prefix),
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize("variables", [{}, {"PLANQ_RECORD": ""}])
def test_off_nothing_is_imported(variables: dict[str, str]) -> None:
    """Nor is there a hook, since only that module sets one."""
    assert execute(3, **variables) == "False\n"


def test_the_environment_turns_it_on_and_the_end_of_the_process_waits(tmp_path: Path) -> None:
    """Every thousandth run, if nothing else is said."""
    assert execute(2001, PLANQ_RECORD=str(tmp_path)) == "True\n"
    assert [record["run"] for record in runs(tmp_path)] == [0, 1000, 2000]
    assert counts(tmp_path)["recorded"] == 3


def test_a_forked_process_records_on_its_own(tmp_path: Path) -> None:
    """In a folder of its own, and the parent goes on."""
    execute(1, "fork", PLANQ_RECORD=str(tmp_path), PLANQ_RECORD_EVERY="1")
    folders = [len(run_files(tmp_path / path.parent.name)) for path in tmp_path.glob("*/proc*")]
    assert len(folders) == 2
    by_folder: dict[str, list[int]] = {}
    for path, record in zip(run_files(tmp_path), runs(tmp_path), strict=True):
        by_folder.setdefault(path.parent.name, []).append(record["run"])
    assert sorted(by_folder.values()) == [[0, 1], [1]]


def test_a_value_that_is_not_allowed_is_named() -> None:
    """And what was expected."""
    for name, value, expected in (
        ("PLANQ_RECORD_EVERY", "0", "expected an integer from 1 to 1048576, got '0'"),
        ("PLANQ_RECORD_EVERY", "often", "expected an integer"),
        ("PLANQ_RECORD_MIB", "-1", "expected an integer"),
        ("PLANQ_RECORD_OPERATORS", "(", "expected a regular expression, got '('"),
    ):
        with pytest.raises(planq.PlanqError, match=f"^{name}: {re.escape(expected)}"):
            Settings.from_environment({"PLANQ_RECORD": "there", name: value})


# --- Copies on a GPU, as far as they can be told without one


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((), ()),
        ((7,), (1,)),
        ((4, 5), (5, 1)),
        ((4, 5), (9, 1)),
        ((4, 5), (0, 1)),
        ((4, 5), (2, 1)),
        ((3, 4, 5), (40, 5, 1)),
        ((3, 4, 5), (50, 7, 1)),
        ((3, 1, 5), (5, 77, 1)),
        ((2, 3, 4, 5), (100, 30, 7, 1)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_rows_of_a_tensor_make_it_up(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: str
) -> None:
    """In the order of its elements, without gaps."""
    memory = np.random.default_rng(1).integers(0, 100, 400).astype(dtype)
    tensor = Tensor("x", -1, memory.ctypes.data, dtype, shape, strides, None)
    starts, row, count, pitch = rows_of(tensor)
    firsts = [memory.ctypes.data + start + r * pitch for start in starts for r in range(count)]
    gathered = b"".join(ctypes.string_at(first, row) for first in firsts)
    view = np.lib.stride_tricks.as_strided(memory, shape, [s * memory.itemsize for s in strides])
    assert gathered == view.tobytes()


def test_a_tensor_of_too_many_rows_is_refused() -> None:
    """Copies of one row each would take longer than the run."""
    with pytest.raises(planq.PlanqError, match="x: its strides take more than 1024 copies"):
        rows_of(Tensor("x", -1, 0, "int8", (2000, 3, 4), (50, -9, 1), None))
