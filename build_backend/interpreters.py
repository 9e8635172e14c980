"""The headers of the interpreters that a release has wheels for."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

ASK = "import sysconfig; print(sysconfig.get_path('include'))"


def headers(python: str) -> Path | None:
    """The folder with ``Python.h`` of an interpreter; None where it has none or does not run.

    Args:
        python: The interpreter, or the folder itself.
    """
    folder = Path(python)
    if not folder.is_dir():
        try:
            told = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        folder = Path(told.stdout.strip())
    return folder.resolve() if (folder / "Python.h").is_file() else None


def other_headers(pythons: list[str]) -> list[Path]:
    """The folders of all interpreters but the version that runs this.

    A line on the error output names those that are not here.
    """
    own = headers(sysconfig.get_path("include"))
    found: list[Path] = []
    for python in pythons:
        folder = headers(python)
        if folder is None:
            print(f"no wheel for {python}: it is not here, or has no headers", file=sys.stderr)
        elif folder != own and folder not in found:
            found.append(folder)
    return found
