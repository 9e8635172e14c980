"""``python -m planq``: the command line, and the paths that C and C++ programs build with.

``--cmake-dir``, ``--include-dir`` and ``--library`` each print a path. They need no extra package.
"""

from __future__ import annotations

import sys
from pathlib import Path

from planq.cli import main

_PLACES = {"--cmake-dir": "cmake", "--include-dir": "include", "--library": "libplanq.so"}

if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in _PLACES:
        sys.stdout.write(f"{Path(__file__).with_name(_PLACES[sys.argv[1]])}\n")
        sys.exit(0)
    sys.exit(main())
