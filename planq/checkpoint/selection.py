"""Which weights of a model's folder are quantized, and which modules readers leave alone.

The answer of transformers depends on its version, and it may not be installed. So the selection is
made once and recorded in ``planq.json``. ``planq verify`` follows the record.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planq.checkpoint.architecture import (
    KEPT,
    LINEAR,
    MERGED,
    OUTPUT,
    Architecture,
    UnknownArchitectureError,
    read_architecture,
)
from planq.checkpoint.failure import CheckpointError
from planq.checkpoint.formats import (
    OUTPUT_LAYERS,
    Format,
    is_linear,
    modules_of,
    reaching,
)
from planq.checkpoint.layouts import Layout
from planq.checkpoint.schemes import GROUPED, Scheme, is_weight

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from planq.checkpoint.files import TensorEntry
    from planq.checkpoint.job import Job

UNSURE = "unsure: neither name nor shape tells a linear layer"
_SHIELDED = "its reader leaves it alone together with a module of a like name"
# Models whose linear layers have a class of their own; transformers loads their weights as floats.
_OWN_LAYERS = ("falcon", "idefics")
_OWN = "transformers has a class of its own for it"
# Modules that transformers keeps in float32.
_KEPT = re.compile(r"(^|\.)(qformer|wo)\.")
_EXPERT = re.compile(r"\.experts\.\d+\.")
_NAMES = "names and shapes: "


@dataclass(frozen=True, slots=True)
class Selection:
    """What becomes of the weights of two axes of a model, as ``planq.json`` records it.

    Attributes:
        basis: How the kinds of weights were determined: the architecture in transformers, or names
            and shapes alone, and why.
        quantized: The weights that are quantized, in order.
        floating: Why each of the others stays as it is, by name.
        ignored: The modules that readers are told to leave alone, in order.
    """

    basis: str
    quantized: tuple[str, ...]
    floating: Mapping[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the record."""
        return {
            "basis": self.basis,
            "quantized": list(self.quantized),
            "floating": dict(self.floating),
            "ignored": list(self.ignored),
        }

    @property
    def sha256(self) -> str:
        """Digest of the record, which every file of the folder has in its metadata."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_selection(where: str, record: object) -> Selection:
    """Returns the selection that a record holds.

    Args:
        where: The file to name in errors.
        record: What `Selection.to_dict` returned, read from JSON.

    Raises:
        CheckpointError: It holds no selection.
    """
    match record:
        case {
            "basis": str(basis),
            "quantized": [*quantized],
            "floating": dict(floating),
            "ignored": [*ignored],
            **rest,
        } if not rest:
            texts = (*quantized, *floating.values(), *ignored)
            if all(isinstance(text, str) for text in texts):
                return Selection(basis, tuple(quantized), floating, tuple(ignored))
    raise CheckpointError(
        f"{where}: weights: expected basis, quantized, floating and ignored, as planq records them"
    )


def select_weights(
    job: Job, config: Mapping[str, Any], entries: Sequence[TensorEntry]
) -> Selection:
    """Chooses the weights of a model that are quantized.

    Args:
        job: The request, of which the patterns and the format matter.
        config: What ``config.json`` holds.
        entries: The tensors of all its files.
    """
    weights = {entry.name: entry.shape for entry in entries if is_weight(entry)}
    try:
        packed = job.form.layout(job.scheme) is Layout.PACKED
        known = read_architecture(config, weights, job.form.format, packed=packed)
    except UnknownArchitectureError as error:
        return by_names(job, config, entries, str(error))
    why = {name: _why_by_kind(job, name, known.kinds[name]) for name in weights}
    floating = {name: reason for name, reason in why.items() if reason}
    merged = [name for name in weights if known.kinds[name] == MERGED]
    floating |= _floating_merged(job, merged)
    if packed:
        _check_packed(job, known, floating)
    needed = {
        name for name, weight in known.modules.items() if weight is None or weight in floating
    }
    _add_shielded(job.form.format, needed, floating, weights)
    return _selection(job, known.name, weights, floating, needed, _without_base(needed, known))


def by_names(
    job: Job, config: Mapping[str, Any], entries: Sequence[TensorEntry], reason: str
) -> Selection:
    """Chooses weights by names and shapes alone, for instance without transformers.

    Args:
        job: The request.
        config: What ``config.json`` holds. If it names no model type, every weight is quantized
            unless its name speaks against it.
        entries: The tensors of all files.
        reason: Why the architecture is unknown.
    """
    shapes = {entry.name: entry.shape for entry in entries}
    weights = {entry.name: entry.shape for entry in entries if is_weight(entry)}
    why = {
        name: _why_by_name(job, config, name, shape, shapes.get(f"{_module(name)}.bias"))
        for name, shape in weights.items()
    }
    floating = {name: reason for name, reason in why.items() if reason}
    floating |= _floating_merged(job, list(filter(_EXPERT.search, weights)))
    needed = set(modules_of(floating))
    _add_shielded(job.form.format, needed, floating, weights)
    absent = [name for name in OUTPUT_LAYERS if f"{name}.weight" not in weights]
    return _selection(job, _NAMES + reason, weights, floating, needed, absent)


def reason_of(selection: Selection) -> str | None:
    """Why names and shapes alone decided; None if an architecture did."""
    return selection.basis[len(_NAMES) :] if selection.basis.startswith(_NAMES) else None


def _why_by_kind(job: Job, name: str, kind: str) -> str:
    """Why a weight of known kind stays floating; empty if it is quantized."""
    if kind not in (LINEAR, OUTPUT, MERGED):
        return kind
    if kind == OUTPUT and job.default_excludes:
        return OUTPUT
    return job.why_not(name)


def _check_packed(job: Job, known: Architecture, floating: Mapping[str, str]) -> None:
    """Refuses packed codes for a model that transformers cannot load with them."""
    modules = [name for name, weight in known.modules.items() if weight and weight not in floating]
    if not known.loads_packed(modules):
        what = f"transformers cannot load {known.name.split(',')[0]} with packed codes"
        raise CheckpointError(
            f"{job.source}: {what}; choose a scheme of fp8, --activations token or bitsandbytes"
        )


def _why_by_name(
    job: Job,
    config: Mapping[str, Any],
    name: str,
    shape: tuple[int, ...],
    bias: tuple[int, ...] | None,
) -> str:
    """Why a weight of unknown kind stays floating; empty if it is quantized."""
    kind = config.get("model_type")
    lenient = kind is None or not job.default_excludes
    if why := job.why_not(name):
        return why
    if not (lenient or _EXPERT.search(name) or is_linear(name, shape, bias)):
        return UNSURE
    plain_alone = job.form.format is Format.BITSANDBYTES
    if kind in _OWN_LAYERS and (plain_alone or job.form.layout(job.scheme) is Layout.PACKED):
        return _OWN
    return KEPT if plain_alone and _KEPT.search(name) else ""


def _floating_merged(job: Job, merged: Sequence[str]) -> dict[str, str]:
    """Returns which weights stay floating, of those that transformers merges into one tensor.

    It loads merged weights of compressed-tensors in two forms: as packed integers, or as float8
    with a scale per row or per tensor. If other weights of the model are packed, it loads these in
    no other form. In both forms, either all of them are quantized or none.

    Raises:
        CheckpointError: transformers could load them in neither form.
    """
    if job.form.format is not Format.COMPRESSED_TENSORS:
        return dict.fromkeys(merged, MERGED)
    left = [name for name in merged if job.why_not(name)]
    whole = job.scheme not in (Scheme.INT8_CHANNEL, Scheme.INT8_TENSOR, *GROUPED)
    if whole:
        stays = left or job.scheme is Scheme.FP8_BLOCK128
        return dict.fromkeys(merged, MERGED) if stays else {}
    if merged and job.form.layout(job.scheme) is not Layout.PACKED:
        what = f"{merged[0]!r} is {MERGED}, which needs --activations none or a scheme of fp8"
        raise CheckpointError(f"{job.source}: {what}")
    if left:
        what = f"{left[0]!r} is {MERGED}, which needs all of them quantized, or a scheme of fp8"
        raise CheckpointError(f"{job.source}: {what}: {job.why_not(left[0])}")
    return {}


def _add_shielded(
    reader: Format, needed: set[str], floating: dict[str, str], weights: Collection[str]
) -> None:
    """Adds the weights that bitsandbytes' skip list leaves floating because keys match them too.

    A key of the list matches more modules than the one that it names, see `reaching`.
    """
    if reader is not Format.BITSANDBYTES:
        return
    rest = sorted(set(weights) - set(floating))
    while hit := {name for name in rest if not needed.isdisjoint(reaching(_module(name)))}:
        floating |= dict.fromkeys(hit, _SHIELDED)
        needed |= set(map(_module, hit))
        rest = [name for name in rest if name not in hit]


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _without_base(needed: set[str], known: Architecture) -> set[str]:
    """The names of modules in the model without its head."""
    start = f"{known.base}."
    return {name.removeprefix(start) for name in needed} if known.base else set()


def _selection(
    job: Job,
    basis: str,
    weights: Mapping[str, tuple[int, ...]],
    floating: Mapping[str, str],
    needed: set[str],
    also: Collection[str],
) -> Selection:
    """Puts a selection together.

    Modules that need not be on the list of ignored ones are put on it too, unless that would make a
    reader leave a quantized module alone.
    """
    quantized = sorted(set(weights) - set(floating))
    modules = [_module(name) for name in quantized]
    hurting = set(modules)
    if job.form.format is Format.BITSANDBYTES:
        hurting = {key for module in modules for key in reaching(module)}
    named = needed | ({*modules_of(floating), *also} - hurting)
    return Selection(basis, tuple(quantized), dict(sorted(floating.items())), tuple(sorted(named)))
