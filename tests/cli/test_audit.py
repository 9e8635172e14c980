"""What `planq audit` says where it cannot audit."""

from __future__ import annotations

import pytest

import planq
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
    assert "planq audit cannot compare the products of a GPU's tensor cores" in line
