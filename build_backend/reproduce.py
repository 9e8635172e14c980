"""Builds the wheels of a commit twice, and says whether both times they have the same bytes.

``reproduce.py COMMIT FOLDER`` has to run under a Python that holds what ``requirements.py --build``
prints. The two builds have other folders, times of files and permissions, and no compiler cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
# A path of other length moves whatever holds it.
BUILDS = {"first": 0o022, "second-with-a-longer-name": 0o077}


def pythons() -> str:
    """``PLANQ_PYTHONS`` with absolute paths: the builds have other folders than this project's."""
    named = os.environ.get("PLANQ_PYTHONS", "").split()
    return " ".join(str(PROJECT / name) if "/" in name else name for name in named)


def build(commit: str, folder: Path, umask: int) -> list[Path]:
    """Builds the wheels of a commit in a folder that it makes anew, and returns them."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", commit], cwd=PROJECT, stdout=subprocess.PIPE, check=True
    )
    command = ["tar", "--extract", "--touch", "--no-same-permissions", "--directory", str(folder)]
    subprocess.run(command, input=archive.stdout, check=True, umask=umask)
    environment = {
        **os.environ,
        "CCACHE_DISABLE": "1",
        "PLANQ_PYTHONS": pythons(),
        "SKBUILD_BUILD_DIR": "build",
    }
    wheel = [sys.executable, str(folder / "build_backend" / "wheel.py"), str(folder / "dist")]
    subprocess.run(wheel, env=environment, check=True, umask=umask)
    return sorted((folder / "dist").glob("*.whl"))


def sections(content: bytes, folder: Path) -> dict[str, bytes]:
    """The parts of an ELF file, by name, as readelf tells them."""
    path = folder / "library"
    path.write_bytes(content)
    command = ["readelf", "--sections", "--wide", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    line = re.compile(r"\] (\S+) +(\S+) +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+) ")
    return {
        name: content[int(at, 16) : int(at, 16) + int(size, 16)]
        for name, kind, at, size in line.findall(told)
        if kind != "NOBITS"
    }


def differences(first: Path, second: Path) -> Iterator[str]:
    """Says where two wheels differ: members, and sections of libraries."""
    with zipfile.ZipFile(first) as left, zipfile.ZipFile(second) as right:
        for name in sorted({*left.namelist(), *right.namelist()}):
            if name not in left.namelist() or name not in right.namelist():
                yield f"{name}: in one wheel only"
                continue
            for what in ("date_time", "external_attr", "compress_type"):
                if getattr(left.getinfo(name), what) != getattr(right.getinfo(name), what):
                    yield f"{name}: {what}"
            one, other = left.read(name), right.read(name)
            if one == other:
                continue
            yield f"{name}: content"
            if one.startswith(b"\x7fELF") and other.startswith(b"\x7fELF"):
                parts, others = (sections(each, first.parent) for each in (one, other))
                for part in sorted(parts.keys() | others.keys()):
                    if parts.get(part) != others.get(part):
                        yield f"{name}: section {part}"


def main() -> int:
    """Builds, compares and prints; the exit status is 1 if the wheels differ."""
    folder = Path(sys.argv[2]).resolve()
    # Once, since HEAD may move while the first wheel is built.
    command = ["git", "rev-parse", "--verify", f"{sys.argv[1]}^{{commit}}"]
    commit = subprocess.check_output(command, cwd=PROJECT, text=True).strip()
    first, second = (build(commit, folder / name, umask) for name, umask in BUILDS.items())
    same = [wheel.name for wheel in first] == [wheel.name for wheel in second]
    for one, other in zip(first, second, strict=same):
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in (one, other)]
        for wheel, digest in zip((one, other), digests, strict=True):
            print(f"{digest}  {wheel}")
        if digests[0] != digests[1]:
            same = False
            for line in differences(one, other):
                print(line)
    print("the same bytes" if same else "the wheels differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
