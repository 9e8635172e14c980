"""Prompts continued as engines do it: texts come and go, chunks of prompts beside single tokens."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from planq.networks.gemma3.texts import GREEDY, LogitsError, Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planq.networks.gemma3.network import Gemma3
    from planq.networks.gemma3.texts import Made, Sampling, Text


class Completion(NamedTuple):
    """What became of a prompt.

    Attributes:
        tokens: Those that were made.
        digest: Of the logits that were asked for.
        failure: Why there are no further tokens. None: there are as many as were asked for.
    """

    tokens: list[int]
    digest: str
    failure: LogitsError | None = None


class _Running:
    """A prompt on its way: what is left of it, and the results of its steps."""

    def __init__(self, index: int, text: Text, prompt: Sequence[int], most: int) -> None:
        self.index, self.text, self.rest, self.most = index, text, list(prompt), most
        self.made: list[tuple[Made, int]] = []

    def part(self, room: int, every: bool) -> Part | None:
        """The next tokens, at most so many; None: there is no room."""
        if not self.rest:
            return Part(self.text)
        ids, self.rest = self.rest[:room], self.rest[room:]
        if not ids:
            return None
        return Part(self.text, ids, len(ids) if every else int(not self.rest))

    @property
    def is_done(self) -> bool:
        """Whether all tokens are made."""
        return len(self.made) == self.most

    def completion(self) -> Completion:
        """Waits for the tokens."""
        tokens = list[int]()
        for made, row in self.made:
            try:
                tokens.append(made.token(row))
            except LogitsError as failure:
                return Completion(tokens, self.text.digest(), failure)
        return Completion(tokens, self.text.digest())


def completed(
    network: Gemma3,
    prompts: Sequence[Sequence[int]],
    most: int,
    *,
    batch: int,
    chunk: int | None = None,
    every: bool = True,
    sampling: Sequence[Sampling] | None = None,
) -> list[Completion]:
    """Continues prompts, each by as many tokens. What becomes of one depends on it alone.

    Args:
        network: The network. Its cache has room for ``batch`` of the texts.
        prompts: Tokens. Texts begin in this order; the next one begins when one is done.
        most: How many tokens are made of each.
        batch: The most texts at a time.
        chunk: The most tokens of a prompt in a step. None: as many as there is room for.
        every: Whether logits are asked of every token of a prompt, and not of its last one alone.
        sampling: How the tokens of each prompt are chosen. None: all take the likeliest ones.

    Returns:
        In the order of the prompts.
    """
    settings = [GREEDY] * len(prompts) if sampling is None else sampling
    waiting = deque(enumerate(zip(prompts, settings, strict=True)))
    running = list[_Running]()
    found: dict[int, Completion] = {}
    while waiting or running:
        while waiting and len(running) < batch:
            index, (prompt, own) = waiting.popleft()
            text = network.text(len(prompt) + most, digested=True, sampling=own)
            running.append(_Running(index, text, prompt, most))
        _step(network, running, chunk, every)
        for each in [each for each in running if each.is_done]:
            found[each.index] = each.completion()
            each.text.release()
            running.remove(each)
    return [found[index] for index in range(len(prompts))]


def _step(network: Gemma3, running: Sequence[_Running], chunk: int | None, every: bool) -> None:
    """One step of all texts that there is room for; those that make tokens go first."""
    ordered = sorted(running, key=lambda each: bool(each.rest))
    parts = list(_parts(network, ordered, chunk, every))
    made = network.step([part for _, part in parts])
    row = 0
    for each, part in parts:
        row += part.asked
        if part.asked and not each.rest:
            each.made.append((made, row - 1))


def _parts(
    network: Gemma3, running: Sequence[_Running], chunk: int | None, every: bool
) -> Iterator[tuple[_Running, Part]]:
    limits = network.limits
    room, asked = limits.rows, limits.asked
    for each in running[: limits.texts]:
        own = min(room, asked) if every else room
        part = each.part(own if chunk is None else min(own, chunk), every)
        if part is not None:
            room, asked = room - part.size, asked - part.asked
            yield each, part
