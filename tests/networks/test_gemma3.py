"""planq.networks.gemma3 on small models: near transformers', one digest in any batch."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import planq
from checkpoint.small_gemma3 import LAYERS, write
from checkpoint.small_vocabulary import VOCABULARY
from gemma3_drawn import Drawn
from planq.checkpoint import read_gguf
from planq.checkpoint.failure import CheckpointError, TensorError
from planq.machine import instruction_sets
from planq.networks import machine_of
from planq.networks.gemma3 import Gemma3, Limits, Part, network
from planq.networks.gemma3.launches import INPUTS
from planq.networks.gemma3.schedule import completed
from planq.networks.machine import HostMachine
from planq.networks.pages import Pages, PagesError
from support import batches

if TYPE_CHECKING:
    from planq.networks import Machine

Array = np.ndarray[Any, Any]
MADE = 5
# What outlives a step, beside weights.
KEPT = ("cache", "likeliest", "drawn", "zeros", "turns", "windowed turns", *INPUTS)
# Of all texts of `prompts`, each alone, on every machine.
DIGEST = "6f29e6be34d9cb7e285723a7f62713bc7b11cb5f67866048c5748ea1dced1509"


class GraphLike(HostMachine):
    """A host with the few numbers of rows that graphs have, and whose steps run ahead."""

    graphs = True


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gemma3") / "small.gguf")


def small(path: Path, machine: Machine | str = "host", **limits: int) -> Gemma3:
    """The small model: windows of 4 tokens in 6 of 7 layers."""
    given = {"rows": 160, "texts": 32, "asked": 160, "context": 160, "page": 16} | limits
    with read_gguf(path) as files:
        return Gemma3(files, machine, Limits(**given))


PROMPTS = batches.prompts_of(34, 130, len(VOCABULARY))


@pytest.fixture(scope="module")
def alone(path: Path) -> list[str]:
    """The digests of texts that are computed one after another, prompts whole."""
    return batches.digests(small(path), PROMPTS, MADE, batches.Way(1))


# --- One digest


def test_the_digests_are_those_of_every_machine(alone: list[str]) -> None:
    assert hashlib.sha256(repr(alone).encode()).hexdigest() == DIGEST
    assert len(set(alone)) == len(PROMPTS)


@pytest.mark.parametrize("way", batches.WAYS[1:], ids=str)
def test_a_text_has_one_digest_in_any_batch_and_any_pieces(
    way: batches.Way, path: Path, alone: list[str]
) -> None:
    found = batches.digests(small(path), PROMPTS, MADE, way)
    assert batches.differing(found, alone) == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_do_not_matter(threads: int, path: Path, alone: list[str]) -> None:
    network = small(path, machine_of("host", threads))
    found = batches.digests(network, PROMPTS, MADE, batches.Way(7, 16))
    assert batches.differing(found, alone) == []


@pytest.mark.parametrize("page", [1, 7, 160])
def test_pages_do_not_matter(page: int, path: Path, alone: list[str]) -> None:
    """Nor does it where they are: texts have those of others that are done."""
    network = small(path, page=page, pages=7 * -(-135 // page))
    found = batches.digests(network, PROMPTS, MADE, batches.Way(7, 16))
    assert batches.differing(found, alone) == []
    assert len(network.pages) == network.limits.cache


@pytest.mark.parametrize(
    "way", [batches.Way(7, 16), batches.Way(32, None, backwards=True)], ids=str
)
def test_rows_that_fill_a_step_up_do_not_matter(
    way: batches.Way, path: Path, alone: list[str]
) -> None:
    network = small(path, GraphLike())
    found = batches.digests(network, PROMPTS, MADE, way)
    assert batches.differing(found, alone) == []
    rows = {extents.rows for extents in network._steps}
    assert rows <= {1, 2, 4, 8, 16, 32, 64, 128, 160}


HERE = instruction_sets().split()
IN_A_PROCESS = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from networks import test_gemma3
from support import batches
network = test_gemma3.small(Path(sys.argv[1]))
found = batches.digests(network, test_gemma3.PROMPTS, test_gemma3.MADE, batches.Way(7, 16))
print("\\n".join(found))
"""


@pytest.mark.parametrize("name", ["baseline", *(n for n in ("avx2", "avx512") if n in HERE)])
def test_instruction_sets_do_not_matter(name: str, path: Path, alone: list[str]) -> None:
    folders = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "examples/networks")]
    done = subprocess.run(
        [sys.executable, "-P", "-c", IN_A_PROCESS, str(path), *folders],
        env=os.environ | {"PLANQ_INSTRUCTION_SET": name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert batches.differing(done.stdout.splitlines(), alone) == []


def test_logits_that_are_asked_alone_have_the_same_bits(path: Path) -> None:
    """Of all positions, of one, or of none but the last: those rows of the others."""
    model, ids = small(path), PROMPTS[0]
    every = logits_of(model, [(ids, len(ids))])
    assert every.shape == (len(ids), len(VOCABULARY))
    assert logits_of(model, [(ids, 1)]).tobytes() == every[-1:].tobytes()
    pieces = [(ids[:50], 3), (ids[50:51], 0), (ids[51:90], 1), (ids[90:], 12)]
    expected = [*range(47, 50), 89, *range(len(ids) - 12, len(ids))]
    assert logits_of(model, pieces).tobytes() == every[expected].tobytes()


def logits_of(model: Gemma3, pieces: list[tuple[list[int], int]]) -> Array:
    """Of a text in pieces, of each of which so many are asked."""
    text = model.text(sum(len(ids) for ids, _ in pieces))
    made = [model.step([Part(text, ids, asked)], logits=True) for ids, asked in pieces]
    text.release()
    return np.concatenate([each.logits() for each in made])


def test_a_digest_is_that_of_the_logits(path: Path) -> None:
    model, ids = small(path), PROMPTS[2]
    text = model.text(len(ids) + 1, digested=True)
    first = model.step([Part(text, ids[:9], 2)], logits=True)
    second = model.step([Part(text, ids[9:], len(ids) - 9)], logits=True)
    rows = np.concatenate([first.logits(), second.logits()])
    assert text.digest() == hashlib.sha256(rows.tobytes()).hexdigest()
    assert first.tokens().tolist() == first.logits().argmax(axis=1).tolist()
    with pytest.raises(planq.ArgumentError, match="text: expected one made with digested=True"):
        model.text(1).digest()


# --- Tokens that do not leave the device


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_texts_go_on_with_tokens_that_the_host_has_not_seen(machine: Any, path: Path) -> None:
    """Also in another order than that of the step before, and beside new texts."""
    model = small(path, machine())
    a, b, c = (model.text(40) for _ in range(3))
    first = model.step([Part(a, [5, 6, 7]), Part(b, [290]), Part(c, [9, 9])])
    second = model.step([Part(c), Part(a), Part(b, [11, 12], 2)])
    third = model.step([Part(b), Part(c), Part(a)])
    fed = [first.tokens().tolist(), second.tokens().tolist(), third.tokens().tolist()]
    assert [len(each) for each in fed] == [3, 4, 3]
    again = small(path)
    for ids, rows in (
        ([5, 6, 7], [(0, 0), (1, 1), (2, 2)]),
        ([290, 11, 12], [(1, 3), (2, 0)]),
        ([9, 9], [(0, 2), (1, 0), (2, 1)]),
    ):
        text = again.text(40)
        token = int(again.step([Part(text, ids)]).tokens()[0])
        for i, (step, row) in enumerate(rows):
            assert fed[step][row] == token, (ids, i)
            token = int(again.step([Part(text, [token])]).tokens()[0])


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_text_is_continued_up_to_its_end(machine: Any, path: Path) -> None:
    model = small(path, machine(), rows=16)
    prompt = PROMPTS[0][:40]
    (expected,) = completed(model, [prompt], 9, batch=1)
    assert list(model.continued(model.text(60), prompt, 9)) == expected.tokens
    end = expected.tokens[4]
    until = expected.tokens[: expected.tokens.index(end) + 1]
    assert list(model.continued(model.text(60), prompt, 9, ends={end})) == until
    # A text without room for more ends, too.
    assert list(model.continued(model.text(42), prompt, 9)) == expected.tokens[:3]
    assert list(model.continued(model.text(60), prompt, 1)) == expected.tokens[:1]


def test_where_a_text_ends_no_step_ahead_is_left(path: Path) -> None:
    """Its digest, its length and what follows are those of a machine whose steps wait."""
    found = []
    for machine in (HostMachine, GraphLike):
        model = small(path, machine(), rows=16)
        (told,) = completed(model, [PROMPTS[0][:40]], 9, batch=1)
        end = told.tokens[4]
        for digested in (True, False):
            text = model.text(60, digested=digested)
            made = list(model.continued(text, PROMPTS[0][:40], 9, ends={end}))
            lengths = [text.length]
            with pytest.raises(planq.ArgumentError, match="ids: expected tokens, or a text"):
                model.step([Part(text)])
            for token in model.continued(text, [made[-1], 3], 9):
                made.append(token)
                if len(made) == len(told.tokens):
                    break
            lengths.append(text.length)
            found.append((made, lengths, text.digest() if digested else None))
    assert found[:2] == found[2:]
    assert found[0][:2] == found[1][:2]


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_text_has_its_tokens_up_to_the_last_page(machine: Any, path: Path) -> None:
    """A step ahead takes no page from a token that is made, or from a text that ends with it."""
    model = small(path, machine(), rows=16, page=4, pages=2)
    text = model.text(60)
    tokens = model.continued(text, PROMPTS[0][:8], 9)
    made = [next(tokens)]
    with pytest.raises(PagesError, match="expected 1 free pages of the cache, got 0 of 2"):
        next(tokens)
    assert text.length == 8
    text.release()
    assert list(model.continued(text, PROMPTS[0][:8], 9, ends=made)) == made
    assert text.length == 8


@pytest.mark.parametrize("machine", [HostMachine, GraphLike])
def test_a_text_that_its_reader_releases_begins_anew(machine: Any, path: Path) -> None:
    model = small(path, machine(), rows=16)
    prompt, text, found = PROMPTS[0][:7], model.text(60), []
    for _ in range(2):
        made = list[int]()
        for token in model.continued(text, prompt, 9):
            made.append(token)
            if len(made) == 3:
                text.release()
                break
        assert text.length == 0
        found.append(made)
    assert found[0] == found[1]


# --- What is refused


def refused(model: Gemma3, parts: list[Part], told: str) -> None:
    """Whether a step is refused, and changes nothing."""
    texts = [part.text for part in parts]
    before = [(text.length, text.pages.tolist()) for text in texts], len(model.pages)
    with pytest.raises(planq.PlanqError, match=told):
        model.step(parts)
    assert before == ([(text.length, text.pages.tolist()) for text in texts], len(model.pages))


def test_steps_that_do_not_fit_are_refused(path: Path) -> None:
    model = small(path, rows=6, texts=2, asked=3, context=20, page=4, pages=3)
    a, b, c = (model.text(20) for _ in range(3))
    refused(model, [], "parts: expected 1 to 2 texts, got 0")
    refused(model, [Part(text, [1]) for text in (a, b, c)], "parts: expected 1 to 2 texts, got 3")
    refused(model, [Part(a, [1]), Part(a, [2])], "parts: expected each text once")
    refused(model, [Part(a, [1] * 7)], "parts: expected 6 tokens of a step at most, got 7")
    refused(model, [Part(a, [1] * 4, 4)], "expected 3 asked tokens of a step at most, got 4")
    refused(model, [Part(a, [1], 2)], "asked: expected 0 to 1, got 2")
    refused(model, [Part(a, [1], -1)], "asked: expected 0 to 1, got -1")
    refused(model, [Part(a, [])], "ids: expected tokens from 0 to ")
    refused(model, [Part(a, [-1])], r"ids: expected tokens from 0 to \d+, got \[-1\]")
    refused(model, [Part(a, [len(VOCABULARY)])], "ids: expected tokens from 0 to ")
    refused(model, [Part(a)], "ids: expected tokens, or a text whose next token the last step has")
    with pytest.raises(planq.ArgumentError, match="ids: expected tokens from 0 to"):
        next(model.continued(a, [], 3))
    model.step([Part(a, [1, 2], 0)])
    refused(model, [Part(a)], "ids: expected tokens, or a text whose next token the last step has")
    refused(model, [Part(model.text(2), [1] * 3)], "text: expected at most 2 tokens, got 0 and 3")
    model.step([Part(a, [1] * 6)])
    refused(model, [Part(a, [1]), Part(b, [1] * 5)], "expected 3 free pages of the cache, got 1")
    model.step([Part(a, [1] * 4)])
    refused(model, [Part(a, [1])], "expected 1 free pages of the cache, got 0 of 3")
    a.release()
    model.step([Part(b, [1] * 5)])
    with pytest.raises(planq.ArgumentError, match="logits: expected a step with logits=True"):
        model.step([Part(b)]).logits()
    for most in (0, 21):
        with pytest.raises(planq.ArgumentError, match=f"most: expected 1 to 20 tokens, got {most}"):
            model.text(most)


def test_limits_are_positive() -> None:
    for name in ("rows", "texts", "asked", "context", "page", "pages"):
        with pytest.raises(planq.ArgumentError, match=f"{name}: expected 1 or more, got 0"):
            Limits(**{name: 0})
    assert [Limits(texts=count).batches for count in (1, 2, 5, 8)] == [
        [1],
        [1, 2],
        [1, 2, 4, 8],
        [1, 2, 4, 8],
    ]


def test_the_lowest_pages_go_first() -> None:
    pages = Pages(5, 4)
    assert (pages.take(3), pages.take(1), len(pages)) == ([0, 1, 2], [3], 1)
    pages.give([2, 0])
    assert pages.take(2) == [0, 2]
    with pytest.raises(PagesError, match="expected 2 free pages of the cache, got 1 of 5") as told:
        pages.take(2)
    assert (told.value.needed, told.value.free) == (2, 1)
    assert pages.take(1) == [4]
    assert [pages.of(count) for count in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert pages.slots(np.array([7, 2]), 3, 3).tolist() == [31, 8, 9]


def test_other_files_are_refused(tmp_path: Path) -> None:
    def load(**others: Any) -> None:
        with read_gguf(write(tmp_path / "a.gguf", **others)) as files:
            Gemma3(files)

    with pytest.raises(
        CheckpointError, match=r"'general.architecture': expected 'gemma3', got 'll"
    ):
        load(architecture="llama")
    with pytest.raises(TensorError, match=r"'output_norm.weight': expected F32 \[64\], found F16"):
        load(norms=np.float16)
    drawn = Drawn(layers=1, vocabulary=32)
    for key, value, told in (
        ("gemma3.block_count", None, "expected a positive number, got nothing"),
        ("gemma3.block_count", 62, "expected other than 62 layers"),
        ("gemma3.block_count", "1", "expected a positive number, got '1'"),
        ("gemma3.rope.scaling.type", "linear", "expected none, got 'linear'"),
        ("gemma3.attention.sliding_window", 0, "expected a positive number, got 0"),
    ):
        drawn.metadata = Drawn(layers=1, vocabulary=32).metadata | {key: value}
        with pytest.raises(CheckpointError, match=f"drawn: metadata '{key}': {told}"):
            Gemma3(drawn)
    drawn = Drawn(layers=1, vocabulary=32)
    drawn.metadata["gemma3.block_count"] = 2
    with pytest.raises(
        TensorError, match=r"no tensor 'blk.1.attn_q.weight', expected a type of bl"
    ):
        Gemma3(drawn)
    del drawn.by_name["token_embd.weight"]
    with pytest.raises(TensorError, match=r"no tensor 'token_embd.weight', expected a matrix"):
        Gemma3(drawn)


# --- Steps


def test_steps_that_were_not_used_for_long_are_made_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "KEPT", 3)
    model = small(path)
    text = model.text(100)
    first = model.step([Part(text, [1, 2])], logits=True).logits()
    for count in (3, 4, 2, 5, 6):
        model.step([Part(text, [1] * count)])
    assert [extents.rows for extents in model._steps] == [2, 5, 6]
    again = model.text(100)
    assert model.step([Part(again, [1, 2])], logits=True).logits().tobytes() == first.tobytes()


def test_a_watch_is_told_of_every_launch(path: Path) -> None:
    model = small(path)
    seen = list[str]()
    text = model.text(9)
    expected = model.step([Part(text, [1, 2])], logits=True).logits()
    model.watch = lambda launch: seen.extend(launch.results or [launch.name])
    text = model.text(9)
    found = model.step([Part(text, [1, 2])], logits=True).logits()
    assert found.tobytes() == expected.tobytes()
    per_layer = ["codes of norm", *(f"attn_{side}" for side in "qkv"), "turn and append"]
    assert [name.split(".")[-1] for name in seen[2:7]] == per_layer
    assert seen[7].startswith("attention of 1")
    assert seen[:2] == ["embedding", "scaling"]
    assert seen[-4:] == ["chosen rows", "codes of norm", "token_embd", "argmax"]
    assert seen.count("turn and append") == LAYERS
    assert seen.count("attention of 1, windowed") == LAYERS - 1


def test_everything_lies_in_one_block(path: Path) -> None:
    """Activations share bytes. Weights, the cache and what outlives a step have theirs alone."""
    model = small(path)
    spans = {
        name: (tensor.ctypes.data, tensor.ctypes.data + tensor.nbytes)
        for name, tensor in model.memory.items()
    }
    nbytes = max(end for _, end in spans.values()) - min(first for first, _ in spans.values())
    assert nbytes <= model.machine.nbytes < sum(end - first for first, end in spans.values())
    for name in (*model.weights, *KEPT):
        first, end = spans[name]
        others = [each for other, each in spans.items() if other != name]
        assert all(end <= left or right <= first for left, right in others), name
    with pytest.raises(planq.ArgumentError, match="memory: expected one block, of one network"):
        small(path, model.machine)


def test_what_no_launch_needs_any_more_may_be_anything(path: Path) -> None:
    """All that is shared is spoiled between steps, and digests are as before."""
    model, ids = small(path), PROMPTS[0][:20]
    kept = {*model.weights, *KEPT, "invalid"}
    found = []
    for spoils in (False, True):
        text = model.text(30, digested=True)
        for part in (Part(text, ids[:9], 9), Part(text, ids[9:]), Part(text)):
            model.step([part])
            for name in model.memory.keys() - kept if spoils else ():
                model.memory[name].view(np.uint8)[...] = 0xFF
        found.append(text.digest())
        text.release()
    assert found[0] == found[1]
