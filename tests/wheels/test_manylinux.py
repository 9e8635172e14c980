"""What a release makes of one built wheel: names, tags, versions and records."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path

import pytest

import manylinux

SUFFIX = "x86_64-linux-gnu.so"
BUILT = {
    "planq/__init__.py": b"import planq._core\n",
    f"planq/_core.cpython-311-{SUFFIX}": b"module of 3.11",
    "planq/libplanq.so": b"library",
    "planq-0.1.0.dist-info/METADATA": (
        b"Metadata-Version: 2.4\nName: planq\nVersion: 0.1.0\n\nVersion: 9\n"
    ),
    "planq-0.1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
    "planq-0.1.0.dist-info/RECORD": b"planq/__init__.py,sha256=wrong,1\n",
}


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The wheels that come of a wheel for 3.11 with modules for 3.12 and free-threaded 3.14."""
    monkeypatch.setattr(manylinux, "audit", lambda wheel: None)
    monkeypatch.setattr(manylinux, "PLATFORM", "manylinux_2_28_x86_64")
    built = tmp_path / "planq-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(built, "w") as wheel:
        for name, content in BUILT.items():
            wheel.writestr(zipfile.ZipInfo(name, (1984, 6, 8, 1, 2, 4)), content)
    # A build's own module is not stripped: the one in the wheel is taken.
    for version, content in (("311", b"not stripped"), ("312", b"3.12"), ("314t", b"3.14t")):
        (tmp_path / f"_core.cpython-{version}-{SUFFIX}").write_bytes(content)
    made = manylinux.release(built, tmp_path, "host")
    assert not built.exists()
    return made


def members(wheel: Path) -> dict[str, bytes]:
    """The members of a wheel by their names."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_each_interpreter_has_a_wheel_with_its_module_alone(released: list[Path]) -> None:
    """And with a tag in WHEEL that is that of the name."""
    expected = {
        "cp311-cp311": ("311", b"module of 3.11"),
        "cp312-cp312": ("312", b"3.12"),
        "cp314-cp314t": ("314t", b"3.14t"),
    }
    names = [f"planq-0.1.0+host-{tag}-manylinux_2_28_x86_64.whl" for tag in expected]
    assert [wheel.name for wheel in released] == names
    for wheel, (tag, (version, module)) in zip(released, expected.items(), strict=True):
        found = members(wheel)
        modules = {key: value for key, value in found.items() if "_core." in key}
        assert modules == {f"planq/_core.cpython-{version}-{SUFFIX}": module}
        assert found["planq/libplanq.so"] == b"library"
        told = found["planq-0.1.0+host.dist-info/WHEEL"].decode()
        assert told == f"Wheel-Version: 1.0\nTag: {tag}-manylinux_2_28_x86_64\n"


def test_the_version_is_that_of_the_name(released: list[Path]) -> None:
    """In the header of METADATA; what its text says stays."""
    for wheel in released:
        found = members(wheel)
        assert not [name for name in found if name.startswith("planq-0.1.0.dist-info")]
        told = found["planq-0.1.0+host.dist-info/METADATA"]
        assert told == b"Metadata-Version: 2.4\nName: planq\nVersion: 0.1.0+host\n\nVersion: 9\n"


def test_the_record_is_that_of_the_members(released: list[Path]) -> None:
    """Digests and sizes of all, and none of the record itself, which comes last."""
    for wheel in released:
        found = members(wheel)
        record = "planq-0.1.0+host.dist-info/RECORD"
        assert list(found)[-1] == record
        lines = list(csv.reader(io.StringIO(found[record].decode())))
        assert [line[0] for line in lines] == list(found)
        for name, digest, size in lines[:-1]:
            padded = digest.removeprefix("sha256=") + "="
            assert base64.urlsafe_b64decode(padded) == hashlib.sha256(found[name]).digest()
            assert int(size) == len(found[name])
        assert lines[-1] == [record, "", ""]


def test_dates_are_those_of_the_built_wheel(released: list[Path]) -> None:
    """And libraries may be executed, whatever the umask was."""
    for wheel in released:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                assert member.date_time == (1984, 6, 8, 1, 2, 4)
                mode = 0o755 if member.filename.endswith(".so") else 0o644
                assert member.external_attr >> 16 == 0o100000 | mode


def test_a_module_of_no_cpython_is_refused() -> None:
    """Rather than named wrongly."""
    for name in ("_core.so", "_core.abi3.so", "_core.pypy311-pp73-x86_64-linux-gnu.so"):
        with pytest.raises(ValueError, match="no module of CPython"):
            manylinux.interpreter(name)
