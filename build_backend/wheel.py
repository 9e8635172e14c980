"""Builds a wheel of this project into a folder, as an installer does, and shows what it compiles.

``wheel.py FOLDER`` has to run under a Python that holds what ``requirements.py --build`` prints.
Installers keep a build's output to themselves, or add their own to it. With ``PLANQ_MANYLINUX=ON``
in the environment it makes the wheels of a release, for this Python and for those that
``PLANQ_PYTHONS`` names: see ``manylinux.py``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import interpreters
import manylinux
import planq_build

PROJECT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Builds the wheels and prints where they lie."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(PROJECT)
    if not planq_build.is_release():
        print(folder / planq_build.build_wheel(str(folder)))
        return
    headers = interpreters.other_headers(os.environ.get("PLANQ_PYTHONS", "").split())
    os.environ["PLANQ_PYTHON_HEADERS"] = ";".join(map(str, headers))
    build = Path(os.environ["SKBUILD_BUILD_DIR"]).resolve()
    # Those of interpreters that an earlier build named.
    for module in build.glob("_core.*.so"):
        module.unlink()
    built = folder / planq_build.build_wheel(str(folder))
    local = "" if planq_build.wants_cuda({}) else "host"
    for wheel in manylinux.release(built, build, local):
        print(f"{wheel} {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
