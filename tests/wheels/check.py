"""Judges the wheels of a release: their sizes, their contents, and whether they install and run.

``check.py DIST FOLDER PYTHON...`` installs each wheel of DIST into a bare environment of the one of
these interpreters that it is for, in FOLDER. It fails if a wheel is too large or does not work, and
if no interpreter is there to try it.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path

INSTALL = Path(__file__).resolve().with_name("install.py")
# In MB: with both backends, and with the host's alone.
BOTH, HOST = 60.0, 8.0
ASK = "import sysconfig as s, sys; print(s.get_config_var('SOABI').split('-')[1])"
# What NumPy's wheels say of the systems that they are for.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")


def abi(wheel: Path) -> str:
    """The ABI of a wheel without its ``cp``, such as ``312`` or ``314t``."""
    return wheel.stem.split("-")[3].removeprefix("cp")


def interpreters(pythons: list[str]) -> dict[str, str]:
    """The interpreters that are here, by their ABIs."""
    found = {}
    for python in pythons:
        try:
            told = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        found.setdefault(told.stdout.strip(), python)
    return found


def contents(wheels: list[Path]) -> list[str]:
    """What is wrong with sizes, or where wheels of one release differ though they should not."""
    problems = []
    releases: dict[str, set[str]] = defaultdict(set)
    for wheel in wheels:
        limit = HOST if "+host-" in wheel.name else BOTH
        megabytes = wheel.stat().st_size / 1e6
        if megabytes > limit:
            problems.append(f"{wheel.name}: {megabytes:.1f} MB, and {limit:.0f} are allowed")
        with zipfile.ZipFile(wheel) as archive:
            digest = hashlib.sha256(archive.read("planq/libplanq.so")).hexdigest()
            releases[wheel.name.split("-")[1]].add(digest)
    for version, digests in releases.items():
        if len(digests) > 1:
            problems.append(f"{version}: {len(digests)} libraries, and one is to be in all wheels")
    return problems


def fetch(wheel: Path, packages: Path) -> None:
    """Downloads what a wheel's interpreter needs beside it."""
    version = abi(wheel)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-deps", "--dest", str(packages)]
    command += [
        "--implementation=cp",
        f"--python-version={version.rstrip('t')}",
        f"--abi=cp{version}",
    ]
    command += [f"--platform={name}_{platform.machine()}" for name in PLATFORMS]
    subprocess.run([*command, "numpy"], check=True)


def main(dist: Path, folder: Path, pythons: list[str]) -> int:
    """Print what was found; the exit status is 1 if there is a problem."""
    wheels = sorted(dist.glob("*.whl"))
    problems = contents(wheels) if wheels else [f"{dist}: no wheels"]
    here = interpreters(pythons)
    for wheel in wheels:
        if not (python := here.get(abi(wheel))):
            problems.append(f"{wheel.name}: not tried, there is no CPython {abi(wheel)} here")
            continue
        packages = folder / "packages" / abi(wheel)
        fetch(wheel, packages)
        arguments = [str(wheel), str(packages), str(folder / wheel.stem)]
        if subprocess.run([python, str(INSTALL), *arguments], check=False).returncode:
            problems.append(f"{wheel.name}: does not install and run as it should")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
