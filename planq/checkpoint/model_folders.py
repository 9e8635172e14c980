"""Model folders: how they are read, and how a new one is made of one that is there.

A new folder is made under a temporary name beside its own, and renamed when it is complete. It
holds ``planq.json``, which has the digests of all other files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planq.checkpoint.failure import CheckpointError, note_output
from planq.checkpoint.files import CheckpointReader, TensorEntry
from planq.checkpoint.shards import CONFIG, ENTRY, INDEX, lost, read_index, read_json, shards_of
from planq.checkpoint.trees import Rest, Tree, rest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SUMMARY = "planq.json"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's folder as it was found.

    Attributes:
        folder: Where it is.
        shards: Its safetensors files, in order.
        entries: The tensors of each.
        places: The shard that the index names for each tensor; None without an index.
        config: What ``config.json`` holds; it has no ``quantization_config``.
        rest: The other files and folders.
    """

    folder: Path
    shards: list[Path]
    entries: dict[str, tuple[TensorEntry, ...]]
    places: dict[str, str] | None
    config: dict[str, Any]
    rest: Rest

    @property
    def tensors(self) -> list[TensorEntry]:
        """The tensors of all shards; if two have one name, the one in the shard of the index."""
        found = {}
        for shard, entries in self.entries.items():
            for entry in entries:
                if entry.name not in found or (self.places or {}).get(entry.name) == shard:
                    found[entry.name] = entry
        return list(found.values())


def read_model_folder(folder: Path) -> ModelFolder:
    """Reads the index, the headers and the config of a model's folder.

    Raises:
        CheckpointError: It is no model's folder, is quantized already, or its index names a file
            or a tensor that is missing.
        OSError: It cannot be read.
    """
    places = read_index(folder)
    shards = shards_of(folder, places)
    config = read_json(folder / CONFIG)
    if config.get(ENTRY) is not None:
        raise CheckpointError(f"{folder / CONFIG}: already quantized")
    entries = {}
    for shard in shards:
        with closing(CheckpointReader(shard)) as reader:
            entries[shard.name] = reader.entries
    for name, shard_name in (places or {}).items():
        if all(entry.name != name for entry in entries[shard_name]):
            raise CheckpointError(lost(folder, name, shard_name))
    made = {CONFIG, SUMMARY, INDEX, *entries}
    return ModelFolder(folder, shards, entries, places, config, rest_of(folder, made))


def check_shards(model: ModelFolder, target: Path) -> None:
    """Refuses a folder without one of the files that it was made of.

    Raises:
        CheckpointError: One is missing.
    """
    for shard in model.shards:
        if not (target / shard.name).is_file():
            raise CheckpointError(f"{target / shard.name}: missing")


def digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    """Returns the SHA-256 of files, by their paths inside a folder; without ``planq.json``."""
    digests = {}
    for name, path in files.items():
        if name != SUMMARY:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return dict(sorted(digests.items()))


def check_folder_target(
    source: Path, target: Path, *, overwrite: bool, inputs: Path | None = None
) -> None:
    """Refuses a folder that may not be made, or not be replaced.

    Args:
        source: The folder that is read.
        target: The folder to make.
        overwrite: Whether a folder that planq made may be replaced.
        inputs: The file of layer inputs that is read, if any.

    Raises:
        CheckpointError: One of them is or holds the other, or the target exists, or holds the
            layer inputs or what a link of the source leads to.
    """
    if inputs is not None and target.resolve() in inputs.resolve().parents:
        raise CheckpointError(f"--layer-inputs: {inputs} is in {target}, and would go with it")
    for path in source.iterdir():
        if path.is_symlink() and target.resolve() in path.resolve().parents:
            raise CheckpointError(f"{path}: a link into {target}, and would go with it")
    if source.resolve() in target.resolve().parents:
        raise CheckpointError(f"{target}: inside the input, which would hold it then")
    if target.resolve() in source.resolve().parents:
        raise CheckpointError(f"{target}: holds the input, which would go with it")
    if not os.path.lexists(target):
        return
    if target.exists() and target.samefile(source):
        raise CheckpointError(f"{target}: the output is the input")
    if not target.is_dir():
        raise CheckpointError(f"{target}: exists and is not a folder")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise CheckpointError(f"{target}: exists; --force replaces it")
    if not (target / SUMMARY).is_file():
        raise CheckpointError(f"{target}: holds no {SUMMARY}, so planq did not make it")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yields the path of a folder to make, which gets its name when the ``with`` block ends.

    If the target is a link to a folder, the new folder replaces the folder that it points to, and
    the link stays. If the block raises, nothing is left.

    Raises:
        OSError: The system refused.
    """
    final = target.resolve()
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = final.with_name(f".planq-{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        yield partial
        old = _give_name(final, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    note_output(target)
    if old is not None:
        _remove(old)


def json_text(values: Mapping[str, Any]) -> str:
    """Returns the text of a JSON file of a folder."""
    return json.dumps(values, indent=2) + "\n"


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes a JSON file of a folder."""
    path.write_text(json_text(values), encoding="utf-8")


def digest_of(files: Mapping[str, str]) -> str:
    """Returns one digest over the digests of files."""
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _give_name(target: Path, partial: Path) -> Path | None:
    """Renames the new folder to the target; returns where the replaced one is now, if any."""
    if not os.path.lexists(target):
        partial.rename(target)
        return None
    old = partial.with_suffix(".replaced")
    target.rename(old)
    try:
        partial.rename(target)
    except BaseException:  # also a signal
        if not os.path.lexists(target):
            old.rename(target)
        raise
    return old


def _remove(old: Path) -> None:
    """Removes the folder that was replaced, when the new one is complete."""
    try:
        shutil.rmtree(old)
    except OSError as error:
        what = f"what it replaced is still there, as {old}"
        raise CheckpointError(f"{what}: {error.strerror or error}") from error


def other_files(
    model: ModelFolder, wanted: dict[str, str], found: Tree, digests: Mapping[str, str]
) -> dict[str, str]:
    """Says what differs beside the safetensors files, by path.

    Args:
        model: The source.
        wanted: The digests of all other files but ``planq.json``.
        found: What the output holds.
        digests: The digests of its files.
    """
    differing = {
        name: "missing" if name not in digests else "other bytes"
        for name, digest in wanted.items()
        if digests.get(name) != digest
    }
    extra = {*digests, *found.folders, *found.others}
    extra -= {*wanted, *model.entries, *model.rest.folders}
    differing |= dict.fromkeys(sorted(extra), "should not be there")
    lost = {*model.rest.folders} - {*found.folders}
    return differing | dict.fromkeys(sorted(lost), "missing")


def summary_difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Says which fields of ``planq.json`` are not as planq writes them; empty if all are."""
    unknown = sorted(found.keys() - expected.keys())
    if unknown:
        return f"unknown fields: {', '.join(unknown)}"
    if any(found.get(field) != expected[field] for field in ("files", "digest")):
        return "other digests than those of the files"
    if found.get("planq") != expected["planq"]:
        return "planq: another version or build than its files name"
    other = [field for field in expected if found.get(field) != expected[field]]
    return f"{', '.join(other)}: not as planq writes it" if other else ""
