"""How the commands put values into words."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

if TYPE_CHECKING:
    import planq

# Wide enough that no row breaks: what is not a terminal is read by programs, or searched.
_UNBROKEN = 4096
_READABLE = 100


def output_console() -> Console:
    """Returns the console for results: the terminal's width, or unbroken lines into a file."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(width=None if terminal else _UNBROKEN, highlight=False)


def text_width(console: Console) -> int:
    """Returns where a line of text breaks: at the console's end, or where one stops reading."""
    return min(console.width, _READABLE)


def printable(text: str) -> str:
    """Escapes what would steer a terminal: names in a file are anybody's text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def say(kind: str, message: str) -> None:
    """Prints one line on stderr. What nobody can be told changes nothing of what was done."""
    if sys.stderr is None:  # as Python starts where it is closed
        return
    try:
        print(f"planq: {kind}: {printable(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Points a stream at nothing, so that the interpreter's last flush cannot fail again."""
    with contextlib.suppress(OSError, ValueError):  # it is closed, or has no file
        number = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


def size_words(nbytes: int) -> str:
    """Returns a size in decimal units: ``90.9 MB``."""
    size, unit = float(nbytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{nbytes} B" if unit == "B" else f"{size:.3g} {unit}"


def kernel_words(guarantee: planq.PrecisionGuarantee) -> str:
    """Returns the parts of a kernel's guarantee that say which bits may differ."""
    name = guarantee.determinism.name
    return f"{name}, {guarantee.max_ulp} ulp" if guarantee.max_ulp else name


def guarantee_words(guarantee: planq.PrecisionGuarantee) -> str:
    """Returns the same of a plan's, whose descriptor decides about rows."""
    words = kernel_words(guarantee)
    return f"{words}, batch-invariant" if guarantee.batch_invariant else words
