"""Lays the wheels of a release out as a kernel of the Hugging Face Hub, for ``kernels`` to load.

``hub.py DIST FOLDER``: wheels of one library become one folder of ``FOLDER/build``, which has the
modules of all their interpreters:

    torch-stable-abi210-cu130-x86_64-linux/
        __init__.py     what ``kernels`` loads: it imports the package beside it
        metadata.json   name, version, license, and the GPUs that there is code for
        planq/          the package
        LICENSE

The name says what a machine needs: torch from 2.10 on, whose C++ planq does not use; CUDA of this
version or none; the processor. FOLDER has to be a new one, or one that this made.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
WHEEL = re.compile(r"planq-([0-9.]+)(\+host)?-cp\d+-cp\d+t?-manylinux_\d+_\d+_(\w+)\.whl")

# The package calls itself by its name, so it takes that name in the process.
INIT = '''"""planq {version} as a kernel of the Hub: the package beside this file."""

import sys as _sys
from pathlib import Path as _Path

# Not resolved: the Hub's cache has links to files that lie elsewhere.
_folder = str(_Path(__file__).parent)
_sys.path.insert(0, _folder)
try:
    import planq as _planq
finally:
    _sys.path.remove(_folder)
if str(_Path(_planq.__file__).parent.parent) != _folder:
    raise ImportError(
        f"planq: expected that of {{_folder}}, got {{_planq.__file__}}, which this process has "
        "imported before; it can have one planq"
    )
from planq import *
from planq import __all__
'''

# Of what is in the folder; it needs no NumPy and no GPU.
ASK = """import json, sys
sys.path.insert(0, sys.argv[1])
from planq import build_info
print(json.dumps([build_info().cuda_version, build_info().architectures]))"""


def project() -> dict[str, Any]:
    """The table ``project`` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return table


def least_torch() -> str:
    """The oldest torch that planq takes, as names of folders spell it: ``210``."""
    (required,) = project()["optional-dependencies"]["torch"]
    found = re.fullmatch(r"torch>=(\d)\.(\d+)", required)
    if found is None:
        raise SystemExit(f"pyproject.toml: expected torch>=X.Y in the extra torch, got {required}")
    return found[1] + found[2]


def capabilities(architectures: str) -> list[str]:
    """Architectures as CMake spells them, as ``kernels`` does: ``90-virtual`` is ``9.0+PTX``."""
    found = []
    for number, letter, kind in re.findall(
        r"(\d+)([af]?)(-real|-virtual)?(?=,| |$)", architectures
    ):
        spelled = f"{number[:-1]}.{number[-1]}{letter}"
        found += [spelled] if kind != "-virtual" else []
        found += [f"{spelled}+PTX"] if kind != "-real" else []
    return found


def unpack(wheel: Path, folder: Path) -> None:
    """Adds the package of a wheel; what is there already has to be the same."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/licenses/LICENSE"):
                path = folder / "LICENSE"
            elif name.startswith("planq/"):
                path = folder / name
            else:
                continue
            content = archive.read(name)
            if path.exists() and path.read_bytes() != content:
                raise SystemExit(f"{wheel.name}: another {name} than in the wheels before it")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if name.endswith(".so") else 0o644)


def variant(cuda_version: str, processor: str) -> str:
    """The name of a folder: ``torch-stable-abi210-cu130-x86_64-linux``."""
    backend = "cu" + "".join(cuda_version.split(".")[:2]) if cuda_version else "cpu"
    return f"torch-stable-abi{least_torch()}-{backend}-{processor}-linux"


def metadata(name: str, version: str, architectures: str) -> dict[str, Any]:
    """What metadata.json says of the folder of this name; the id is that of the loaded module."""
    backend: dict[str, Any] = {"type": "cpu"}
    if architectures:
        backend = {"type": "cuda", "archs": capabilities(architectures)}
    return {
        "name": "planq",
        "id": re.sub(r"\W", "_", f"planq_{version}_{name}"),
        "version": int(version.split(".")[0]),
        "license": project()["license"],
        "python-depends": [],
        "backend": backend,
    }


def lay_out(wheels: list[Path], version: str, processor: str, build: Path) -> Path:
    """Makes the folder of wheels that have one library."""
    folder = build / "unnamed"
    for wheel in wheels:
        unpack(wheel, folder)
    command = [sys.executable, "-I", "-B", "-c", ASK, str(folder)]
    cuda_version, architectures = json.loads(subprocess.check_output(command))
    name = variant(cuda_version, processor)
    (folder / "__init__.py").write_text(INIT.format(version=version))
    told = metadata(name, version, architectures)
    (folder / "metadata.json").write_text(json.dumps(told, indent=2) + "\n")
    return folder.rename(build / name)


def releases(dist: Path) -> Iterator[tuple[list[Path], str, str]]:
    """Wheels that have one library, with their version and processor."""
    found: dict[tuple[str, ...], list[Path]] = {}
    for wheel in sorted(dist.glob("*.whl")):
        if (told := WHEEL.fullmatch(wheel.name)) is None:
            raise SystemExit(f"{wheel}: expected a wheel that make wheel made")
        found.setdefault(tuple(map(str, told.groups())), []).append(wheel)
    for (version, _, processor), wheels in found.items():
        yield wheels, version, processor


def main(dist: Path, folder: Path) -> None:
    """Lay out all wheels and print the folders."""
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    made = [lay_out(*release, build) for release in releases(dist)]
    if not made:
        raise SystemExit(f"{dist}: no wheels; make wheel makes them")
    print(*made, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
