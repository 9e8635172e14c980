"""Texts, and what a step takes and makes of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planq.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planq.networks.pages import Pages

Array = np.ndarray[Any, Any]


class Text:
    """The tokens so far, the pages of their keys and values, and what a digest needs.

    Args:
        pages: Where its pages come from.
        most: How many tokens it may become.
        digested: Whether its logits are digested.

    Attributes:
        length: How many tokens it has.
    """

    def __init__(self, pages: Pages, most: int, *, digested: bool = False) -> None:
        self.length, self.most = 0, most
        self._pages = pages
        self.pages = np.empty(0, np.int64)
        self._digest = hashlib.sha256() if digested else None

    @property
    def is_digested(self) -> bool:
        """Whether its logits are digested."""
        return self._digest is not None

    def digest(self) -> str:
        """SHA-256 of all logits that were asked for, row after row as float32.

        Raises:
            ArgumentError: They were not digested.
        """
        if self._digest is None:
            raise ArgumentError("text", "one made with digested=True", "another")
        return self._digest.hexdigest()

    def add(self, logits: Array) -> None:
        """Adds rows of logits to the digest."""
        if self._digest is not None:
            self._digest.update(logits.tobytes())

    def require_room(self, count: int) -> None:
        """Raises ArgumentError if so many tokens more are too many."""
        if self.length + count > self.most:
            told = f"at most {self.most} tokens"
            raise ArgumentError("text", told, f"{self.length} and {count} more")

    def missing(self, count: int) -> int:
        """How many pages so many tokens more take, beside those that it has."""
        return max(0, self._pages.of(self.length + count) - len(self.pages))

    def grow(self, pages: Sequence[int]) -> None:
        """Has these pages from now on."""
        self.pages = np.append(self.pages, np.array(pages, np.int64))

    def slots(self, count: int) -> Array:
        """Where its next tokens go in the cache."""
        return self._pages.slots(self.pages, self.length, count)

    def release(self) -> None:
        """Gives its pages back; it has no tokens any more."""
        self._pages.give(self.pages.tolist())
        self.pages, self.length = self.pages[:0], 0


class Part(NamedTuple):
    """The next tokens of a text.

    Attributes:
        text: The text.
        ids: The tokens. None: the one that the last step has made for it, which does not leave the
            device.
        asked: Of how many of these tokens, the last ones, there are logits.
    """

    text: Text
    ids: Sequence[int] | None = None
    asked: int = 1

    @property
    def size(self) -> int:
        """How many tokens."""
        return 1 if self.ids is None else len(self.ids)


class Made:
    """What a step makes: for each token that logits were asked of, in the order of the parts.

    Args:
        tokens: Waits for the likeliest next tokens.
        logits: Waits for the logits; None if the step does not give them.
    """

    def __init__(
        self, tokens: Callable[[], Array], logits: Callable[[], Array] | None = None
    ) -> None:
        self._tokens, self._logits = tokens, logits
        self._found: dict[str, Array] = {}

    def tokens(self) -> Array:
        """The likeliest next tokens, int64; waits for the step."""
        return self._once("tokens", self._tokens)

    def logits(self) -> Array:
        """The logits, a row of float32 for each token; waits for the step.

        Raises:
            ArgumentError: The step was not asked to give them.
        """
        if self._logits is None:
            raise ArgumentError("logits", "a step with logits=True", "one without")
        return self._once("logits", self._logits)

    def _once(self, name: str, fetched: Callable[[], Array]) -> Array:
        if name not in self._found:
            self._found[name] = fetched()
        return self._found[name]
