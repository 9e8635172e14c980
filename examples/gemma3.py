"""Gemma 3 from a GGUF file, its products on the file's own blocks: text, speed, and one digest.

    python gemma3.py MODEL.gguf [--prompt "The capital of France is"] [--tokens 32] [--threads 2]
    python gemma3.py MODEL.gguf --check
    python gemma3.py MODEL.gguf --record FILE
    python gemma3.py MODEL.gguf --verify FILE [--device cuda]

The first continues a prompt greedily, on the host. It prints how many tokens a second the prompt
and the text took, and a digest of the results of all products: it is the same on every machine.
--check continues 32 prompts together, and computes their texts again in other ways: one digest, and
log-probabilities near those of a program in float32. Exit status: 0 if that is so.

--record keeps what every product of a prompt of 32 tokens, and of 32 tokens after it, is fed, and
the digest of what it computes: some megabytes. --verify computes each of these products again, on
the host or on a GPU, for a token alone, for 7 and for 32 at a time. Exit status: 0 if all digests
are those of the record. `drawn` in the place of the file is a model that needs none, of the same
shapes and types: see gemma3_drawn.py.

gemma3_model.py beside this program has the plans, gemma3_attention.py those of attention,
gemma3_tokenizer.py the tokens, gemma3_check.py the comparison, gemma3_products.py the record.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import gemma3_check
import gemma3_products
import planq
from gemma3_drawn import Drawn
from gemma3_model import Model, Part, Text
from gemma3_tokenizer import Tokenizer
from planq.checkpoint import read_gguf

if TYPE_CHECKING:
    from collections.abc import Sequence


class Speed(NamedTuple):
    """How many tokens took how long, without the time of digests."""

    tokens: int
    seconds: float

    def __str__(self) -> str:
        rate = self.tokens / self.seconds
        return f"{self.tokens} tokens in {self.seconds:.3f} s, {rate:.1f} tokens a second"


class Clock:
    """Measures a model's steps."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.start = time.perf_counter() - model.digesting

    def speed(self, tokens: int) -> Speed:
        """Of so many tokens since the clock was made."""
        return Speed(tokens, time.perf_counter() - self.model.digesting - self.start)


def complete(model: Model, tokenizer: Tokenizer, prompt: str, most: int) -> None:
    """Continues a prompt, up to a token that ends it, and prints what came of it."""
    ids = tokenizer.encode(prompt)
    text = Text(model.sizes, len(ids) + most, digested=True)
    clock = Clock(model)
    for at in range(0, len(ids), model.rows):
        logits = model.step([Part(text, ids[at : at + model.rows])])
    read, made = clock.speed(len(ids)), [int(logits[0].argmax())]
    clock = Clock(model)
    while len(made) < most and made[-1] not in tokenizer.ends:
        made.append(int(model.step([Part(text, made[-1:])])[0].argmax()))
    written = clock.speed(len(made) - 1)
    print(f"{prompt}{tokenizer.decode(made)}\n")
    print(f"prompt: {read}")
    if len(made) > 1:
        print(f"text: {written}")
    print(f"digest of all products: {text.digest()}")


# Tokens of a record: those of a prompt, and those that follow it.
RECORDED = 32


def of_products(model: Model, prompt: Sequence[int], given: argparse.Namespace) -> int:
    """Records products, or computes them again."""
    if given.record:
        record = gemma3_products.recorded(model, prompt, RECORDED)
        gemma3_products.write(given.record, record)
        products = sum(len(fed.digests) for fed in record.values())
        print(f"{products} products of {len(prompt) + RECORDED} tokens")
    return compare(model, given) if given.verify else 0


def compare(model: Model, given: argparse.Namespace) -> int:
    """Computes recorded products again."""
    record = gemma3_products.read(given.verify)
    host = given.device == "host"
    device = gemma3_products.Host() if host else gemma3_products.Cuda(given.device)
    found = gemma3_products.differing(model, record, device)
    print("\n".join(gemma3_products.told(record, found, given.device)))
    return 1 if any(found.values()) else 0


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run Gemma 3 from a GGUF file.")
    parser.add_argument("model", help="the file, or 'drawn'")
    parser.add_argument("--prompt", default="The capital of France is", help="what to continue")
    parser.add_argument("--tokens", type=int, default=32, help="how many are made at most")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the host")
    parser.add_argument("--check", action="store_true", help="compare 32 texts instead")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep products in a file")
    parser.add_argument("--verify", type=Path, metavar="FILE", help="compute such products again")
    parser.add_argument("--device", default="host", help="where: host, or cuda")
    given = parser.parse_args(words)
    stream = planq.host_stream(threads=given.threads)
    if given.model == "drawn":
        if not (given.record or given.verify):
            parser.error("a drawn model has no tokens: it takes --record or --verify")
        return of_products(Model(Drawn(), stream=stream), range(RECORDED), given)
    with read_gguf(given.model) as files:
        model = Model(files, stream=stream)
        tokenizer = Tokenizer(files.metadata)
        if given.record or given.verify:
            ids = tokenizer.encode(given.prompt)
            return of_products(model, (ids * RECORDED)[:RECORDED], given)
        if given.check:
            return gemma3_check.main(model, tokenizer, files, given.tokens)
    complete(model, tokenizer, given.prompt, given.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
