"""The command line: ``planq quantize``, ``verify``, ``dequantize``, ``explain`` and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXTRA = frozenset({"typer", "rich"})


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: Arguments without the program's name; None takes those of the process.

    Returns:
        The exit status: 0 done, 1 done but something is marked in the output (for ``explain``:
        no kernel qualifies), 2 failed and nothing was written, 3 the output is complete, but its
        report could not be printed.
    """
    try:
        from planq.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        needs = f"needs the package '{error.name}': pip install 'planq[cli]'"
        print(f"planq: error: the command line {needs}", file=sys.stderr)
        return 2
    return run(sys.argv[1:] if argv is None else argv)
