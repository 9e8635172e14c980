"""planq.networks.tokenizer: tokens by the rule, of text and back."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from checkpoint.small_vocabulary import METADATA, VOCABULARY
from planq.checkpoint.failure import CheckpointError
from planq.networks.tokenizer import Tokenizer

IDS = {token: i for i, (token, _, _) in enumerate(VOCABULARY)}


def joined(text: str) -> list[str]:
    """By the rule as it is written: all neighbours are looked at before each join."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [first + second for first, second in itertools.pairwise(parts)]
        scores = [VOCABULARY[IDS[pair]][2] if pair in IDS else -np.inf for pair in pairs]
        if max(scores, default=-np.inf) == -np.inf:
            return parts
        at = scores.index(max(scores))
        parts[at : at + 2] = [pairs[at]]


def test_neighbours_join_by_their_score() -> None:
    tokenizer = Tokenizer(METADATA)
    draw = np.random.default_rng(0)
    for _ in range(300):
        text = "".join(draw.choice(list("aaabbc  Zé€\x01"), draw.integers(0, 24)))
        first, *ids = tokenizer.encode(text)
        assert first == IDS["<bos>"]
        expected = [
            each
            for part in joined(text)
            for each in ([part] if part in IDS else [f"<0x{byte:02X}>" for byte in part.encode()])
        ]
        assert [VOCABULARY[i][0] for i in ids] == expected, text
        assert tokenizer.decode(ids) == text


def test_what_the_vocabulary_says() -> None:
    tokenizer = Tokenizer(METADATA)

    def encoded(text: str) -> list[str]:
        first, *ids = tokenizer.encode(text)
        assert first == IDS["<bos>"]
        return [VOCABULARY[i][0] for i in ids]

    assert encoded("") == []
    # "ab" and "ba" have one score: the leftmost joins first. Then "aba" is a token.
    assert encoded("ababa") == ["ab", "aba"]
    assert encoded("baba") == ["ba", "ba"]
    # No space is put before a text, and each becomes a character of its own kind.
    assert encoded("a a") == ["a", "▁a"]
    # Tokens that are not made by joining are cut out, the longest first.
    assert encoded("\n\n\n\n") == ["\n\n\n", "\n"]
    assert encoded("aa<b><b>") == ["a", "a<b>", "<b>"]
    assert encoded("<turn>ab<turn>") == ["<turn>", "ab", "<turn>"]
    # What is no token becomes the bytes of UTF-8.
    assert encoded("a€") == ["a", "<0xE2>", "<0x82>", "<0xAC>"]
    assert tokenizer.decode(tokenizer.encode("<turn>a €\n\n<b>")) == "a €\n\n<b>"
    assert tokenizer.decode([IDS["<0xE2>"], IDS["a"]]) == "\ufffda"
    assert tokenizer.ends == {IDS["<eos>"], IDS["<end_of_turn>"]}


def test_another_kind_of_tokens_is_refused() -> None:
    with pytest.raises(CheckpointError, match="expected 'llama', got 'gpt2'"):
        Tokenizer(METADATA | {"tokenizer.ggml.model": "gpt2"})


@pytest.mark.parametrize("key", METADATA)
def test_a_vocabulary_that_lacks_a_part_is_refused(key: str) -> None:
    metadata = {name: value for name, value in METADATA.items() if name != key}
    with pytest.raises(CheckpointError, match=f"metadata '{key}': expected "):
        Tokenizer(metadata)
