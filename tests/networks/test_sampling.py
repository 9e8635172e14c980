"""planq.networks.gemma3 with drawn tokens: those of the reference, in any batch."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from checkpoint.small_vocabulary import VOCABULARY
from networks.test_gemma3 import PROMPTS, GraphLike, path, small
from planq.audit.ops.gather.sample import reference
from planq.networks import machine_of
from planq.networks.gemma3 import GREEDY, Gemma3, LogitsError, Made, Part, Sampling
from planq.networks.gemma3.schedule import Completion, completed
from planq.networks.machine import HostMachine
from support import batches

if TYPE_CHECKING:
    from pathlib import Path

    from planq.networks.gemma3.launches import Launch

__all__ = ["path"]  # a fixture
MADE = 5
SETTINGS = batches.settings_of(len(PROMPTS))


def chosen(logits: np.ndarray[Any, Any], own: Sampling, position: int) -> int:
    """The token of a row of logits, by the reference of the operator."""
    rounded = [float(np.float32(x)) for x in (own.temperature, own.top_p, own.min_p)]
    settings = reference.Settings(own.seed, position, rounded[0], own.top_k, rounded[1], rounded[2])
    return reference.sample_row(logits, settings)


@pytest.fixture(scope="module")
def expected(path: Path) -> list[list[int]]:
    """The tokens of texts that are computed one after another, and chosen outside of steps."""
    network, found = small(path), list[list[int]]()
    for prompt, own in zip(PROMPTS, SETTINGS, strict=True):
        text, ids, made = network.text(len(prompt) + MADE), prompt, list[int]()
        while len(made) < MADE:
            (logits,) = network.step([Part(text, ids)], logits=True).logits()
            made.append(chosen(logits, own, text.length))
            ids = made[-1:]
        text.release()
        found.append(made)
    return found


def tokens_of(network: Gemma3, way: batches.Way, *, every: bool = True) -> list[list[int]]:
    """Those of all texts, in the order of the prompts."""
    step = -1 if way.backwards else 1
    found = completed(
        network,
        PROMPTS[::step],
        MADE,
        batch=way.batch,
        chunk=way.chunk,
        every=every,
        sampling=SETTINGS[::step],
    )
    return [each.tokens for each in found[::step]]


@pytest.mark.parametrize("every", [True, False])
@pytest.mark.parametrize("way", batches.WAYS, ids=str)
def test_a_text_has_the_same_tokens_in_any_batch_and_any_pieces(
    way: batches.Way, every: bool, path: Path, expected: list[list[int]]
) -> None:
    assert tokens_of(small(path), way, every=every) == expected


def test_the_settings_matter(path: Path, expected: list[list[int]]) -> None:
    """Texts that draw are others than without; those that do not are the same."""
    greedy = completed(small(path), PROMPTS, MADE, batch=32)
    other = set[Sampling]()
    for made, likeliest, own in zip(expected, greedy, SETTINGS, strict=True):
        if made != likeliest.tokens:
            other.add(replace(own, seed=0))
    # Each kind of settings that draws has drawn another text, if not each of its seeds.
    assert other == {replace(own, seed=0) for own in SETTINGS if not own.is_greedy}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads: int, path: Path, expected: list[list[int]]) -> None:
    network = small(path, machine_of("host", threads))
    assert tokens_of(network, batches.Way(7, 16)) == expected


@pytest.mark.parametrize(
    "way", [batches.Way(7, 16), batches.Way(32, None, backwards=True)], ids=str
)
def test_rows_that_fill_a_step_up_do_not_matter(
    way: batches.Way, path: Path, expected: list[list[int]]
) -> None:
    assert tokens_of(small(path, GraphLike()), way) == expected


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_text_is_continued(machine: Any, path: Path, expected: list[list[int]]) -> None:
    """Also where a step begins before the host has seen the token of the one before it."""
    network = small(path, machine())
    for prompt, own, tokens in list(zip(PROMPTS, SETTINGS, expected, strict=True))[:6]:
        network.prepare(len(prompt), sampled=not own.is_greedy)
        text = network.text(len(prompt) + MADE, sampling=own)
        assert list(network.continued(text, prompt, MADE)) == tokens
        text.release()


def test_asked_tokens_of_a_prompt_are_drawn_at_their_places(path: Path) -> None:
    network, own, ids = small(path), Sampling(2.0, seed=3), PROMPTS[0][:40]
    text = network.text(50, sampling=own)
    made = [network.step([Part(text, ids[:30], 4)], logits=True)]
    made.append(network.step([Part(text, ids[30:], 10)], logits=True))
    rows = [row for each in made for row in each.logits()]
    places = [*range(27, 31), *range(31, 41)]
    by_reference = [chosen(row, own, place) for row, place in zip(rows, places, strict=True)]
    assert [token for each in made for token in each.tokens().tolist()] == by_reference
    assert len(set(by_reference)) > 5


def test_texts_that_draw_nothing_cost_what_they_did(path: Path) -> None:
    """Steps of them alone have the launch, the copies and the logits that they ever had."""
    network = small(path)
    seen, filled = list[str](), list[int]()
    a, b = network.text(9), network.text(9, sampling=Sampling(seed=1))
    fill = network.machine.fill
    network.machine.fill = lambda tensor, array: (filled.append(array.nbytes), fill(tensor, array))
    network.watch = lambda launch: seen.append(launch.name)

    def run(*parts: Part) -> tuple[str, list[int]]:
        seen.clear()
        filled.clear()
        network.step(parts)
        return seen[-1], filled.copy()

    pages = network.limits.table
    assert run(Part(a, [1, 2])) == ("argmax", [8 * (3 * 2 + 1), 4 * (1 + 2 + pages)])
    draws = ("sample", [8 * (3 * 2 + 1 + 2), 4 * (1 + 2 + pages + 1), 4 * 3])
    assert run(Part(b, [1, 2])) == draws
    # A text that draws, but of which nothing is asked, draws nothing.
    assert run(Part(b, [3], 0), Part(a, [4]))[0] == "argmax"
    assert run(Part(b, [3]), Part(a))[0] == "sample"


def test_temperature_zero_is_the_likeliest_token(path: Path) -> None:
    network = small(path)
    settings = [Sampling(0.0, top_k=3, top_p=0.1, seed=i) for i in range(len(PROMPTS))]
    found = completed(network, PROMPTS, MADE, batch=7, sampling=settings)
    assert found == completed(network, PROMPTS, MADE, batch=7)
    assert all(each.is_greedy for each in [GREEDY, *settings])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("temperature", -1e-9, "a number from 0 to the largest float32, got -1e-09"),
        ("temperature", 1e39, "a number from 0 to the largest float32, got 1e+39"),
        ("temperature", float("nan"), "a number from 0 to the largest float32, got nan"),
        ("top_k", -1, "0 to 2147483647, got -1"),
        ("top_k", 2**31, "0 to 2147483647, got 2147483648"),
        ("top_p", 1.5, "a number from 0 to 1, got 1.5"),
        ("top_p", -0.1, "a number from 0 to 1, got -0.1"),
        ("min_p", float("nan"), "a number from 0 to 1, got nan"),
        ("min_p", 2, "a number from 0 to 1, got 2"),
        ("seed", 2**63, f"{-(2**63)} to {2**63 - 1}, got {2**63}"),
        ("seed", -(2**63) - 1, f"{-(2**63)} to {2**63 - 1}, got {-(2**63) - 1}"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: float, told: str) -> None:
    with pytest.raises(planq.ArgumentError) as refused:
        Sampling(**{name: value})
    assert str(refused.value) == f"{name}: expected {told}"


def test_logits_that_nothing_can_be_drawn_by_are_told() -> None:
    """The operator gives -1 for them. Texts that take the likeliest token have it all the same."""
    tokens = {
        "drawn": functools.partial(np.array, [3, -1, 5, -1]),
        "likeliest": functools.partial(np.array, [6, 7, 8, 9]),
    }
    made = Made(["drawn", "drawn", "likeliest", "likeliest"], tokens)
    for _ in range(2):
        with pytest.raises(LogitsError, match="token 1 of a step: expected logits without") as told:
            made.tokens()
        assert (told.value.rows, told.value.tokens.tolist()) == ((1,), [3, -1, 8, 9])
        with pytest.raises(LogitsError, match="token 1 of a step: ") as alone:
            made.token(-3)
        assert alone.value.rows == (1,)
        assert [made.token(row) for row in (0, 2, -1)] == [3, 8, 9]
    again = pickle.loads(pickle.dumps(told.value))
    assert (str(again), again.rows) == (str(told.value), (1,))
    with pytest.raises(LogitsError, match="tokens 1, 3 of a step: "):
        Made(["drawn"] * 4, {"drawn": tokens["drawn"]}).tokens()


SPOILED = {
    "a NaN": lambda row: row.__setitem__(np.s_[[17, 40]], np.nan),
    "-infinity alone": lambda row: row.fill(-np.inf),
}
OWN = (GREEDY, Sampling(2.0, seed=5), GREEDY, Sampling(2.0, seed=6))


def spoiled(model: Gemma3, texts: list[int], how: str) -> list[Completion]:
    """Texts in the same steps; of 0 and 1 the logits of the second token are spoiled."""
    ids = {i: PROMPTS[i][:20] for i in texts}
    settings = [OWN[i] for i in texts]
    steps = 0

    def watch(launch: Launch) -> None:
        nonlocal steps
        if launch.name == "token_embd":
            steps += 1
            for row, i in enumerate(texts):
                if steps == 2 and i < 2:
                    SPOILED[how](model.memory["logits"][row])

    model.watch = watch
    return completed(
        model, list(ids.values()), MADE, batch=len(texts), every=False, sampling=settings
    )


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_text_fails_or_goes_on_as_it_does_alone(machine: Any, how: str, path: Path) -> None:
    """Beside texts that draw and texts that do not, with good logits and with others."""
    alone = [spoiled(small(path, machine()), [i], how)[0] for i in range(4)]
    assert [len(each.tokens) for each in alone] == [MADE, 1, MADE, MADE]
    assert alone[0].tokens[1] == (17 if how == "a NaN" else 0)
    assert [each.failure is None for each in alone] == [True, False, True, True]
    for texts in ([0, 1, 2, 3], [0, 3], [1, 2], [2, 0], [1, 3]):
        together = spoiled(small(path, machine()), texts, how)
        for i, found in zip(texts, together, strict=True):
            assert found.tokens == alone[i].tokens, (texts, i)
            assert found.digest == alone[i].digest, (texts, i)
            assert (found.failure is None) == (alone[i].failure is None), (texts, i)


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_step_is_whole_where_a_token_cannot_be_drawn(machine: Any, path: Path) -> None:
    """It raises nothing, and the next one takes the tokens of those that go on."""
    model = small(path, machine())
    good = model.text(30, digested=True)
    bad = model.text(30, sampling=OWN[1])
    model.watch = lambda launch: (
        SPOILED["a NaN"](model.memory["logits"][1]) if launch.name == "token_embd" else None
    )
    made = model.step([Part(good, PROMPTS[0][:9]), Part(bad, PROMPTS[1][:7])])
    with pytest.raises(LogitsError) as told:
        made.tokens()
    assert (told.value.rows, told.value.tokens[1]) == ((1,), -1)
    model.watch = None
    after = model.step([Part(good)]).token(0)
    (expected,) = completed(small(path), [PROMPTS[0][:9]], 2, batch=1, every=False)
    assert ([int(told.value.tokens[0]), after], good.digest()) == expected[:2]
    with pytest.raises(planq.ArgumentError, match=r"ids: expected tokens from 0 to \d+, got \[-1"):
        model.step([Part(bad, told.value.tokens[1:].tolist())])


def test_a_text_that_cannot_be_continued_says_so(path: Path) -> None:
    model = small(path)
    text, found = model.text(40, sampling=OWN[1]), list[int]()
    made = model.continued(text, PROMPTS[0][:9], 9)
    found += [next(made), next(made)]
    model.watch = lambda launch: (
        model.memory["logits"].fill(np.nan) if launch.name == "token_embd" else None
    )
    with pytest.raises(LogitsError, match="token 0 of a step"):
        found += list(made)
    assert len(found) == 2


def test_every_text_needs_settings(path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        completed(small(path), PROMPTS, 1, batch=1, sampling=SETTINGS[:1])


def test_vocabulary_is_larger_than_the_filters() -> None:
    """Else they would keep everything."""
    assert len(VOCABULARY) > max(each.top_k for each in SETTINGS)
