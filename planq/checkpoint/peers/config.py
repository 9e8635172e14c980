"""What ``quantization_config`` of a model says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.shards import CONFIG, ENTRY, read_json
from planq.checkpoint.stored import METADATA_PREFIX
from planq.checkpoint.strict_json import parse
from planq.errors import as_field

if TYPE_CHECKING:
    from collections.abc import Collection

    from planq.checkpoint.shards import Shards

_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """The entry of a config, read key by key.

    Attributes:
        where: The file and the entry, as errors name them.
        values: The entry.
    """

    where: str
    values: dict[str, Any]

    def integer(self, key: str, usual: int | None = None) -> int:
        """Returns a whole number of 64 bits."""
        value = self.values.get(key, usual)
        if type(value) is not int or not -_LARGEST <= value < _LARGEST:
            raise self.refused(key, "a whole number", value)
        return value

    def flag(self, key: str, usual: bool) -> bool:
        """Returns a flag; null counts as its usual value."""
        value = self.values.get(key)
        if value is not None and type(value) is not bool:
            raise self.refused(key, "true or false", value)
        return usual if value is None else value

    def word(self, key: str, known: Collection[str], usual: str | None = None) -> str:
        """Returns one of some words, in small letters; null counts as the usual one."""
        value = self.values.get(key)
        word = usual if value is None else value
        if not isinstance(word, str) or word.lower() not in known:
            raise self.refused(key, " or ".join(known), value)
        return word.lower()

    def objects(self, key: str) -> list[PeerConfig]:
        """Returns the objects that an object holds."""
        value = self.values.get(key)
        if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
            raise self.refused(key, "an object of objects", value)
        where = f"{self.where}.{key}"
        return [PeerConfig(f"{where}.{as_field(name)[:80]}", part) for name, part in value.items()]

    def section(self, key: str) -> PeerConfig:
        """Returns an object."""
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise self.refused(key, "an object", value)
        return PeerConfig(f"{self.where}.{key}", value)

    def refused(self, key: str, expected: str, found: object) -> CheckpointError:
        """Returns the error of a value that is not known."""
        got = "nothing" if found is None else repr(found)[:80]
        return CheckpointError(f"{self.where}.{key}: expected {expected}, got {got}")


def read_config(shards: Shards) -> PeerConfig | None:
    """Returns the entry of a model's config; None where there is none.

    For a file alone, it is what the file's own metadata have, or the ``config.json`` beside it.

    Raises:
        CheckpointError: The config is damaged.
        OSError: It cannot be read.
    """
    path = shards.path
    text = shards.metadata.get(METADATA_PREFIX + ENTRY)
    if text is not None and not path.is_dir():
        try:
            return _entry(f"{path}: metadata ", {ENTRY: parse(text)})
        except ValueError as error:
            raise CheckpointError(f"{path}: metadata {ENTRY}: not JSON: {error}") from error
    config = (path if path.is_dir() else path.parent) / CONFIG
    return _entry(f"{config}: ", read_json(config)) if config.is_file() else None


def _entry(where: str, config: dict[str, Any]) -> PeerConfig | None:
    """The entry, which models of several kinds of input may have in ``text_config``."""
    found = config.get(ENTRY)
    inner = config.get("text_config")
    if found is None and isinstance(inner, dict):
        found = inner.get(ENTRY)
    if found is not None and not isinstance(found, dict):
        raise CheckpointError(f"{where}{ENTRY}: expected an object, got {repr(found)[:80]}")
    return None if found is None else PeerConfig(f"{where}{ENTRY}", found)
