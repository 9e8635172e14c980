"""`planq quantize` on bad input, a full disk and a stop: one line, a status, no trace of a file."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import planq
from cli.commands import marked, refuse
from cli.expected import SCHEMES
from cli.files import checkpoint, describe, load, pack, planq_process, weight
from planq import executors
from planq.audit.ops.affine.dynamic_range_quantize.reference import Problem, dynamic_range_quantize
from planq.audit.reference.formats import bits
from planq.checkpoint import files as checkpoint_module
from planq.checkpoint import job as job_module
from planq.cli import main

Capture = pytest.CaptureFixture[str]

SQUARE = describe("F32", [2, 2], 0, 16)
DAMAGED: dict[str, bytes] = {
    "no byte": b"",
    "a piece of a header length": b"\x01\x00",
    "no safetensors": b"PK\x03\x04" + bytes(600),
    "a header longer than the file": (1 << 40).to_bytes(8, "little") + b"{}",
    "a header that is no JSON": pack(b"{'a': 1}", b""),
    "a header that is no UTF-8": pack(b'{"\xff": 1}', b""),
    "half of the payload": pack({"w": SQUARE}, bytes(8)),
    "more payload than the header says": pack({"w": SQUARE}, bytes(17)),
    "overlapping tensors": pack({"a": SQUARE, "b": describe("F32", [2], 8, 16)}, bytes(16)),
    "a hole": pack({"a": SQUARE, "b": describe("F32", [1], 20, 24)}, bytes(24)),
    "an extent that lies": pack({"w": describe("F32", [2, 3], 0, 16)}, bytes(16)),
    "an extent that overflows": pack({"w": describe("F32", [2**62, 2**62], 0, 16)}, bytes(16)),
    "a negative extent": pack({"w": describe("F32", [-2, -2], 0, 16)}, bytes(16)),
    "an unknown type": pack({"w": describe("Q32", [2, 2], 0, 16)}, bytes(16)),
    "offsets backwards": pack({"w": describe("F32", [2, 2], 16, 0)}, bytes(16)),
    "metadata that is no text": pack({"__metadata__": {"a": 1}, "w": SQUARE}, bytes(16)),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A sound file with weights of a few hundred kilobytes."""
    tensors = {"bias": weight(1, 64).reshape(64), "v": weight(256, 512), "w": weight(256, 512)}
    return checkpoint(tmp_path / "in.st", tensors)


def assert_alone(source: Path) -> None:
    """Nothing but the input is left in its folder."""
    assert [path.name for path in source.parent.iterdir()] == [source.name]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused(tmp_path: Path, capsys: Capture, damage: str) -> None:
    source = tmp_path / "in.st"
    source.write_bytes(DAMAGED[damage])
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", "--scheme", "int8-channel")
    assert "in.st: not a valid safetensors file" in line
    assert_alone(source)


def test_every_truncation_of_a_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    whole = checkpoint(tmp_path / "in.st", {"w": weight(2, 3)}).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "in.st").write_bytes(whole[:length])
        refuse(capsys, "quantize", tmp_path / "in.st", tmp_path / "o", "--scheme", "int8-tensor")


def test_inputs_that_are_no_files_are_refused(tmp_path: Path, capsys: Capture) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("none", "No such file"), (".", "a folder"), ("pipe", "not a regular")):
        line = refuse(
            capsys, "quantize", tmp_path / name, tmp_path / "o", "--scheme", "fp8-channel"
        )
        assert why in line


def test_an_output_that_exists_is_kept(source: Path, capsys: Capture) -> None:
    target = source.with_name("out.st")
    target.write_text("precious")
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    assert "exists" in line
    assert "--force" in line
    assert target.read_text() == "precious"


def test_an_output_that_appears_meanwhile_is_kept(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = source.with_name("out.st")

    def meddle(*arguments: object) -> float:
        target.write_text("precious")
        return 0.0

    monkeypatch.setattr(job_module, "signal_to_noise_db", meddle)
    assert "exists" in refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    assert target.read_text() == "precious"
    assert sorted(path.name for path in source.parent.iterdir()) == ["in.st", "out.st"]


@pytest.mark.parametrize("link", ["in.st", "hard", "soft"])
def test_the_input_is_never_the_output(source: Path, capsys: Capture, link: str) -> None:
    before = source.read_bytes()
    target = source.with_name(link)
    if link == "hard":
        target.hardlink_to(source)
    if link == "soft":
        target.symlink_to(source)
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel", "--force")
    assert "the output is the input" in line
    assert source.read_bytes() == before


def test_an_output_that_is_no_file_is_never_replaced(source: Path, capsys: Capture) -> None:
    folder = source.with_name("folder")
    folder.mkdir()
    for target in (folder, Path(os.devnull)):
        line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel", "--force")
        assert "not a regular file" in line
    assert folder.is_dir()
    assert Path(os.devnull).is_char_device()


def test_an_output_in_no_folder_is_an_error(source: Path, capsys: Capture) -> None:
    target = source.parent / "none" / "out.st"
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    assert line == f"planq: error: {target}: No such file or directory\n"


def test_a_full_disk_is_noticed_before_the_work(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    target = source.with_name("out.st")
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    assert line == f"planq: error: {target}: No space left on device\n"
    assert_alone(source)


@pytest.mark.parametrize("written", [0, 100, 100_000, 200_000])
def test_a_disk_that_fills_up_leaves_nothing(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    room = written
    write = os.pwrite

    def cannot_reserve(fd: int, start: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    def fill(fd: int, data: memoryview, offset: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(fd, data[:room], offset)
        room -= done
        return done

    monkeypatch.setattr(os, "posix_fallocate", cannot_reserve)
    monkeypatch.setattr(os, "pwrite", fill)
    target = source.with_name("out.st")
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    assert line == f"planq: error: {target}: No space left on device\n"
    assert_alone(source)


def test_a_write_error_that_shows_at_the_end_leaves_nothing(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", lost)
    target = source.with_name("out.st")
    target.write_text("precious")
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel", "--force")
    assert line == f"planq: error: {target}: Input/output error\n"
    assert target.read_text() == "precious"
    assert sorted(path.name for path in source.parent.iterdir()) == ["in.st", "out.st"]


def test_a_limit_on_file_size_is_an_error_in_one_line(tmp_path: Path) -> None:
    """The scales of a column take more than its elements did, so the output is the larger file."""
    column = weight(4096, 1).astype(np.float16)
    source = checkpoint(tmp_path / "in.st", {"w": column})
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))"
    target = source.with_name("out.st")
    child = planq_process("quantize", source, target, "--scheme", "int8-channel", before=limit)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (2, "")
    assert err == f"planq: error: {target}: File too large\n"
    assert_alone(source)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_leaves_nothing(source: Path, stop: signal.Signals) -> None:
    stuck = (
        "import time, planq.checkpoint.job\n"
        "planq.checkpoint.job.signal_to_noise_db = lambda *arguments: time.sleep(60)"
    )
    target = source.with_name("out.st")
    child = planq_process("quantize", source, target, "--scheme", "int8-channel", before=stuck)
    deadline = time.monotonic() + 30
    while not list(source.parent.glob("*.partial")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [path.suffix for path in source.parent.iterdir()] != [source.suffix]
    child.send_signal(stop)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (2, "", "planq: error: interrupted\n")
    assert_alone(source)


def test_a_signal_that_is_ignored_stays_ignored(source: Path) -> None:
    hang_up = (
        "import os, signal\n"
        "from planq.checkpoint import job\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "job.signal_to_noise_db = lambda *a: os.kill(os.getpid(), signal.SIGHUP) or 0.0"
    )
    target = source.with_name("out.st")
    child = planq_process("quantize", source, target, "--scheme", "int8-channel", before=hang_up)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert set(load(target).tensors) == {"bias", "v", "v_scale", "w", "w_scale"}


@pytest.mark.parametrize("failure", [MemoryError(), KeyError("bug")])
def test_any_failure_in_the_middle_leaves_nothing(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*arguments: object) -> float:
        raise failure

    monkeypatch.setattr(job_module, "signal_to_noise_db", fail)
    target = source.with_name("out.st")
    line = refuse(capsys, "quantize", source, target, "--scheme", "int8-channel")
    said = {MemoryError: "out of memory", KeyError: "report it"}
    assert said[type(failure)] in line
    assert_alone(source)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_marks_its_row(
    tmp_path: Path, capsys: Capture, scheme: str, bad: float
) -> None:
    broken = weight(4, 256)
    broken[2, 200] = bad
    tensors = {"broken": broken, "sound": weight(4, 256)}
    source, target = checkpoint(tmp_path / "in.st", tensors), tmp_path / "out.st"
    assert main(["quantize", str(source), str(target), "--scheme", scheme, "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "planq: warning: 1 weight has values that are not finite\n"
    rows = {row["name"]: row for row in json.loads(printed.out)["tensors"]}
    assert (rows["broken"]["status"], rows["broken"]["non_finite_segments"]) == ("not_finite", 1)
    assert rows["broken"]["sqnr_db"] is None
    assert (rows["sound"]["status"], rows["sound"]["non_finite_segments"]) == ("ok", 0)
    assert int(np.isnan(load(target).tensors["broken_scale"]).sum()) == 1

    arguments = [str(source), str(target), "--scheme", scheme, "--force", "--table"]
    assert main(["quantize", *arguments]) == 1
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "NOT FINITE (1)" in next(line for line in lines if line.startswith("broken"))
    assert "NOT FINITE" not in next(line for line in lines if line.startswith("sound"))


@pytest.mark.parametrize("scheme", ["int8-channel", "int8-tensor", "int4-group128", "nf4"])
@pytest.mark.parametrize(("dtype", "signalling"), [("float32", 0x7F800001), ("float16", 0x7C01)])
def test_values_that_are_not_finite_are_warned_of_once(
    tmp_path: Path, capsys: Capture, scheme: str, dtype: str, signalling: int
) -> None:
    """NumPy would warn of infinities that are subtracted and of NaNs that signal."""
    values = weight(4, 256, dtype)
    values[1, 3:5] = np.inf, -np.inf
    values[2].view(f"uint{8 * values.itemsize}")[7] = signalling
    source, target = checkpoint(tmp_path / "in.st", {"w": values}), tmp_path / "out.st"
    marked(capsys, "quantize", source, target, "--scheme", scheme, "--verify")
    marked(capsys, "dequantize", target, tmp_path / "back.st")


def test_bad_data_never_leaves_its_channel(tmp_path: Path, capsys: Capture) -> None:
    values = weight(4, 256)
    values[2, 200] = np.nan
    source, target = checkpoint(tmp_path / "in.st", {"w": values}), tmp_path / "out.st"
    assert main(["quantize", str(source), str(target), "--scheme", "int8-channel"]) == 1
    want = dynamic_range_quantize(Problem((4, 256), scope=("channel", 0)), values)
    made = load(target).tensors
    assert np.array_equal(made["w"], want.output)
    assert np.array_equal(bits(made["w_scale"][:, 0]), bits(want.scale))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scheme", "int3"), "'int3' is not one of 'int8-channel'"),
        ((), "Missing option '--scheme'"),
        (("--scheme", "int8-channel", "--include", "a("), "--include: not a regular expression"),
        (("--scheme", "int8-channel", "--include", "(" * 5000), "not a regular expression: "),
        (("--scheme", "int8-channel", "--include", "a{99999999999}"), "not a regular expression: "),
        (
            ("--scheme", "int8-channel", "--include", "a{" + "9" * 5000 + "}"),
            "not a regular expression: ",
        ),
        (("--scheme", "int8-channel", "--include", "[[a]"), "whose name matches '[[a]'"),
        (("--scheme", "int8-channel", "--include", "\0"), "an argument holds a NUL"),
        (("--scheme", "int8-channel", "--include", "\ud800"), "an argument is no text"),
        (("--scheme", "nf4", "--block-size", "9" * 5000), "Invalid value for '--block-size'"),
        (("--scheme", "nf4", "--block-size", "9" * 30), "block_size: "),
        (("--scheme", "int8-channel", "--include", "none"), "whose name matches 'none'"),
        (("--scheme", "int8-channel", "--device", "tpu"), "expected host or cuda:N, got 'tpu'"),
        (("--scheme", "int8-channel", "--device", "cuda"), "expected host or cuda:N, got 'cuda'"),
        (("--scheme", "int8-channel", "--device", "cuda:99"), "--device cuda:99: "),
        (("--scheme", "int8-channel", "--device", "cuda:" + "9" * 5000), "expected host or cuda:N"),
        (("--scheme", "int8-channel", "--speed", "9"), "No such option: --speed"),
        (("--scheme", "int8-channel", "more"), "unexpected extra argument"),
    ],
)
def test_wrong_usage_is_said_in_one_line(
    source: Path, capsys: Capture, arguments: tuple[str, ...], said: str
) -> None:
    line = refuse(capsys, "quantize", source, source.with_name("out.st"), *arguments)
    assert said in line
    assert_alone(source)


@pytest.mark.parametrize("option", ["IN", "OUT", "--calibrate"])
def test_a_path_that_the_system_cannot_have_is_refused(
    source: Path, capsys: Capture, option: str
) -> None:
    paths = {"IN": source, "OUT": source.with_name("o"), "--calibrate": source.with_name("r")}
    paths[option] = Path("a\0b")
    arguments = ["quantize", paths["IN"], paths["OUT"], "--calibrate", paths["--calibrate"]]
    assert "a NUL" in refuse(capsys, *arguments, "--scheme", "int8-channel")
    assert_alone(source)


def test_a_name_in_a_message_cannot_steer_a_terminal(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a\n\x1b[31mb"
    line = refuse(capsys, "quantize", path, tmp_path / "o", "--scheme", "int8-channel")
    assert line == f"planq: error: {tmp_path}/a\\n\\x1b[31mb: No such file or directory\n"


def test_a_standard_error_that_is_full_or_closed_changes_nothing(source: Path) -> None:
    for redirection in ("2>/dev/full", "2>&-"):
        target = source.with_name("out.st")
        script = f'exec "$@" {redirection}'
        command = [sys.executable, "-m", "planq.cli", "quantize", source, target]
        for scheme, status in (("int8-channel", 0), ("int8-channel", 2)):
            done = subprocess.run(
                ["/bin/sh", "-c", script, "-", *command, "--scheme", scheme],
                capture_output=True,
                check=False,
            )
            assert done.returncode == status
            assert bool(done.stdout) == (status == 0)
        target.unlink()


def test_a_file_without_weights_is_refused(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"bias": weight(1, 8).reshape(8)})
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", "--scheme", "int8-channel")
    assert "no 2-D floating weight, nothing to quantize" in line


def test_a_file_that_is_quantized_already_is_refused(tmp_path: Path, capsys: Capture) -> None:
    source = checkpoint(tmp_path / "in.st", {"w": weight(2, 8), "v": weight(2, 8)})
    once, twice = tmp_path / "once.st", tmp_path / "twice.st"
    assert main(["quantize", str(source), str(once), "--scheme", "int8-channel"]) == 0
    capsys.readouterr()
    line = refuse(capsys, "quantize", once, twice, "--scheme", "int4-group128")
    assert "already quantized" in line


def test_a_name_that_the_output_needs_twice_is_refused(tmp_path: Path, capsys: Capture) -> None:
    tensors = {"w": weight(2, 8), "w_scale": weight(1, 2).reshape(2)}
    source = checkpoint(tmp_path / "in.st", tensors)
    line = refuse(capsys, "quantize", source, tmp_path / "out.st", "--scheme", "int8-channel")
    assert "two tensors of the output would be named 'w_scale'" in line
    assert_alone(source)


def test_a_header_that_no_loader_takes_is_refused(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "LARGEST_HEADER", 300)
    line = refuse(capsys, "quantize", source, source.with_name("o"), "--scheme", "int8-channel")
    assert "too many to load" in line
    assert_alone(source)


def test_a_file_that_shrinks_meanwhile_is_an_error(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shrink(*arguments: object) -> float:
        os.truncate(source, 2000)
        return 0.0

    monkeypatch.setattr(job_module, "signal_to_noise_db", shrink)
    line = refuse(capsys, "quantize", source, source.with_name("o"), "--scheme", "int8-channel")
    assert "the file changed while it was read" in line
    assert_alone(source)


def test_a_file_that_is_written_to_meanwhile_is_an_error(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(source, (0, 0))

    def meddle(*arguments: object) -> float:
        with source.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")
        return 0.0

    monkeypatch.setattr(job_module, "signal_to_noise_db", meddle)
    line = refuse(capsys, "quantize", source, source.with_name("o"), "--scheme", "int8-channel")
    assert "the file changed while it was read" in line
    assert_alone(source)


def test_no_kernel_is_said_in_one_line(
    source: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    impossible = planq.PlanPreference(sku="no.such/row")
    monkeypatch.setattr(executors, "PREFERENCE", impossible)
    refuse(capsys, "quantize", source, source.with_name("out.st"), "--scheme", "int8-channel")
    assert_alone(source)


def test_the_command_line_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    hide = "sys.modules['typer'] = None"
    child = planq_process("info", before=hide)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (2, "")
    assert "pip install 'planq[cli]'" in err
    assert err.count("\n") == 1


def test_a_reader_that_stops_reading_is_no_traceback() -> None:
    child = planq_process("ops", "--json", before="import os; os.close(0)")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=60) == 2
    assert "Traceback" not in err


def test_an_output_stream_that_is_full_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planq.cli", "ops", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
