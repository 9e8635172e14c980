"""The tokenizer of a Hugging Face folder as llama.cpp reads it.

Three kinds are known: pieces with scores (``tokenizer.model`` of SentencePiece, or its BPE with
``byte_fallback``), BPE on bytes with merges, and WordPiece. The package ``gguf`` finds the special
tokens.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from planq.checkpoint.architecture import quietly
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.gguf_models import package
from planq.checkpoint.shards import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from planq.checkpoint.gguf_header import Value

PIECES, JSON, SETTINGS = "tokenizer.model", "tokenizer.json", "tokenizer_config.json"
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)  # of llama.cpp and SentencePiece
_SPACE = "\u2581"
_LOWEST = -1e4

# What separates words before BPE, and llama.cpp's names for it.
_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_OTHERS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    _LETTERS + r"|\p{N}{1,3}" + _OTHERS: "llama-bpe",
    _LETTERS + r"|\p{N}" + _OTHERS: "qwen2",
}


class Token(NamedTuple):
    """A token: its text, its score and what it is for."""

    text: str
    score: float = 0.0
    kind: int = _NORMAL


# Tokens by their numbers, and the metadata beside them.
_Read: TypeAlias = "tuple[dict[int, Token], dict[str, Value]]"


class _TokenizerError(Exception):
    """Says what of a tokenizer is not as expected."""


def read_tokens(folder: Path, arch: str, rows: int) -> dict[str, Value]:
    """Returns the metadata of a tokenizer.

    Args:
        folder: The model's folder.
        arch: llama.cpp's name of the architecture.
        rows: How many rows the embedding has. Rows without a token get one of no use, and tokens
            that are added beyond the rows are left out.

    Raises:
        CheckpointError: There is no tokenizer, or none that llama.cpp has.
        OSError: It cannot be read.
    """
    pieces = folder / PIECES
    path = pieces if pieces.is_file() and arch != "bert" else folder / JSON
    if not path.is_file():
        raise CheckpointError(f"{folder}: holds neither {PIECES} nor {JSON}")
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    try:
        if path == pieces:
            tokens, metadata = _from_pieces(pieces.read_bytes())
            _add(tokens, _added_by_settings(settings), rows, keep_scores=True)
        else:
            tokens, metadata = _from_json(read_json(path), arch, rows)
        listed = _listed(tokens, rows, scored=metadata[_keys().MODEL] == "llama")
    except (
        _TokenizerError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        struct.error,
    ) as error:
        what = (
            error
            if isinstance(error, _TokenizerError)
            else f"damaged: {type(error).__name__}: {error}"
        )
        raise CheckpointError(f"{path}: {what}") from error
    if isinstance(settings.get("add_prefix_space"), bool) and metadata[_keys().MODEL] == "llama":
        metadata[_keys().ADD_PREFIX] = settings["add_prefix_space"]
    return metadata | listed | _special(folder, metadata, rows)


def _keys() -> Any:
    return package().Keys.Tokenizer


def _listed(tokens: dict[int, Token], rows: int, *, scored: bool) -> dict[str, Value]:
    """The arrays of tokens, one for each row."""
    beyond = [number for number in tokens if not 0 <= number < rows]
    if beyond:
        raise _TokenizerError(
            f"expected tokens below {rows}, the rows of the embedding, got {max(beyond)}"
        )
    found = [tokens.get(row, Token(f"[PAD{row}]", _LOWEST, _UNUSED)) for row in range(rows)]
    listed: dict[str, Value] = {
        _keys().LIST: [token.text for token in found],
        _keys().TOKEN_TYPE: np.array([token.kind for token in found], "<i4"),
    }
    if scored:
        listed[_keys().SCORES] = np.array([token.score for token in found], "<f4")
    return listed


def _special(folder: Path, metadata: Mapping[str, Value], rows: int) -> dict[str, Value]:
    """What the package finds: merges, the numbers of special tokens, a chat's template."""
    keys, found = _keys(), {}
    try:
        with quietly():
            special = package().SpecialVocab(
                folder, load_merges=metadata[keys.MODEL] == "gpt2", n_vocab=rows
            )
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"special tokens: {type(error).__name__}: {error}"
        raise CheckpointError(f"{folder}: {what}") from error
    if special.merges:
        found[keys.MERGES] = special.merges
    for kind, number in special.special_token_ids.items():
        key = getattr(keys, f"{kind.upper()}_ID", None)
        if key:
            found[key] = int(number)
    for kind, added in special.add_special_token.items():
        key = getattr(keys, f"ADD_{kind.upper()}", None)
        if key:
            found[key] = added
    if isinstance(special.chat_template, str):
        found[keys.CHAT_TEMPLATE] = special.chat_template
    return found


def _from_json(values: Mapping[str, Any], arch: str, rows: int) -> _Read:
    """Reads a ``tokenizer.json``."""
    model = values["model"]
    kind = model.get("type")
    wanted = "WordPiece" if arch == "bert" else "BPE"
    if kind != wanted:
        raise _TokenizerError(f"model: expected the type {wanted}, got {kind!r}")
    read = _from_merges if model.get("byte_fallback") else _from_bytes
    if arch == "bert":
        read = _from_words
    tokens, metadata = read(values, model)
    listed = values.get("added_tokens") or []
    added = {each["id"]: (each["content"], bool(each.get("special"))) for each in listed}
    _add(tokens, added, rows, keep_scores=read is _from_merges)
    if read is _from_words:
        tokens = {number: _phantom(token) for number, token in tokens.items()}
    return tokens, metadata


def _from_bytes(values: Mapping[str, Any], model: Mapping[str, Any]) -> _Read:
    """BPE on bytes: what separates words has to be one of those that llama.cpp knows."""
    tokens = {number: Token(text) for text, number in model["vocab"].items()}
    return tokens, {_keys().MODEL: "gpt2", _keys().PRE: _split_name(values.get("pre_tokenizer"))}


def _split_name(before: Any) -> str:
    """llama.cpp's name of how text is split into words."""
    steps = [each for each in (before or {}).get("pretokenizers", [before]) if each]
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Split"]
    others = [step for step in steps if step["type"] != "Split"]
    bytewise = bool(others) and all(step["type"] == "ByteLevel" for step in others)
    if bytewise and not patterns and others[0].get("use_regex", True):
        return "gpt-2"
    if bytewise and len(patterns) == 1 and patterns[0] in _SPLITS:
        return _SPLITS[patterns[0]]
    names = ", ".join((*_SPLITS.values(), "gpt-2"))
    raise _TokenizerError(f"pre_tokenizer: expected that of {names}, got {str(before)[:80]}")


def _from_merges(values: Mapping[str, Any], model: Mapping[str, Any]) -> _Read:
    """BPE that came of SentencePiece: a token's score is the rank of the first merge to it."""
    ranks: dict[str, float] = {}
    for rank, merge in enumerate(model["merges"]):
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        ranks.setdefault(first + second, rank)
    unknown = model.get("unk_token")
    tokens = {}
    for text, number in model["vocab"].items():
        kind = _BYTE if re.fullmatch("<0x[0-9A-F]{2}>", text) else _NORMAL
        kind = _UNKNOWN if text == unknown else kind
        tokens[number] = Token(text, float(-ranks.get(text, 1e9)), kind)
    steps = [values.get("normalizer") or {}, values.get("pre_tokenizer") or {}]
    steps += [each for step in steps for each in step.get("normalizers", [])]
    prefixed = any(
        step.get("type") == "Prepend"
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in steps
    )
    return tokens, _of_pieces(prefixed)


def _of_pieces(prefixed: bool) -> dict[str, Value]:
    keys = _keys()
    return {keys.MODEL: "llama", keys.PRE: "default", keys.ADD_PREFIX: prefixed}


def _from_words(values: Mapping[str, Any], model: Mapping[str, Any]) -> _Read:
    """WordPiece."""
    tokens = {number: Token(text) for text, number in model["vocab"].items()}
    return tokens, {_keys().MODEL: "bert", _keys().PRE: "default"}


def _phantom(token: Token) -> Token:
    """A token of WordPiece: llama.cpp marks where words begin, not where they go on."""
    if token.kind == _CONTROL:
        return token
    text = token.text[2:] if token.text.startswith("##") else _SPACE + token.text
    return token._replace(text=text)


def _added_by_settings(settings: Mapping[str, Any]) -> dict[int, tuple[str, bool]]:
    added = settings.get("added_tokens_decoder") or {}
    return {int(key): (each["content"], bool(each.get("special"))) for key, each in added.items()}


def _add(
    tokens: dict[int, Token], added: Mapping[int, tuple[str, bool]], rows: int, *, keep_scores: bool
) -> None:
    """Puts added tokens in; in text, llama.cpp looks for these before all others."""
    for number, (text, special) in added.items():
        if number >= rows and number not in tokens:
            continue
        score = tokens[number].score if keep_scores and number in tokens else 0.0
        if number in tokens and tokens[number].kind in (_UNKNOWN, _BYTE):
            continue
        kind = _CONTROL if special or _looks_special(text) else _USER
        tokens[number] = Token(text.replace(_SPACE, " ") if kind == _USER else text, score, kind)


def _looks_special(text: str) -> bool:
    """Whether a token is one of control, though its file does not say so, as some do not."""
    return text in ("<pad>", "<mask>") or (text.startswith("<|") and text.endswith("|>"))


def _from_pieces(content: bytes) -> _Read:
    """Reads a ``tokenizer.model``: a message of protobuf, whose field 1 is each piece."""
    tokens: dict[int, Token] = {}
    prefixed = True
    for field, value in _fields(content):
        if field == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            text, score, kind = piece[1].decode(), piece.get(2, 0.0), piece.get(3, _NORMAL)
            if not _NORMAL <= kind <= _BYTE:
                raise _TokenizerError(
                    f"piece {len(tokens)}: expected a type from 1 to 6, got {kind}"
                )
            text = text.replace(_SPACE, " ") if kind == _USER else text
            tokens[len(tokens)] = Token(text, score, kind)
        elif field == 3 and isinstance(value, bytes):
            prefixed = dict(_fields(value)).get(3, 1) != 0
    if not tokens:
        raise _TokenizerError("expected pieces of SentencePiece, found none")
    return tokens, _of_pieces(prefixed)


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the fields of a message: numbers, float32 and bytes."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        if tag & 7 == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        if tag & 7 == 2:
            count, at = _varint(content, at)
        else:
            count = {5: 4, 1: 8}.get(tag & 7, len(content) + 1)
        if at + count > len(content):
            raise _TokenizerError(
                f"byte {at}: expected a field of protobuf up to the end of the file"
            )
        piece, at = content[at : at + count], at + count
        yield tag >> 3, struct.unpack("<f", piece)[0] if tag & 7 == 5 else piece


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(content):
            break
        byte, at = content[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _TokenizerError(f"byte {at}: expected a number of protobuf")
