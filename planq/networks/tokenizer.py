"""Tokens of a text, by the vocabulary in a GGUF file whose `tokenizer.ggml.model` is "llama".

Neighbours join as long as what they make is a token, that of the largest score first. The ids are
those of llama.cpp.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from planq.checkpoint.failure import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SPACE = "▁"  # what stands for a space in tokens
CONTROL, USER_DEFINED, BYTE = 3, 4, 6


class Tokenizer:
    """The vocabulary, and both directions.

    Attributes:
        first: The token that every text begins with.
        ends: Those that end a text.

    Raises:
        CheckpointError: The vocabulary is of another kind, or a part of it is missing.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        model = metadata.get("tokenizer.ggml.model")
        if model != "llama":
            told = f"metadata 'tokenizer.ggml.model': expected 'llama', got {model!r}"
            raise CheckpointError(told)
        self.tokens: list[str] = _value(metadata, "tokens")
        self.scores: list[float] = np.asarray(_value(metadata, "scores")).tolist()
        self.kinds: list[int] = np.asarray(_value(metadata, "token_type")).tolist()
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        whole = (i for i, kind in enumerate(self.kinds) if kind in (CONTROL, USER_DEFINED))
        self.whole = sorted(whole, key=lambda i: -len(self.tokens[i]))
        self.first = int(_value(metadata, "bos_token_id"))
        self.ends = {int(_value(metadata, "eos_token_id"))}
        self.ends |= {self.ids[turn] for turn in ("<end_of_turn>",) if turn in self.ids}

    def encode(self, text: str) -> list[int]:
        """The ids of a text, the first token before them.

        Control tokens and those that users defined are cut out first, the longest before others.
        """
        parts: list[str | int] = [text]
        for i in self.whole:
            if self.tokens[i] in text:
                parts = [piece for part in parts for piece in self._cut(part, i)]
        found = [self.first]
        for part in parts:
            found += [part] if isinstance(part, int) else self._joined(part.replace(" ", SPACE))
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; control tokens have none."""
        return self.bytes_of(ids).decode(errors="replace")

    def bytes_of(self, ids: Iterable[int]) -> bytes:
        """The same in UTF-8; a letter may be several tokens, each with a byte of it."""
        made = bytearray()
        for i in ids:
            token, kind = self.tokens[i], self.kinds[i]
            if kind == BYTE:
                made.append(int(token[1:-1], 16))
            elif kind != CONTROL:
                made += token.replace(SPACE, " ").encode()
        return bytes(made)

    def _cut(self, part: str | int, token: int) -> Iterable[str | int]:
        """The pieces between occurrences of a token, and these."""
        if isinstance(part, int):
            return [part]
        pieces: list[str | int] = []
        for piece in part.split(self.tokens[token]):
            pieces += [piece, token] if piece else [token]
        return pieces[:-1]

    def _joined(self, text: str) -> list[int]:
        """Of a text without such tokens: joins its characters; bytes are what is no token."""
        parts = list(text)
        after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
        queue: list[tuple[float, int, str]] = []

        def offer(left: int) -> None:
            if left >= 0 and after[left] < len(parts):
                joined = parts[left] + parts[after[left]]
                if (token := self.ids.get(joined)) is not None:
                    heapq.heappush(queue, (-self.scores[token], left, joined))

        for left in range(len(parts)):
            offer(left)
        while queue:
            _, left, joined = heapq.heappop(queue)
            right = after[left]
            # One of the two may have joined another since.
            if not parts[left] or right == len(parts) or parts[left] + parts[right] != joined:
                continue
            parts[left], parts[right] = joined, ""
            after[left] = after[right]
            if after[left] < len(parts):
                before[after[left]] = left
            offer(before[left])
            offer(left)
        return [token for part in parts if part for token in self._tokens(part)]

    def _tokens(self, part: str) -> list[int]:
        token = self.ids.get(part)
        if token is not None:
            return [token]
        return [self.ids[f"<0x{byte:02X}>"] for byte in part.encode()]


def _value(metadata: Mapping[str, Any], name: str) -> Any:
    """What a file says of its vocabulary.

    Raises:
        CheckpointError: It does not say it.
    """
    key = f"tokenizer.ggml.{name}"
    if key not in metadata:
        raise CheckpointError(f"metadata {key!r}: expected a part of the vocabulary, got nothing")
    return metadata[key]
