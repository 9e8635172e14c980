"""Gemma 3 of plans alone: weights, memory, and steps of any texts together."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import planq
from planq.errors import ArgumentError
from planq.networks.gemma3.launches import (
    INPUTS,
    Extents,
    Launches,
    asked_shapes,
    room_of,
    row_shapes,
)
from planq.networks.gemma3.plans import BIT_EXACT, Limits, descriptors
from planq.networks.gemma3.sizes import Sizes, stored, weights_of
from planq.networks.gemma3.step import Step
from planq.networks.gemma3.texts import GREEDY, Made, Part, Sampling, Text
from planq.networks.machine import machine_of
from planq.networks.pages import Pages, PagesError
from planq.networks.places import Places, bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from planq.networks.gemma3.launches import Launch
    from planq.networks.gemma3.sizes import Entry, Source
    from planq.networks.machine import Machine

    Progress = Callable[[str, int, int], None]

Array = np.ndarray[Any, Any]
# Steps of other extents that are kept; the one that was not used for longest goes first.
KEPT = 64
# On a GPU a step has a power of two of rows up to here, then a multiple of it.
GRAIN = 64

# Where the token is that a step has made for a text: of which choice, and in which row.
Place = tuple[str, int]


class Fed(NamedTuple):
    """Tokens that the last step has made: the first row that they go to, and the first's place."""

    row: int
    source: Place
    size: int


class Gemma3:
    """The network on a machine.

    A step takes some tokens of each of some texts: parts of prompts and single tokens, in any
    mixture. A token's bits depend on its own text alone.

    Args:
        files: The model (:func:`planq.checkpoint.read_gguf`); its tensors are read here.
        machine: Where it runs, or the name of that; it has no block yet. Default: the host.
        limits: What memory is allocated for.
        progress: Is told of each tensor before it is read: name, bytes, and the bytes of all.
        preference: What its plans promise. With less than by default, a text's bits may depend on
            the machine and on its batch: this is for those who measure what promises cost.

    Attributes:
        sizes: Of the model.
        limits: As they were given.
        plans: By the names of their launches.
        pages: Those of the cache.
        memory: All tensors by name, with as many rows as a step may have. Some share bytes: what
            one launch writes is there until the last launch that reads it has run.
        weights: Those of the file, by name.
        digesting: The seconds that digests have taken.
        watch: Is told of every launch when it has run, and then steps run without a graph; None:
            nothing is told.

    Raises:
        CheckpointError: The file is no Gemma 3, or lacks something.
        ArgumentError: Texts may be longer than the model takes.
        PlanqError: The machine has too little memory.
    """

    def __init__(
        self,
        files: Source,
        machine: Machine | str = "host",
        limits: Limits | None = None,
        progress: Progress | None = None,
        preference: planq.PlanPreference = BIT_EXACT,
    ) -> None:
        self.sizes, self.limits = Sizes.of(files), limits or Limits()
        if self.limits.context > self.sizes.context:
            most = f"at most {self.sizes.context} tokens, which the model takes"
            raise ArgumentError("context", most, str(self.limits.context))
        self.machine = machine_of(machine) if isinstance(machine, str) else machine
        entries = weights_of(files, self.sizes)
        chosen = descriptors(self.sizes, self.limits, entries)
        made = {
            desc: planq.Plan.select(self.machine.stream, desc, preference)
            for desc in {*chosen.values()}
        }
        self.plans = {name: made[desc] for name, desc in chosen.items()}
        self.memory = self._allocate(entries)
        self.weights = {name: self.memory[name] for name in entries}
        self._fill_constants()
        self._read(files, entries, progress or (lambda name, nbytes, total: None))
        self.pages = Pages(self.limits.cache, self.limits.page)
        self._steps: OrderedDict[Extents, Step] = OrderedDict()
        self._made: dict[Text, Place] = {}
        self.digesting = 0.0
        self.watch: Callable[[Launch], None] | None = None

    def text(self, most: int, *, digested: bool = False, sampling: Sampling = GREEDY) -> Text:
        """A text without tokens.

        Args:
            most: How many tokens it may become. It takes pages of the cache as it grows.
            digested: Whether its logits are digested. Then each of its steps waits for them.
            sampling: How its tokens are chosen; by default it takes the likeliest ones.

        Raises:
            ArgumentError: That is more than the network is made for.
        """
        if not 1 <= most <= self.limits.context:
            raise ArgumentError("most", f"1 to {self.limits.context} tokens", str(most))
        return Text(self.pages, most, digested=digested, sampling=sampling)

    def step(self, parts: Sequence[Part], *, logits: bool = False) -> Made:
        """Computes the next tokens of some texts. On a GPU it does not wait for them.

        Args:
            parts: Of each text one; no more tokens together than ``limits.rows``.
            logits: Whether :class:`Made` gives the logits, and not only the next tokens.

        Raises:
            ArgumentError: The parts do not fit; nothing has changed.
            PagesError: The cache has too few free pages; nothing has changed.
        """
        self._check(parts)
        rows, asked = sum(part.size for part in parts), sum(part.asked for part in parts)
        choices = {part.text.choice for part in parts if part.asked}
        step = self._bound_for(self._extents(rows, len(parts), asked, choices))
        self._grow(parts)
        fed = self._fill(step, parts)
        step.fill()
        for row, (choice, source), count in fed:
            tokens = self.memory[choice][source : source + count]
            self.machine.copy(step.at["ids"][row : row + count], tokens)
        self._run(step)
        self._made = {}
        made = 0
        for part in parts:
            part.text.length += part.size
            made += part.asked
            if part.asked:
                self._made[part.text] = part.text.choice, made - 1
        return self._results(parts, logits)

    def continued(
        self, text: Text, ids: Sequence[int], most: int, ends: Collection[int] = ()
    ) -> Iterator[int]:
        """Continues a text, and yields the tokens as they are known.

        On a GPU a step begins before the token of the one before it is known to the host, except
        of texts with a digest, whose steps wait for their logits anyway. Where the text ends, such
        a step is dropped: the text has the same length on every machine. What follows it begins
        with the last token, which is not in the cache yet.

        Args:
            text: The text.
            ids: Its next tokens, such as a prompt.
            most: How many tokens are made at most.
            ends: Tokens that end it; one is yielded, and none behind it.

        Raises:
            ArgumentError: There are no tokens to begin with, or they do not fit.
            LogitsError: No token can be drawn.
            PagesError: The cache has too few free pages for the next token.
        """
        rows = self.limits.rows
        for at in range(0, max(len(ids), 1), rows):  # a step refuses no tokens at all
            last = at + rows >= len(ids)
            made = self.step([Part(text, ids[at : at + rows], asked=int(last))])
        early = self.machine.graphs and not text.is_digested
        for count in range(1, most + 1):
            further = count < most and text.length < text.most
            ahead = self._ahead(text) if further and early else None
            length, goes_on = text.length, False
            try:
                token = made.token(-1)
                yield token
                goes_on = further and token not in ends
            finally:  # whoever reads may stop, too
                if not goes_on:
                    self._made.pop(text, None)
                    if ahead and text.length == length:  # and has not released the text
                        text.length -= 1
            if not goes_on:
                return
            made = ahead or self.step([Part(text)])

    def _ahead(self, text: Text) -> Made | None:
        """Begins the step of a token that the host does not know; None: there is no page for it.

        The token may end its text, and then no page is needed.
        """
        try:
            return self.step([Part(text)])
        except PagesError:
            return None

    def prepare(self, tokens: int, *, sampled: bool = False) -> None:
        """Binds the steps in which one text of so many tokens is read and continued.

        They are bound when they are first used anyway. This is for those who measure time.

        Args:
            tokens: Their number.
            sampled: Whether the text samples its tokens.
        """
        rows = self.limits.rows
        whole, rest = divmod(tokens - 1, rows)
        if whole:
            self._bound_for(self._extents(rows, 1, 0, ()))
        for count in (rest + 1, 1):
            self._bound_for(self._extents(count, 1, 1, {"drawn" if sampled else "likeliest"}))

    def launches(self, rows: int) -> list[tuple[Launch, Callable[[Any], object]]]:
        """Those of a step of one text with so many tokens, and of the logits of its last one.

        Each is there with what runs it on a stream.
        """
        step = self._bound_for(self._extents(rows, 1, 1))
        return list(zip(step.launches, step.bound, strict=True))

    # --- Before a step

    def _check(self, parts: Sequence[Part]) -> None:
        """Raises ArgumentError for parts that make no step."""
        limits = self.limits
        if not 1 <= len(parts) <= limits.texts:
            raise ArgumentError("parts", f"1 to {limits.texts} texts", str(len(parts)))
        if len({part.text for part in parts}) < len(parts):
            raise ArgumentError("parts", "each text once", "one of them twice")
        for part in parts:
            self._check_part(part)
        for name, most, found in (
            ("tokens", limits.rows, sum(part.size for part in parts)),
            ("asked tokens", limits.asked, sum(part.asked for part in parts)),
        ):
            if found > most:
                raise ArgumentError("parts", f"{most} {name} of a step at most", str(found))

    def _check_part(self, part: Part) -> None:
        if part.ids is None:
            if part.text not in self._made:
                told = "tokens, or a text whose next token the last step has made"
                raise ArgumentError("ids", told, "neither")
        elif len(part.ids) == 0 or not 0 <= min(part.ids) <= max(part.ids) < self.sizes.vocabulary:
            told = f"tokens from 0 to {self.sizes.vocabulary - 1}"
            raise ArgumentError("ids", told, planq.errors.shown(list(part.ids)))
        if not 0 <= part.asked <= part.size:
            raise ArgumentError("asked", f"0 to {part.size}", str(part.asked))
        part.text.require_room(part.size)

    def _extents(
        self, rows: int, texts: int, asked: int, choices: Collection[str] = ("likeliest",)
    ) -> Extents:
        """What a step of so many tokens of so many texts is bound for."""
        batch = next(count for count in self.limits.batches if count >= texts)
        bound = self._bucket(rows, self.limits.rows)
        # Likeliest and drawn tokens, and whether each text has one token.
        chosen = "likeliest" in choices, "drawn" in choices, rows == texts
        if asked == rows and bound <= self.limits.asked:
            return Extents(bound, batch, bound, True, *chosen)
        most = min(bound, self.limits.asked)
        return Extents(bound, batch, self._bucket(asked, most) if asked else 0, False, *chosen)

    def _bucket(self, count: int, most: int) -> int:
        """How many rows a step of so many has: on a GPU others are filled up to few numbers."""
        if not self.machine.graphs:
            return count
        up = 1 << (count - 1).bit_length() if count <= GRAIN else -(-count // GRAIN) * GRAIN
        return min(up, most)

    def _grow(self, parts: Sequence[Part]) -> None:
        """Gives texts the pages that they need."""
        missing = [part.text.missing(part.size) for part in parts]
        pages = iter(self.pages.take(sum(missing)))
        for part, count in zip(parts, missing, strict=True):
            if count:
                part.text.grow(list(itertools.islice(pages, count)))

    def _fill(self, step: Step, parts: Sequence[Part]) -> list[Fed]:
        """Writes the inputs of a step on the host.

        Returns:
            What goes from the tokens that the last step has made to those of this one.
        """
        fed = list[Fed]()
        ids, positions, slots, chosen = (list[int]() for _ in range(4))
        starts, lengths = list[int](), list[int]()
        for part in parts:
            text, count, row = part.text, part.size, len(positions)
            if part.ids is None:
                _join(fed, row, self._made[text])
            ids += (0,) if part.ids is None else part.ids
            end = text.length + count
            positions += range(text.length, end)
            slots += (text.slot(),) if count == 1 else text.slots(count).tolist()
            chosen += range(row + count - part.asked, row + count)
            starts.append(row)
            lengths.append(end)
        # Rows that fill the step up are tokens of no text: they write nothing to the cache.
        for name, values, rest in (
            ("ids", ids, 0),
            ("position", positions, 0),
            ("slot", slots, -1),
            ("query start", starts, len(positions)),
            ("key length", lengths, 0),
            ("chosen", [] if step.extents.every else chosen, 0),
        ):
            step.host[name][: len(values)] = values
            step.host[name][len(values) :] = rest
        step.place([part.text.pages for part in parts])
        if step.extents.sampled:
            step.settle(parts)
        return fed

    def _bound_for(self, extents: Extents) -> Step:
        if extents in self._steps:
            self._steps.move_to_end(extents)
        else:
            self._steps[extents] = Step(self, extents)
            if len(self._steps) > KEPT:
                self._steps.popitem(last=False)
        return self._steps[extents]

    # --- A step

    def _run(self, step: Step) -> None:
        if self.watch is None:
            step.run()
        else:
            step.watched(self.watch)

    def _results(self, parts: Sequence[Part], logits: bool) -> Made:
        """Begins to fetch what was asked for; digests wait for it."""
        choices = [part.text.choice for part in parts for _ in range(part.asked)]
        asked, fetch = len(choices), self.machine.fetch
        digested = any(part.asked and part.text.is_digested for part in parts)
        tokens = {name: fetch(self.memory[name][:asked]) for name in sorted({*choices})}
        rows = fetch(self.memory["logits"][:asked]) if logits or digested else None
        made = Made(choices, tokens, rows)
        if digested:
            made.wait()  # the copies are done, and their memory is of use to others
            found, start, first = made.logits(), time.perf_counter(), 0
            for part in parts:
                part.text.add(found[first : first + part.asked])
                first += part.asked
            self.digesting += time.perf_counter() - start
        return made

    # --- Memory

    def _allocate(self, entries: dict[str, Entry]) -> dict[str, Any]:
        """All tensors in one block: weights, activations, the cache and workspaces."""
        sizes, limits = self.sizes, self.limits
        weights = {name: stored(entry) for name, entry in entries.items()}
        places = Places(
            {**weights, **self._kept()},
            row_shapes(sizes, limits.rows) | asked_shapes(sizes, limits.asked),
        )
        for extents in self._kinds():
            made = partial(self._operands, extents)
            rows, asked = extents.rows, extents.asked
            places.trace(made, row_shapes(sizes, rows) | asked_shapes(sizes, asked))
        return places.on(self.machine)

    def _kinds(self) -> Iterator[Extents]:
        """The largest step of each kind."""
        limits = self.limits
        few = min(limits.rows, limits.asked)
        for batch in limits.batches:
            yield Extents(limits.rows, batch, few, False)
            yield Extents(min(batch, limits.rows), batch, 0, False, single=True)
        for likeliest, sampled in ((True, False), (False, True), (True, True)):
            yield Extents(limits.rows, 1, few, False, likeliest, sampled)
            yield Extents(few, 1, few, True, likeliest, sampled)

    def _operands(
        self, extents: Extents, tensors: Mapping[str, Any]
    ) -> list[tuple[planq.Plan, Any]]:
        """Plan and args of each launch of a step."""
        made = Launches(self.sizes, self.limits.table, tensors, extents).listed()
        return [(self.plans[launch.name], launch.args) for launch in made]

    def _kept(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of what lives always, beside the weights."""
        sizes, limits = self.sizes, self.limits
        inputs = room_of(
            Extents(limits.rows, limits.batches[-1], limits.asked, False, sampled=True),
            limits.table,
        )
        pages = (limits.cache, limits.page, sizes.key_heads, sizes.head)
        return {
            "cache": ((sizes.layers, 2, *pages), "float16"),
            "likeliest": ((limits.asked,), "int64"),
            "drawn": ((limits.asked,), "int64"),
            **{name: ((count,), INPUTS[name]) for name, count in inputs._asdict().items()},
            "turns": ((limits.context, sizes.head), "float32"),
            "windowed turns": ((limits.context, sizes.head), "float32"),
            "zeros": ((1, sizes.hidden), "float32"),
            "invalid": ((2,), "int64"),
        }

    def _read(self, files: Source, entries: dict[str, Entry], progress: Progress) -> None:
        """Brings the weights to the machine."""
        shapes = {name: stored(entry) for name, entry in entries.items()}
        sizes = {name: bytes_of(*shape) for name, shape in shapes.items()}
        for name, (shape, kind) in shapes.items():
            progress(name, sizes[name], sum(sizes.values()))
            data = files.tensor(entries[name])
            self.machine.put(self.weights[name], data.view(kind).reshape(shape))

    def _fill_constants(self) -> None:
        sizes, fill = self.sizes, self.machine.fill
        for name, base in (("turns", sizes.base), ("windowed turns", sizes.windowed_base)):
            turns = planq.positions.cos_sin(base, sizes.head, self.limits.context)
            fill(self.memory[name], turns)
        zeros = self.memory["zeros"]
        fill(zeros, np.zeros(zeros.shape, np.float32))


def _join(fed: list[Fed], row: int, source: Place) -> None:
    """Adds a copy of one token; with the one before it, if both are neighbours there and here."""
    if fed:
        first, (choice, begin), count = fed[-1]
        if first + count == row and (choice, begin + count) == source:
            fed[-1] = Fed(first, (choice, begin), count + 1)
            return
    fed.append(Fed(row, source, 1))
