"""Fails where the digests of a GPU are not those of the present kernels: `make release-check`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from support import golden

if problem := golden.unrecorded():
    sys.exit(f"release: {problem}")
sys.stdout.write("release: the recorded digests are those of these kernel sources\n")
