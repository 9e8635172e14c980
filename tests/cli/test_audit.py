"""`planq audit`: its reports, and what it says where it cannot audit."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import planq
from planq.audit.digests import recorded
from planq.audit.report import canonical
from planq.cli.app import run


@pytest.mark.parametrize("device", ["cuda:0", "cuda:7"])
def test_a_machine_without_a_gpu_is_told_what_cannot_be_done(
    device: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line on stderr, with the status that says there is no answer."""
    monkeypatch.setattr(planq, "devices", lambda: ())
    assert run(["audit", "--device", device]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith(f"planq: error: --device {device}: ")
    assert "planq audit cannot hold its kernels to anything" in line


def test_two_audits_have_the_same_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte by byte; the report says what was audited, and how to repeat it."""
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for file in files:
        arguments = ["--device", "host", "--operators", "^(un)?pack_int4$", "--output", str(file)]
        assert run(["audit", *arguments]) == 0
        assert "HELD: " in capsys.readouterr().out
    first, second = (json.loads(file.read_text()) for file in files)
    assert canonical(first["evidence"]) == canonical(second["evidence"])
    digest = hashlib.sha256(canonical(first["evidence"])).hexdigest()
    assert first["evidence_sha256"] == second["evidence_sha256"] == digest
    assert {kernel["operator"] for kernel in first["evidence"]["kernels"]} == {
        "pack_int4",
        "unpack_int4",
    }
    assert run(["audit", "--compare", *map(str, files)]) == 0
    second["evidence_sha256"] = "0"
    files[1].write_text(json.dumps(second))
    assert run(["audit", "--compare", *map(str, files)]) == 1
    assert "evidence_sha256" in capsys.readouterr().out


def test_an_audit_that_runs_out_of_time_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict names what is missing, and the status is not that of a held claim."""
    arguments = ["--device", "host", "--operators", "^fill$", "--time-budget", "0"]
    assert run(["audit", *arguments]) == 2
    told = capsys.readouterr()
    assert "INCOMPLETE" in told.out
    assert "not audited: host fill" in told.out
    assert told.err == "planq: error: the time was up before every operator was audited\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--operators", "("], "--operators: missing ), unterminated subpattern at position 0"),
        (["--device", "host", "--operators", "^nothing$"], "no operator has '^nothing$'"),
        (["--compare", "none.json", "none.json"], "none.json: No such file or directory"),
        (["--claims", "["], "--claims: unterminated character set at position 0 in '['"),
        (["--device", "host", "--claims", "^fast$"], "--claims: no claim has '^fast$' in its name"),
        (["--plans", "none.json"], "none.json: No such file or directory"),
        (["--device", "host", "--record", "x.json"], "--record: expected --device cuda:N, one GPU"),
    ],
)
def test_what_cannot_be_audited_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the status that says there is no answer."""
    assert run(["audit", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_check_is_the_claim_about_digests_alone(tmp_path: Path) -> None:
    """In as many cases as kernels take, which are recorded."""
    file = tmp_path / "check.json"
    arguments = ["--device", "host", "--operators", "^unpack_int4$", "--output", str(file)]
    assert run(["audit", "--check", *arguments]) == 0
    found = json.loads(file.read_text())["evidence"]
    assert list(found["claims"]) == ["recorded"]
    cases = len(recorded()["unpack_int4"])
    runs = [kernel["claims"]["recorded"]["runs"] for kernel in found["kernels"]]
    assert sum(runs) == cases > 10


def test_only_what_a_stored_plan_runs_is_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its SKU; a file that is no plan is refused, and so is one of another device."""
    desc = planq.UnpackInt4Descriptor(shape=(4, 6), input_dtype="int4")
    plan = planq.Plan.select(planq.HOST, desc)
    stored, file = tmp_path / "plan.json", tmp_path / "report.json"
    stored.write_text(plan.to_json())
    arguments = ["--device", "host", "--plans", str(stored), "--claims", "^again$"]
    assert run(["audit", *arguments, "--output", str(file)]) == 0
    kernels = json.loads(file.read_text())["evidence"]["kernels"]
    assert {kernel["sku"] for kernel in kernels} == {plan.sku}
    capsys.readouterr()
    assert run(["audit", *arguments, "--operators", "^fill$"]) == 2
    assert "--plans: no kernel of these devices and operators" in capsys.readouterr().err
    for text, expected in (("[]", "which has a SKU"), ("{", "got no JSON")):
        stored.write_text(text)
        assert run(["audit", *arguments]) == 2
        assert expected in capsys.readouterr().err


KERNELS = {"format": 1, "evidence_sha256": "0", "evidence": {"kernels": [{"device": "host"}]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no json", "got no JSON"),
        ("[" * 100_000, "got no JSON"),
        ("[]", "of format 1"),
        ("{}", "of format 1"),
        (json.dumps({"format": 2}), "of format 1"),
        (json.dumps({"format": 1, "evidence": []}), "of format 1"),
        (json.dumps({"format": 1, "evidence": {"kernels": 3}}), "of format 1"),
        (json.dumps(KERNELS), "of format 1"),
    ],
)
def test_a_file_that_is_no_report_is_refused(
    text: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line, whatever it has."""
    file = tmp_path / "file.json"
    file.write_text(text)
    assert run(["audit", "--compare", str(file), str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("planq: error: ")
    assert expected in line


def test_without_the_package_of_the_references_the_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a line; every other command goes without it."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert run(["audit", "--device", "host"]) == 2
    assert capsys.readouterr().err == (
        "planq: error: planq audit needs the package 'ml_dtypes': pip install 'planq[audit]'\n"
    )


def test_without_assertions_nothing_is_called_held() -> None:
    """Python -O leaves out what compares."""
    command = [sys.executable, "-P", "-O", "-m", "planq", "audit", "--device", "host"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "which python -O leaves out" in done.stderr
