"""What fuzzers make of sound input, and how far they go.

Each fuzzer takes something sound and changes a little of it, so that most of what it makes gets
past the first check. `make test` takes the same few seeds every time; `make fuzz` takes others
every time, as many as PLANQ_FUZZ says. PLANQ_FUZZ_SEED repeats one.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import os
import random
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_HEADROOM = 2 << 30
_CPU_SECONDS = 10.0

_LARGE = (2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30, 10**400, 10**4000)
_FLOATS = (0.0, -0.0, 0.5, 1.0, 3e38, 1e39, 1e308, float("inf"), float("nan"))
_WORDS = (
    *("", "a\0b", "\ud800", "\n", "\x1b[31m", "é", "w", "v", "F32", "__metadata__", "x" * 5000),
    *("float32", "nf4", "int8", "uint4", "tensor", "group", "kind", "shape", "op"),
)
_LETTERS = "aZ09 _-.:,;'\"\\{}[]()%$\t\n\r\0\x7f\x1bé€𝄞\ud800\udcff"
_SPLICES = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"-", b"0", b"1e999", b"NaN", b"null", b"true"),
    *(b"\\ud800", b"\\u0000", b"\xff", b"\x00", b"\xef\xbb\xbf", b"\n", b'"w":1,', b'{"w":'),
    *(b"9" * 30, b"9" * 5000, b"[" * 100_000, b'{"a":' * 3000),
)


def fuzzing(few: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs a test, which takes `chaos`, on this many seeds, or as the environment says."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*arguments: object, **named: object) -> None:
            for seed in _seeds(few):
                try:
                    test(*arguments, chaos=Chaos(seed), **named)
                except BaseException as error:
                    error.add_note(f"PLANQ_FUZZ_SEED={seed} repeats it")
                    raise

        signature = inspect.signature(test)
        fixtures = [p for name, p in signature.parameters.items() if name != "chaos"]
        vars(run)["__signature__"] = signature.replace(parameters=fixtures)
        return run

    return decorate


def _seeds(few: int) -> Iterable[int]:
    if seed := os.environ.get("PLANQ_FUZZ_SEED"):
        return [int(seed)]
    if many := os.environ.get("PLANQ_FUZZ"):
        start = int.from_bytes(os.urandom(6), "little")
        return range(start, start + int(many))
    return range(few)


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """What runs inside gets some memory beside what is held now, and some seconds."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + _HEADROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    start = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - start < _CPU_SECONDS


class Chaos(random.Random):
    """Draws values that nobody means, and changes those that somebody did."""

    def number(self) -> Any:
        """A number: small, at a limit, or not finite."""
        return self.choice((self.randint(-3, 300), self.choice(_LARGE), self.choice(_FLOATS)))

    def text(self, letters: str = _LETTERS, longest: int = 6) -> str:
        """Some of these letters."""
        return "".join(self.choices(letters, k=self.randint(0, longest)))

    def word(self) -> str:
        """A word that means something somewhere, or nothing at all."""
        return self.choice((self.choice(_WORDS), self.text()))

    def json(self, depth: int = 2) -> Any:
        """A value that JSON has."""
        kind = self.randint(0, 9 if depth else 6)
        if kind < 7:
            return (None, True, False, self.number(), self.number(), self.word(), [])[kind]
        if kind == 7:
            return _nested(self.choice((3, 40, 200)))
        items = [self.json(depth - 1) for _ in range(self.randint(0, 3))]
        return items if kind == 8 else {self.word(): item for item in items}

    def tampered(self, tree: Any, value: Callable[[], Any] | None = None) -> Any:
        """A tree of dictionaries and lists with one to three parts changed, gone or new.

        Args:
            tree: The tree, which stays as it is.
            value: What draws a new value, unless another part is taken.
        """
        changed = {"root": copy.deepcopy(tree)}
        for _ in range(self.choice((1, 1, 2, 3))):
            places = list(_places(changed))
            container, key = self.choice(places)
            other, at = self.choice(places)
            new = self.random() < 0.5
            drawn = (value or self.json)() if new else copy.deepcopy(other[at])
            self._change(container, key, drawn, root=container is changed)
        return changed["root"]

    def _change(self, container: Any, key: Any, drawn: Any, *, root: bool) -> None:
        how = self.randint(0, 3)
        inner = container[key]
        if how == 0 and not root:
            del container[key]
        elif how == 1 and isinstance(inner, dict):
            inner[self.word()] = drawn
        elif how == 1 and isinstance(inner, list):
            inner.append(drawn)
        else:
            container[key] = drawn

    def spliced(self, content: bytes) -> bytes:
        """Bytes with up to three short pieces cut out and others put in."""
        for _ in range(self.choice((1, 1, 2, 3))):
            at = self.randint(0, len(content))
            gone = self.choice((0, 0, 1, 1, 2, 9, len(content)))
            new = self.choice((self.choice(_SPLICES), self.randbytes(self.randint(0, 3))))
            content = content[:at] + new + content[at + gone :]
        return content


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a tree with each of its keys."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from _places(tree[key])
