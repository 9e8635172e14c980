"""The command line of the programs beside it, and the file that --record writes and --check reads.

    python PROGRAM FOLDER [--record FILE]
    python PROGRAM --check FILE [--device cuda]

The folder is the model's: it holds config.json, model.safetensors and tokenizer.json. Needs torch,
safetensors and tokenizers. Where transformers is installed its float32 model is compared with, else
minilm.py's. A machine that has torch alone, and no model, checks what another one recorded.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import minilm

if TYPE_CHECKING:
    from collections.abc import Iterable


class Recording:
    """Products of a run on the host: what they are made of, operands, and digests of the results.

    Attributes:
        lengths: How many tokens each sentence has.
        products: Each as a dictionary: its scheme, its name, its class, arrays and digest.
        arrays: Tensors as they are stored, each once, by digests of their bits.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.products: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}

    def add(self, scheme: minilm.Scheme, fed: minilm.Fed) -> None:
        """Another product."""
        together = minilm.ways(len(self.lengths))["together"]
        entry = {"scheme": scheme.name, "name": fed.name, "kind": type(fed.product).__name__}
        made_of = [self._store(each) for each in fed.product.made_of]
        taken = (x.to(fed.product.takes) for x in fed.operands)
        operands = [self._store(self._without_padding(x)) for x in taken]
        digest = minilm.digest([fed], self.lengths, together, "cpu")
        self.products.append(entry | {"made_of": made_of, "operands": operands, "digest": digest})

    def write(self, file: Path) -> None:
        told = np.array(json.dumps({"lengths": self.lengths, "products": self.products}))
        np.savez_compressed(file, told=told, **self.arrays)

    @classmethod
    def read(cls, file: Path) -> Recording:
        with np.load(file) as stored:
            told = json.loads(str(stored["told"]))
            recording = cls(told["lengths"])
            recording.products = told["products"]
            recording.arrays = {name: stored[name] for name in stored.files if name != "told"}
        return recording

    def fed(self, scheme: minilm.Scheme, entry: dict[str, Any]) -> minilm.Fed:
        """A product again."""
        made_of, operands = (
            tuple(self._load(key) for key in entry[name]) for name in ("made_of", "operands")
        )
        kind = {each.__name__: each for each in scheme.kinds}[entry["kind"]]
        return minilm.Fed(entry["name"], kind(*made_of), operands)

    def _without_padding(self, x: torch.Tensor) -> torch.Tensor:
        """Zeros for the rows beyond each sentence, which take no room."""
        x = x.clone()
        for one, length in enumerate(self.lengths):
            x[one, ..., length:, :] = 0
        return x

    def _store(self, x: torch.Tensor) -> str:
        """The name of an array: first the upper bytes, of which compression leaves less."""
        stored = x.contiguous().view(torch.uint8).numpy().reshape(*x.shape, x.itemsize)
        key = hashlib.sha256(stored).hexdigest()[:16]
        self.arrays.setdefault(key, np.moveaxis(stored, -1, 0)[::-1].copy())
        return key

    def _load(self, key: str) -> torch.Tensor:
        """Bytes stand for what has so many of them: int8, bfloat16 or float32."""
        stored = np.moveaxis(self.arrays[key][::-1], 0, -1).copy()
        dtype = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32}[stored.shape[-1]]
        return torch.from_numpy(stored).view(dtype)[..., 0]


@torch.inference_mode()
def check(schemes: Iterable[minilm.Scheme], file: Path, device: str) -> int:
    """Computes recorded products, and prints how many have the digest that they had on the host."""
    recording, alike = Recording.read(file), True
    for scheme in schemes:
        entries = [each for each in recording.products if each["scheme"] == scheme.name]
        products = [recording.fed(scheme, entry) for entry in entries]
        for way, batches in minilm.ways(len(recording.lengths)).items():
            other = []
            for entry, fed in zip(entries, products, strict=True):
                fed.product.to(device)
                if minilm.digest([fed], recording.lengths, batches, device) != entry["digest"]:
                    other.append(entry["name"])
            same, of = len(entries) - len(other), len(entries)
            print(f"{device}, {scheme.name}, {way}: {same} of {of} products are the host's")
            print(*(f"  another digest: {each}\n" for each in other), sep="", end="")
            alike = alike and bool(entries) and not other
    return 0 if alike else 1


@torch.inference_mode()
def run(schemes: Iterable[minilm.Scheme], folder: Path, record: Path | None) -> int:
    """Computes the model with the products of each scheme, and may record these."""
    batch = minilm.tokenized(folder)
    model, expected = minilm.Encoder(folder), minilm.floating(folder, batch)
    recording, alike = Recording(batch.lengths), True
    for scheme in schemes:
        same, fed = minilm.compare(scheme, model, batch, expected)
        alike = alike and same
        for each in fed if record else ():
            recording.add(scheme, each)
    if record:
        recording.write(record)
    return 0 if alike else 1


def main(schemes: Iterable[minilm.Scheme], words: list[str]) -> int:
    """Does what the command line says, and returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", help="the model's")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the products to it")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compute those of a file")
    parser.add_argument("--device", default="cpu", help="where: cpu or cuda")
    given = parser.parse_args(words)
    if (given.folder is None) == (given.check is None):
        parser.error("expected either the model's folder or --check FILE")
    if given.check:
        return check(schemes, given.check, given.device)
    return run(schemes, given.folder, given.record)
