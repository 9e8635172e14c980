"""Compiles C and C++ programs with the system's compilers, as an engine's builder does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def run(*command: str | Path) -> str:
    """What a program prints; its complaints are the failure's text."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@cache
def place(option: str) -> Path:
    """Where `python -m planq` says that something is."""
    return Path(run(sys.executable, "-P", "-m", "planq", option).strip())


def tool(name: str) -> str:
    """A program of this environment, or else of the machine."""
    own = Path(sys.executable).with_name(name)
    found = str(own) if own.exists() else shutil.which(name)
    assert found, f"{name} is needed, and not there"
    return found


def build(source: Path, binary: Path, *options: str) -> Path:
    """Configures and builds a project against the installed planq; the folder of its programs."""
    cmake = tool("cmake")
    prefix = f"-DCMAKE_PREFIX_PATH={place('--cmake-dir')}"
    flags = f"-DCMAKE_CXX_FLAGS={' '.join(STRICT)}"
    run(cmake, "-S", source, "-B", binary, "-G", "Unix Makefiles", prefix, flags, *options)
    run(cmake, "--build", binary, "--parallel", "2")
    return binary
