"""Prints requirements of this project, one a line, for ``pip install --requirement``.

``requirements.py EXTRA...`` prints the package's own and those of the extras named.
``requirements.py --only EXTRA`` prints those of an extra without the package's own.
``requirements.py --build`` prints what a build without isolation needs on this machine; it has to
run under a Python that holds scikit-build-core, and ``--build-system`` prints how to get there.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def _requirements(arguments: list[str]) -> list[str]:
    table = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
    if arguments == ["--build"]:
        import planq_build

        needed = planq_build.get_requires_for_build_wheel()
        release = table["project"]["optional-dependencies"]["release"]
        return [*needed, *(release if planq_build.is_release() else ())]
    if arguments == ["--build-system"]:
        return list(table["build-system"]["requires"])
    project = table["project"]
    extras = project["optional-dependencies"]
    if arguments[:1] == ["--only"]:
        return list(extras[arguments[1]])
    return [*project["dependencies"], *(line for name in arguments for line in extras[name])]


if __name__ == "__main__":
    print("\n".join(_requirements(sys.argv[1:])))
