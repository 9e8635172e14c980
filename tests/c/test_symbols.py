"""What libplanq.so shows of itself, and what its header promises."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import planq
from support import c_library as c

HEADER = Path(planq.__file__).with_name("include") / "planq.h"
# What the library of the tests counts.
COUNTER = "planq_allocations"


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
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert needed
    assert not [name for name in needed if "python" in name or "torch" in name]


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
