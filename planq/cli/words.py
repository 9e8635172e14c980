"""How the commands print values, and where."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, TextIO

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Sized

    import planq

# Wide enough that no row breaks: output that is no terminal is parsed or searched.
_UNBROKEN = 4096
_READABLE = 100
# The most names of one kind that a report lists; --json has all.
_NAMED = 5


def output_console() -> Console:
    """Returns the console for results: as wide as the terminal, or unbroken lines elsewhere."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(width=None if terminal else _UNBROKEN, highlight=False)


def text_width(console: Console) -> int:
    """Returns the width to wrap text at: the console's, but no more than is readable."""
    return min(console.width, _READABLE)


def printable(text: str) -> str:
    """Escapes control characters: names in a file may hold terminal escape sequences."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def say(kind: str, message: str) -> None:
    """Prints one line on stderr; a failure to print is ignored, since the work is done."""
    if sys.stderr is None:  # Python sets it to None if it starts closed
        return
    try:
        print(f"planq: {kind}: {printable(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Redirects a stream to the null device, so that the flush at exit cannot fail again."""
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


def counted(things: Sized, word: str) -> str:
    """Returns how many things there are: ``1 layer``, ``2 layers``."""
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"


def kernel_words(guarantee: planq.PrecisionGuarantee) -> str:
    """Returns determinism, and the ulp bound if there is one, of a kernel's guarantee."""
    name = guarantee.determinism.name
    return f"{name}, {guarantee.max_ulp} ulp" if guarantee.max_ulp else name


def guarantee_words(guarantee: planq.PrecisionGuarantee) -> str:
    """Returns the same of a plan's guarantee, and whether it is batch-invariant.

    Batch invariance depends on the descriptor, so a kernel alone does not decide it.
    """
    words = kernel_words(guarantee)
    return f"{words}, batch-invariant" if guarantee.batch_invariant else words
