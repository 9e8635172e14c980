"""Builds a wheel of this project into a folder, as an installer does, and shows what it compiles.

``wheel.py FOLDER`` has to run under a Python that holds what ``requirements.py --build`` prints.
Installers keep a build's output to themselves, or add their own to it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import planq_build

PROJECT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Builds the wheel and prints where it lies."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(PROJECT)
    print(folder / planq_build.build_wheel(str(folder)))


if __name__ == "__main__":
    main()
