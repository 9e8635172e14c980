"""The products of a run of Gemma 3 one by one: what each was fed, and its digest, in a file.

The model runs on the host. But a GPU computes each product again from what the host's was fed,
alone, in pieces and together, and all digests are those of the host.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

import planq
from gemma3_attention import BIT_EXACT
from gemma3_model import TOGETHER, Launch, Model, Part, Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Array = np.ndarray[Any, Any]
# Tokens at a time.
WAYS = {"alone": 1, "7 at a time": 7, "32 at a time": 32}


class Fed(NamedTuple):
    """What products of one input were fed, and the digest of each, over the rows of all tokens."""

    operands: dict[str, Array]
    digests: dict[str, str]


# --- On the host


class Recorder:
    """Keeps what a model's products are fed, and digests what they compute."""

    def __init__(self) -> None:
        self._fed: dict[str, dict[str, list[Array]]] = defaultdict(lambda: defaultdict(list))
        self._digests: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(hashlib.sha256))

    def __call__(self, launch: Launch) -> None:
        """As `Model.watch`."""
        for operand, rows in launch.fed.items():
            self._fed[launch.name][operand].append(rows.copy())
        for product, rows in launch.results.items():
            self._digests[launch.name][product].update(np.ascontiguousarray(rows))

    def found(self) -> dict[str, Fed]:
        """By the names of launches."""
        return {
            name: Fed(
                {operand: np.concatenate(pieces) for operand, pieces in operands.items()},
                {product: each.hexdigest() for product, each in self._digests[name].items()},
            )
            for name, operands in self._fed.items()
        }


def recorded(model: Model, prompt: Sequence[int], tokens: int) -> dict[str, Fed]:
    """Of a prompt in one step, and of so many tokens that follow it greedily."""
    text = Text(model.sizes, len(prompt) + tokens)
    model.watch = recorder = Recorder()
    token = int(model.step([Part(text, prompt, asked=len(prompt))])[-1].argmax())
    for _ in range(tokens):
        token = int(model.step([Part(text, [token])])[0].argmax())
    model.watch = None
    return recorder.found()


def write(path: Path, record: Mapping[str, Fed]) -> None:
    """Arrays as they are, and the digests as JSON."""
    digests = json.dumps({name: fed.digests for name, fed in record.items()})
    arrays = {
        f"{name}/{operand}": rows
        for name, fed in record.items()
        for operand, rows in fed.operands.items()
    }
    with path.open("wb") as file:
        np.savez_compressed(file, digests=np.array(digests), **arrays)


def read(path: Path) -> dict[str, Fed]:
    """What `write` wrote."""
    operands: dict[str, dict[str, Array]] = defaultdict(dict)
    with np.load(path, allow_pickle=False) as file:
        digests: dict[str, dict[str, str]] = json.loads(str(file["digests"]))
        for key in file.files:
            name, _, operand = key.partition("/")
            if operand:
                operands[name][operand] = file[key]
    return {name: Fed(operands[name], each) for name, each in digests.items()}


# --- Elsewhere


class Device(Protocol):
    """Where products are computed again."""

    stream: Any
    places: dict[str, Any]  # what `plan.empty_outputs` takes

    def put(self, array: Array) -> Any:
        """An array there."""

    def get(self, tensor: Any) -> Array:
        """The other way."""


class Host:
    """This processor."""

    stream: Any = planq.HOST

    def __init__(self) -> None:
        self.places: dict[str, Any] = {"library": np}

    def put(self, array: Array) -> Array:
        return array

    def get(self, tensor: Array) -> Array:
        return tensor


class Cuda:
    """A GPU, through torch."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch = torch
        self.stream = torch.cuda.current_stream(torch.device(device))
        self.places: dict[str, Any] = {"library": torch, "device": device}

    def put(self, array: Array) -> Any:
        return self._torch.from_numpy(np.array(array)).to(self.places["device"])

    def get(self, tensor: Any) -> Array:
        made: Array = tensor.cpu().numpy()
        return made


class Again:
    """A plan for products that were recorded, with its weights.

    Args:
        device: Where it runs.
        desc: Of `linear_gguf` or `linear_gguf_merged`, for any number of tokens.
        weights: One, or those of a list.
    """

    def __init__(self, device: Device, desc: Any, weights: Sequence[Array]) -> None:
        self.device, self.plan = device, planq.Plan.select(device.stream, desc, BIT_EXACT)
        placed = [device.put(weight) for weight in weights]
        self.merged = isinstance(desc, planq.LinearGgufMergedDescriptor)
        self.weight = placed if self.merged else placed[0]

    def rows(self, operands: Mapping[str, Any]) -> Any:
        """The results for some tokens."""
        kind = planq.LinearGgufMergedArgs if self.merged else planq.LinearGgufArgs
        tokens = len(operands["input"])
        made = self.plan.empty_outputs(**self.device.places, tokens=tokens)
        workspace = self.plan.empty_workspace(**self.device.places, tokens=tokens)
        self.plan.run(self.device.stream, workspace, kind(weight=self.weight, **operands, **made))
        return made["output"]

    def computed(self, operands: Mapping[str, Array], at_a_time: int) -> Array:
        """The results for all tokens, so many at a time."""
        placed = {name: self.device.put(rows) for name, rows in operands.items()}
        count = len(operands["input"])
        pieces = [
            self.rows({name: rows[at : at + at_a_time] for name, rows in placed.items()})
            for at in range(0, count, at_a_time)
        ]
        return np.concatenate([self.device.get(piece) for piece in pieces])


def plans_of(model: Model, device: Device, name: str) -> Iterator[tuple[Again, dict[str, slice]]]:
    """Plans for a recorded launch, and the columns that each product has in their results.

    Products that are one on the host are computed as one, and each by itself.
    """
    desc: Any = model.plans[name].descriptor
    layer, _, together = name.rpartition(".")
    if together not in TOGETHER:
        yield Again(device, desc, [model.weights[f"{name}.weight"]]), {name: slice(None)}
        return
    products = {each: f"{layer}.{each}" for each in TOGETHER[together]}
    weights = {each: model.weights[f"{product}.weight"] for each, product in products.items()}
    columns = {products[each]: model.columns[together][each] for each in products}
    yield Again(device, desc, list(weights.values())), columns
    for (each, product), kind in zip(products.items(), desc.types, strict=True):
        own = planq.LinearGgufDescriptor(
            input_shape=desc.input_shape,
            weight_shape=(len(weights[each]), desc.input_shape[-1]),
            type=kind,
            input_dtype=desc.input_dtype,
            output_dtype=desc.output_dtype,
        )
        yield Again(device, own, [weights[each]]), {product: slice(None)}


def differing(model: Model, record: Mapping[str, Fed], device: Device) -> dict[str, list[str]]:
    """Of each way to compute them, the products whose digests are not those of the record."""
    found: dict[str, list[str]] = {way: [] for way in WAYS}
    for name, fed in record.items():
        for again, columns in plans_of(model, device, name):
            for way, at_a_time in WAYS.items():
                rows = again.computed(fed.operands, at_a_time)
                for product, own in columns.items():
                    digest = hashlib.sha256(np.ascontiguousarray(rows[:, own])).hexdigest()
                    if digest != fed.digests[product]:
                        found[way].append(product)
    return found


def told(record: Mapping[str, Fed], found: Mapping[str, Sequence[str]], where: str) -> list[str]:
    """A line for each way."""
    count = sum(len(fed.digests) for fed in record.values())
    return [
        f"{where}, {way}: {count - len({*names})} of {count} products have the same digest"
        for way, names in found.items()
    ]
