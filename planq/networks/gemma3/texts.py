"""Texts, and what a step takes and makes of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from planq.errors import ArgumentError, PlanqError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from planq.networks.pages import Pages

Array = np.ndarray[Any, Any]
INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a text are chosen: the settings of the operator `sample`.

    The random number of a token is made of the seed and of the token's place in its text alone, so
    a text has the same tokens in every batch.

    Attributes:
        temperature: What differences of logits are divided by. 0: the likeliest token is taken,
            and the other settings have no effect.
        top_k: How many tokens are kept, the likeliest ones. 0: all.
        top_p: How much of all probability is kept. 1: all.
        min_p: The least probability that is kept, next to that of the likeliest token. 0: all.
        seed: Of the random numbers.

    Raises:
        ArgumentError: A setting makes no sense.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ArgumentError for settings that make no sense."""
        largest = float(np.finfo(np.float32).max)
        for name, least, most, told in (
            ("temperature", 0, largest, "a number from 0 to the largest float32"),
            ("top_k", 0, INT32.max, f"0 to {INT32.max}"),
            ("top_p", 0, 1, "a number from 0 to 1"),
            ("min_p", 0, 1, "a number from 0 to 1"),
            ("seed", INT64.min, INT64.max, f"{INT64.min} to {INT64.max}"),
        ):
            found = getattr(self, name)
            if not least <= found <= most:  # Nor is a NaN.
                raise ArgumentError(name, told, str(found))

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is taken."""
        return self.temperature == 0


GREEDY = Sampling(temperature=0.0)


class Text:
    """The tokens so far, the pages of their keys and values, and what a digest needs.

    Args:
        pages: Where its pages come from.
        most: How many tokens it may become.
        digested: Whether its logits are digested.
        sampling: How its tokens are chosen.

    Attributes:
        length: How many tokens it has.
        sampling: As it was given.
    """

    def __init__(
        self,
        pages: Pages,
        most: int,
        *,
        digested: bool = False,
        sampling: Sampling = GREEDY,
    ) -> None:
        self.length, self.most, self.sampling = 0, most, sampling
        self._pages = pages
        self.pages = np.empty(0, np.int64)
        self._digest = hashlib.sha256() if digested else None

    @property
    def choice(self) -> str:
        """What chooses its tokens: ``likeliest`` or ``drawn``."""
        return "likeliest" if self.sampling.is_greedy else "drawn"

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

    def slot(self) -> int:
        """Where its next token goes."""
        page, place = divmod(self.length, self._pages.size)
        return int(self.pages[page]) * self._pages.size + place

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


class LogitsError(PlanqError):
    """Texts that draw have logits that no token can be drawn by: a NaN, or -infinity alone.

    Attributes:
        rows: Of which tokens of the step.
        tokens: All tokens of the step, int64; -1 in these rows.
    """

    code = "logits"

    def __init__(self, rows: Sequence[int], tokens: Array) -> None:
        told = "expected logits without NaN, and one above -infinity, got others"
        which = ", ".join(map(str, rows))
        super().__init__(f"token{'s' * (len(rows) > 1)} {which} of a step: {told}")
        self.rows, self.tokens = tuple(rows), tokens


class Made:
    """What a step makes: for each token that logits were asked of, in the order of the parts.

    Args:
        choices: What chooses each token, as :attr:`Text.choice` says.
        tokens: Waits for the next tokens of all rows, by the choices that there are.
        logits: Waits for the logits; None if the step does not give them.
    """

    def __init__(
        self,
        choices: Sequence[str],
        tokens: Mapping[str, Callable[[], Array]],
        logits: Callable[[], Array] | None = None,
    ) -> None:
        self._choices, self._tokens, self._logits = choices, tokens, logits
        self._found: dict[str, Array] = {}

    def wait(self) -> Array:
        """The next tokens, int64, and -1 where none can be drawn; waits for the step."""
        every = {name: self._once(name, fetched) for name, fetched in self._tokens.items()}
        if len(every) == 1:
            return next(iter(every.values()))
        return np.array([every[name][i] for i, name in enumerate(self._choices)], np.int64)

    def tokens(self) -> Array:
        """The next tokens, int64; waits for the step.

        Raises:
            LogitsError: Some cannot be drawn. The error has the others, whose texts may go on.
        """
        found = self.wait()
        if (found < 0).any():
            raise LogitsError(np.flatnonzero(found < 0).tolist(), found)
        return found

    def token(self, row: int) -> int:
        """One of them; waits for the step.

        Raises:
            LogitsError: It cannot be drawn. What became of the others does not matter.
        """
        found = self.wait()
        if found[row] < 0:
            raise LogitsError([row % len(found)], found)
        return int(found[row])

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
