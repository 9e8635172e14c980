"""The programs for other processors, on this one: `make aarch64` runs them in an emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from c import programs
from cross import check

# What runs a program of this processor.
RUNNER = ["env"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, built with the system's compiler."""
    return programs.build(programs.ROOT / "tests" / "cross", tmp_path_factory.mktemp("cross"))


def test_digests_are_those_that_gpus_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a program without Python; some cases of every operator."""
    assert check.main(folder, 60, RUNNER) == 0
    engine, cases = capsys.readouterr().out.splitlines()[:2]
    assert engine == "10 results of the engine, 0 with other digests"
    assert cases.endswith(f" cases of {len(check.recorded())} operators, 0 with other digests")


def test_another_digest_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the operator and the case."""
    (wrong, *others) = check.chosen("quantize", 60)
    known = {**check.recorded()["quantize"], wrong.id: "0" * 64}
    assert others
    monkeypatch.setattr(check, "recorded", lambda: {"quantize": known})
    assert check.compare(folder, 60, RUNNER) == [f"quantize: {wrong.id}"]


def test_a_case_that_ends_early_is_refused(folder: Path) -> None:
    """A program that runs less than it was given does not pass."""
    case = check.chosen("quantize", 60)[-1]
    content = check.stored("quantize", case)
    (folder / "short").write_bytes(content[:-1])
    with pytest.raises(AssertionError, match="digests: "):
        programs.run(folder / "digests", folder / "short")
