"""What a model's folder holds, and which parts are copied unchanged into a quantized one."""

from __future__ import annotations

import shutil
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.strict_json import parse

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

WEIGHTS = ".safetensors"
# Other formats of the same weights. They are not quantized, so they are not copied.
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".gguf", ".onnx", ".ot", ".index.json")
# The file in which sentence-transformers lists the modules of a model, each in its own folder.
_MODULES = "modules.json"


@dataclass(slots=True)
class Tree:
    """What a folder holds, by relative path with ``/`` as separator, sorted.

    Attributes:
        files: The regular files, and links to regular files.
        folders: The folders.
        others: Broken links, and what is neither file nor folder; also links to folders, unless
            they were followed.
    """

    files: dict[str, Path] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


def walk(folder: Path, *, follow: bool = False, hidden: bool = True) -> Tree:
    """Lists what is in a folder, at any depth.

    Args:
        folder: The folder.
        follow: Whether a link to a folder counts as a folder.
        hidden: Whether to list, and descend into, names that begin with a dot.

    Raises:
        CheckpointError: A link leads back to a folder that it is in.
        OSError: A folder cannot be read.
    """
    tree = Tree()
    ahead: list[tuple[Path, str, tuple[tuple[int, int], ...]]] = [(folder, "", ())]
    while ahead:
        here, start, above = ahead.pop()
        node = here.stat()
        if (node.st_dev, node.st_ino) in above:
            raise CheckpointError(f"{here}: a link back to a folder that it is in")
        for path in here.iterdir():
            name = f"{start}{path.name}"
            if path.name.startswith(".") and not hidden:
                continue
            kind = _kind(path)
            if stat.S_ISREG(kind):
                tree.files[name] = path
            elif stat.S_ISDIR(kind) and (follow or not path.is_symlink()):
                tree.folders.append(name)
                ahead.append((path, f"{name}/", (*above, (node.st_dev, node.st_ino))))
            else:
                tree.others.append(name)
    return Tree(dict(sorted(tree.files.items())), sorted(tree.folders), sorted(tree.others))


def _kind(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:  # a link to nothing, or to itself
        return 0


@dataclass(frozen=True, slots=True)
class Rest:
    """The files and folders of a model's folder that quantizing does not write itself.

    Attributes:
        files: The files that are copied.
        folders: The folders that are made, parents first.
        carried: Those of `files` that hold weights of further modules, in folders of their own.
            They are copied unchanged.
        left_out: Files with weights that are not copied: other formats of the same model, or
            weights that nothing in the folder names.
    """

    files: dict[str, Path]
    folders: list[str]
    carried: tuple[str, ...]
    left_out: tuple[str, ...]


def rest_of(source: Path, made: Collection[str]) -> Rest:
    """Sorts what is in a model's folder; hidden files and folders are skipped silently.

    Args:
        source: The folder.
        made: The files that quantizing writes itself.

    Raises:
        CheckpointError: Something that would be copied is neither a file nor a folder.
        OSError: The folder cannot be read.
    """
    tree = walk(source, follow=True, hidden=False)
    modules = _module_folders(tree)
    shown = {name: path for name, path in tree.files.items() if name not in made}
    weights = [name for name in shown if name.endswith((WEIGHTS, *_OTHER_WEIGHTS))]
    carried = tuple(name for name in weights if name.startswith(modules))
    left_out = tuple(sorted(set(weights) - set(carried)))
    for name in tree.others:
        if name.startswith(modules) or not name.endswith((WEIGHTS, *_OTHER_WEIGHTS)):
            raise CheckpointError(f"{source / name}: neither a file nor a folder")
    return Rest(
        files={name: path for name, path in shown.items() if name not in left_out},
        folders=tree.folders,
        carried=carried,
        left_out=left_out,
    )


def copy_rest(rest: Rest, target: Path) -> None:
    """Makes a new folder, and copies into it what quantizing does not write itself.

    Raises:
        OSError: The system refused.
    """
    target.mkdir()
    for name in rest.folders:
        (target / name).mkdir()
    for name, path in rest.files.items():
        shutil.copyfile(path, target / name)
        shutil.copymode(path, target / name)


def _module_folders(tree: Tree) -> tuple[str, ...]:
    """The folders of further modules beside the model, each with a ``/`` at its end."""
    try:
        listed = parse(tree.files[_MODULES].read_bytes())
    except (KeyError, ValueError):
        return ()
    listed = listed if isinstance(listed, list) else []
    paths = [each.get("path") for each in listed if isinstance(each, dict)]
    named = [path.strip("/") for path in paths if isinstance(path, str)]
    return tuple(f"{path}/" for path in named if path)
