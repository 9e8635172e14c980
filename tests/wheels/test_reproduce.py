"""What tells two builds of a commit apart, on wheels and libraries that differ."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

import reproduce


def write(path: Path, members: dict[str, bytes], **facts: int) -> Path:
    """A wheel whose members have one date."""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, (1984, 6, 8, 1, 2, 4))
            for what, value in facts.items():
                setattr(member, what, value)
            wheel.writestr(member, content)
    return path


def library(folder: Path, number: int) -> bytes:
    """A library with a number in its data."""
    source = folder / "number.c"
    source.write_text(f"int number = {number};\n")
    command = ["cc", "-shared", "-Wl,--build-id=none", "-o", str(folder / "number.so"), str(source)]
    subprocess.run(command, check=True)
    return (folder / "number.so").read_bytes()


def test_members_that_differ_are_named(tmp_path: Path) -> None:
    """Those of one wheel, those with other contents, and what an archive says of them."""
    same = {"same": b"1"}
    first = write(tmp_path / "a.whl", {**same, "left": b"", "text": b"1"})
    second = write(tmp_path / "b.whl", {**same, "right": b"", "text": b"2"})
    assert list(reproduce.differences(first, second)) == [
        "left: in one wheel only",
        "right: in one wheel only",
        "text: content",
    ]
    third = write(tmp_path / "c.whl", same, external_attr=0o600 << 16)
    fourth = write(tmp_path / "d.whl", same, external_attr=0o644 << 16)
    assert list(reproduce.differences(third, fourth)) == ["same: external_attr"]
    assert list(reproduce.differences(third, third)) == []


def test_sections_of_libraries_are_named(tmp_path: Path) -> None:
    """The one that the number is in, and no other."""
    first = write(tmp_path / "a.whl", {"a.so": library(tmp_path, 1)})
    second = write(tmp_path / "b.whl", {"a.so": library(tmp_path, 2)})
    told = list(reproduce.differences(first, second))
    assert told == ["a.so: content", "a.so: section .data"]


def test_folders_of_interpreters_are_those_of_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both builds lie elsewhere; a program's name stays one."""
    monkeypatch.setenv("PLANQ_PYTHONS", "python3.12 build/headers /usr/include/python3.14")
    here = reproduce.PROJECT / "build" / "headers"
    assert reproduce.pythons() == f"python3.12 {here} /usr/include/python3.14"
