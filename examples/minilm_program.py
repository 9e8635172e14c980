"""The command line of the programs beside it, and the file of activations that --record writes.

    python PROGRAM FOLDER [--record NAME.npz]
    python PROGRAM --check NAME.npz [--device cuda]
    python PROGRAM --check NAME.json [--device cuda]

The folder is the model's: it holds config.json, model.safetensors and tokenizer.json. Needs torch,
safetensors and tokenizers. Where transformers is installed its float32 model is compared with, else
minilm_torch.py's. A machine that has torch alone, and no model, checks what another one recorded.

--record writes two files: NAME.npz has weights and activations, and NAME.json the digests that
minilm_record.py tells of. --check of the latter makes hashed numbers in the place of activations;
where NAME.npz is beside it, it computes these too. Exit status: 0 where every product has the
digest of the record, 1 where one has another, 2 where NAME.npz holds other activations.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import minilm_record
import minilm_torch
from minilm_record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable


class Recording:
    """Products of a run on the host: what they are made of, operands, and digests of the results.

    Attributes:
        lengths: How many tokens each sentence has.
        schemes: Of each, the digest of all its results.
        products: Each as a dictionary: its scheme, its name, its class, arrays and digest.
        arrays: Tensors as they are stored, each once, by digests of their bits.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.schemes: dict[str, dict[str, str]] = {}
        self.products: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, scheme: minilm_torch.Scheme, products: list[minilm_torch.Fed]) -> None:
        """Those of another scheme."""
        together = minilm_torch.ways(len(self.lengths))["together"]
        found = minilm_torch.digests(products, self.lengths, together, "cpu")
        self.schemes[scheme.name] = {"digest": found.every}
        for fed, digest in zip(products, found.each, strict=True):
            entry = {"scheme": scheme.name, "name": fed.name, "kind": type(fed.product).__name__}
            operands = (
                minilm_record.without_padding(x.to(fed.product.takes), self.lengths, square=square)
                for x, square in zip(fed.operands, fed.product.squares[:-1], strict=True)
            )
            entry |= {"made_of": [self._store(each) for each in fed.product.made_of]}
            self.products.append(
                entry | {"operands": [self._store(x) for x in operands], "digest": digest}
            )

    def told(self) -> dict[str, Any]:
        """All but the arrays."""
        return {"lengths": self.lengths, "schemes": self.schemes, "products": self.products}

    def record(self, schemes: Iterable[minilm_torch.Scheme]) -> Record:
        """The digests, and those of hashed numbers."""
        tensors = {key: self._load(key) for key in self.arrays}
        return Record.made(schemes, copy.deepcopy(self.told()), tensors)

    def is_of(self, record: Record) -> bool:
        """Whether it has, to the bit, the numbers that a record has digests of."""
        arrays = {key: minilm_record.digest(self._load(key)) for key in self.arrays}
        return set(arrays) == set(record.told["arrays"]) and all(
            key == found for key, found in arrays.items()
        )

    def write(self, file: Path) -> None:
        np.savez_compressed(file, told=np.array(json.dumps(self.told())), **self.arrays)

    @classmethod
    def read(cls, file: Path) -> Recording:
        with np.load(file) as stored:
            told = json.loads(str(stored["told"]))
            recording = cls(told["lengths"])
            recording.schemes, recording.products = told["schemes"], told["products"]
            recording.arrays = {name: stored[name] for name in stored.files if name != "told"}
        return recording

    def fed(self, scheme: minilm_torch.Scheme) -> list[minilm_torch.Fed]:
        """The products of a scheme again."""
        kinds = {each.__name__: each for each in scheme.kinds}
        return [
            minilm_torch.Fed(
                entry["name"],
                kinds[entry["kind"]](*(self._load(key) for key in entry["made_of"])),
                tuple(self._load(key) for key in entry["operands"]),
            )
            for entry in self.products
            if entry["scheme"] == scheme.name
        ]

    def _store(self, x: torch.Tensor) -> str:
        """The name of an array: first the upper bytes, of which compression leaves less."""
        stored = x.contiguous().view(torch.uint8).numpy().reshape(*x.shape, x.itemsize)
        key = minilm_record.digest(x)
        self.arrays.setdefault(key, np.moveaxis(stored, -1, 0)[::-1].copy())
        return key

    def _load(self, key: str) -> torch.Tensor:
        """Bytes stand for what has so many of them: bfloat16 or float32."""
        stored = np.moveaxis(self.arrays[key][::-1], 0, -1).copy()
        dtype = {2: torch.bfloat16, 4: torch.float32}[stored.shape[-1]]
        return torch.from_numpy(stored).view(dtype)[..., 0]


def alike(
    scheme: minilm_torch.Scheme,
    products: list[minilm_torch.Fed],
    told: dict[str, Any],
    part: str,
    device: str,
) -> bool:
    """Whether products have their digests on a device, having printed how many do.

    Args:
        scheme: Theirs.
        products: With operands.
        told: What a record tells.
        part: Which digests of it: `digest` or `hashed`.
        device: Where to compute.
    """
    expected = [each[part] for each in told["products"] if each["scheme"] == scheme.name]
    for fed in products:
        fed.product.to(device)
    same = bool(products)
    for way, batches in minilm_torch.ways(len(told["lengths"])).items():
        found = minilm_torch.digests(products, told["lengths"], batches, device)
        pairs = zip(products, found.each, expected, strict=True)
        other = [fed.name for fed, here, there in pairs if here != there]
        right, of = len(products) - len(other), len(products)
        print(f"{device}, {scheme.name}, {way}: {right} of {of} products are the host's")
        print(*(f"  another digest: {each}\n" for each in other), sep="", end="")
        same = same and not other
        if products and found.every != told["schemes"][scheme.name][part]:
            print(f"  digest of all: {found.every}")
            same = False
    rows = minilm_torch.rows_alone(products, told["lengths"], device)
    print(f"{device}, {scheme.name}, rows alone: {rows}")
    return same and not rows.other


@torch.inference_mode()
def check(schemes: Iterable[minilm_torch.Scheme], file: Path, device: str) -> int:
    """Computes recorded products, and prints how many have the digest that they had on the host."""
    recording = Recording.read(file)
    told = recording.told()
    found = [alike(each, recording.fed(each), told, "digest", device) for each in schemes]
    return 0 if all(found) else 1


@torch.inference_mode()
def check_record(schemes: Iterable[minilm_torch.Scheme], file: Path, device: str) -> int:
    """The same of hashed numbers, and of the activations where they are beside the record."""
    record, activations = Record.read(file), file.with_suffix(".npz")
    told = record.told
    print(*(f"recorded: {name} {value}" for name, value in told["machine"].items()), sep="\n")
    print("of hashed numbers:")
    found = [alike(each, record.fed(each), told, "hashed", device) for each in schemes]
    digests = {name: each["hashed"] for name, each in told["schemes"].items()}
    print(*(f"record, {name}: {each}" for name, each in digests.items()), sep="\n")
    if not activations.exists():
        return 0 if all(found) else 1
    recording = Recording.read(activations)
    if not recording.is_of(record):
        print(f"no answer for the activations: {activations} has others than the record")
        return 2 if all(found) else 1
    print("of the activations:")
    found += [alike(each, recording.fed(each), told, "digest", device) for each in schemes]
    digests = {name: each["digest"] for name, each in told["schemes"].items()}
    print(*(f"record, {name}: {each}" for name, each in digests.items()), sep="\n")
    return 0 if all(found) else 1


@torch.inference_mode()
def run(schemes: Iterable[minilm_torch.Scheme], folder: Path, record: Path | None) -> int:
    """Computes the model with the products of each scheme, and may record these."""
    batch = minilm_torch.tokenized(folder)
    model, expected = minilm_torch.Encoder(folder), minilm_torch.floating(folder, batch)
    recording, one = Recording(batch.lengths), True
    for scheme in schemes:
        same, fed = minilm_torch.compare(scheme, model, batch, expected)
        one = one and same
        if record:
            recording.add(scheme, fed)
    if record:
        recording.write(record)
        recording.record(schemes).write(record.with_suffix(".json"))
    return 0 if one else 1


def main(schemes: Iterable[minilm_torch.Scheme], words: list[str]) -> int:
    """Does what the command line says, and returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", help="the model's")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write the products to it (.npz), and their digests beside it (.json)",
    )
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="compute those of a file: .npz, or .json"
    )
    parser.add_argument("--device", default="cpu", help="where: cpu or cuda")
    given = parser.parse_args(words)
    if (given.folder is None) == (given.check is None):
        parser.error("expected either the model's folder or --check FILE")
    if given.record and given.record.suffix != ".npz":
        parser.error(f"--record: expected a name that ends in .npz, got {given.record}")
    if given.check:
        checks = check_record if given.check.suffix == ".json" else check
        return checks(schemes, given.check, given.device)
    return run(schemes, given.folder, given.record)
