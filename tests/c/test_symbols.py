"""What libplanq.so shows of itself, and what its header promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import planq
from planq import _core
from support import c_library as c

MODULE = Path(_core.__file__)
HEADER = Path(planq.__file__).with_name("include") / "planq.h"
# What the library of the tests counts.
COUNTER = "planq_allocations"
# Libraries of glibc 2.28 and of GCC, which every system has that loads manylinux_2_28.
SYSTEM = {
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}


def output_of(*command: str | Path) -> str:
    """What a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported() -> set[str]:
    """The names that a program or a library can find in libplanq.so."""
    lines = output_of("nm", "-D", "--defined-only", c.LIBRARY).splitlines()
    return {line.split()[-1] for line in lines}


def test_every_exported_name_is_planqs_own() -> None:
    """C functions, and what the Python module links under a name that says so."""
    names = exported()
    assert all(name.startswith("planq_") for name in names)
    public = {name for name in names if not name.startswith("planq_internal_")}
    assert public - {COUNTER} == c.FUNCTIONS


def test_the_header_declares_what_is_exported() -> None:
    """And nothing else; the comments that say what a function does are its documentation."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    inline = {"planq_host_stream", "planq_cuda_stream"}
    assert set(re.findall(r"\b(planq_\w+)\(", text)) == c.FUNCTIONS | inline


def test_the_library_is_found_by_its_files_name_and_needs_no_python() -> None:
    """A wheel has no symbolic links."""
    dynamic = output_of("readelf", "-d", c.LIBRARY)
    assert re.search(r"SONAME.*\[libplanq\.so\]", dynamic)
    undefined = output_of("nm", "-D", "--undefined-only", c.LIBRARY)
    assert "malloc" in undefined
    assert not re.findall(r" _?Py[A-Z_]\w*", undefined)


def test_the_module_exports_its_entry_alone() -> None:
    """No name of its own copy of the C++ library meets another copy in the process."""
    lines = output_of("nm", "-D", "--defined-only", MODULE).splitlines()
    assert {line.split()[-1] for line in lines} - {COUNTER} == {"PyInit__core"}


@pytest.mark.parametrize("library", [c.LIBRARY, MODULE], ids=["library", "module"])
def test_every_linux_with_glibc_2_28_can_load_it(library: Path) -> None:
    """It needs no C++ library, nothing of CUDA, and no function that a newer glibc brought."""
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", library)))
    assert "libc.so.6" in needed
    assert needed <= SYSTEM | ({"libplanq.so"} if library == MODULE else set())
    told = output_of("readelf", "--version-info", "--wide", library).partition("Version needs")[2]
    versions = re.findall(r"Name: GLIBC_([0-9.]+)", told)
    assert versions
    assert max(tuple(map(int, version.split("."))) for version in versions) <= (2, 28)


def test_versions_are_pythons() -> None:
    """One library, whoever asks."""
    info = planq.build_info()
    assert c.C.planq_version().decode() == info.version
    assert c.C.planq_build_id().decode() == info.build_id
    assert c.C.planq_source_id().decode() == info.source_id


def test_there_is_a_code_for_every_error_of_pythons() -> None:
    """By the same name; a number that is no code has a name too.

    Two have none: the base of all, and the error of a model, which C does not have.
    """
    classes = [
        item
        for item in vars(planq).values()
        if isinstance(item, type) and issubclass(item, planq.PlanqError)
    ]
    declared = re.findall(r"(PLANQ_OK|PLANQ_ERROR_\w+) = (\d+)", HEADER.read_text())
    names = {int(number): name for name, number in declared}
    spelled = {number: c.C.planq_code_name(number).decode() for number in names}
    for number, name in names.items():
        assert name.removeprefix("PLANQ_ERROR_").removeprefix("PLANQ_").lower() == spelled[number]
    assert {error.code for error in classes} - {"planq", "policy"} <= set(spelled.values())
    for number in (-1, len(names), 2**31 - 1, -(2**31)):
        assert c.C.planq_code_name(number) == b"unknown"
