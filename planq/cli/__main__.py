"""``python -m planq.cli``."""

from __future__ import annotations

import sys

from planq.cli import main

if __name__ == "__main__":
    sys.exit(main())
