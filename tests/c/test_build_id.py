"""The build's identity: what goes into it, by configuring the host backend again and again."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import planq
from c import programs

# What finds pybind11 in a real build; nothing is built here.
PYBIND11 = """
set(PACKAGE_VERSION 3.0.0)
set(PACKAGE_VERSION_COMPATIBLE TRUE)
function(pybind11_add_module target)
  add_library(${target} MODULE "${PROJECT_SOURCE_DIR}/src/bindings/python/module.cpp")
endfunction()
"""
# What one configuration sets, the next one in its folder sets back.
DEFAULTS = (
    *("PLANQ_CUDA=OFF", "PLANQ_WERROR=OFF", "PLANQ_TEST_OPERATORS=OFF"),
    *("PLANQ_SANITIZE=", "PLANQ_PYTHON_MODULE=ON", "CMAKE_CXX_FLAGS="),
)
SOURCES = ("CMakeLists.txt", "pyproject.toml", "src", "tests/operators", "build_backend", "planq")


@dataclass(frozen=True)
class Tree:
    """A copy of the sources, and where it is configured."""

    sources: Path
    builds: Path
    package: Path
    seen: dict[str, dict[str, str]] = field(default_factory=dict)

    def configured(self, name: str, *options: str, folder: str = "first") -> Mapping[str, str]:
        """What build_info.h says; once for each name. CMake looks at a compiler once a folder."""
        if name not in self.seen:
            defaults = [f"-D{each}" for each in (f"pybind11_DIR={self.package}", *DEFAULTS)]
            binary = self.builds / folder
            cmake = programs.tool("cmake")
            programs.run(cmake, "-S", self.sources, "-B", binary, *defaults, *options)
            text = (binary / "generated" / "build_info.h").read_text()
            found = re.findall(r'^#define PLANQ_(\w+) "(.*)"$', text, re.MULTILINE)
            self.seen[name] = {key.lower(): value for key, value in found}
        return self.seen[name]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy of what CMake reads."""
    folder = tmp_path_factory.mktemp("identity")
    package = folder / "pybind11"
    package.mkdir()
    for name in ("pybind11Config.cmake", "pybind11ConfigVersion.cmake"):
        (package / name).write_text(PYBIND11)
    for name in SOURCES:
        source, target = programs.ROOT / name, folder / "sources" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, target)
    return Tree(folder / "sources", folder / "builds", package)


def test_what_changes_no_code_changes_no_identity(tree: Tree) -> None:
    """Warnings, folders, those of the build and those that flags name; and the Python module."""
    first = tree.configured("first")
    flags = "-DCMAKE_CXX_FLAGS=-Wno-attributes -ffile-prefix-map=/somewhere=."
    assert tree.configured("harmless", "-DPLANQ_WERROR=ON", flags, folder="harmless") == first
    assert tree.configured("library alone", "-DPLANQ_PYTHON_MODULE=OFF") == first
    assert re.fullmatch(r"[0-9a-f]{16}", first["build_id"])
    assert first["source_id"] == planq.build_info().source_id
    assert first["source_id"] != first["build_id"]


@pytest.mark.parametrize(
    ("name", "option", "flags"),
    [
        ("flags", '-DCMAKE_CXX_FLAGS=-march=x86-64-v3 -DTEXT=\\"a\\"', "-march=x86-64-v3"),
        ("sanitized", "-DPLANQ_SANITIZE=address", "-fsanitize=address"),
        ("operators", "-DPLANQ_TEST_OPERATORS=ON", ""),
    ],
)
def test_what_changes_code_changes_the_identity(
    tree: Tree, name: str, option: str, flags: str
) -> None:
    """And the flags say what; the sources are the same."""
    first, other = tree.configured("first"), tree.configured(name, option)
    assert other["build_id"] != first["build_id"]
    assert other["source_id"] == first["source_id"]
    assert flags in other["flags"]
    assert tree.configured(f"after {name}") == first


def test_a_changed_source_changes_both(tree: Tree) -> None:
    """As a line of a header does."""
    before = dict(tree.configured("first"))
    header = tree.sources / "src" / "math" / "ieee.h"
    kept = header.read_text()
    header.write_text(f"{kept}// Another line.\n")
    after = tree.configured("changed")
    header.write_text(kept)
    assert after["source_id"] != before["source_id"]
    assert after["build_id"] != before["build_id"]
    assert after["flags"] == before["flags"]


def test_what_is_installed_says_what_it_was_compiled_with() -> None:
    """Flags that bits depend on, of both compilers."""
    build = planq.build_info()
    assert "-ffp-contract=off" in build.flags.split()
    assert bool(build.cuda_flags) == build.cuda
    if build.cuda:
        assert "--fmad=false" in build.cuda_flags.split()
    assert not [flag for flag in build.flags.split() if flag.startswith("-W")]
