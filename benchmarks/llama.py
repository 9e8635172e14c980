"""Measures linear_gguf beside ggml, and Gemma 3 beside llama.cpp, on the host.

    python3 benchmarks/llama.py [MODEL.gguf] [--threads 1,2] [--turns 5] [--note TEXT]
        [--json FOLDER]

Without a model, products alone. README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import planq
from harness.core.report import begun
from harness.core.turns import best_of, host_facts, in_process
from harness.native.native import CopyLoop
from harness.peers import ggml
from planq.checkpoint import read_gguf
from planq.networks import machine_of
from planq.networks.gemma3 import Gemma3, Limits

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
ROWS: Final = (1, 8, 512)
SIDE: Final = 4096  # of the weights
COLD: Final = 256_000_000  # bytes of weights that are rotated
LEAST: Final = 0.1  # seconds of a turn
PROMPT, WRITTEN = 512, 64  # tokens


# --- Products


class Weights:
    """The same weights many times over, so that a cache has none of them."""

    def __init__(self, kind: str, numbers: Array) -> None:
        self.kind = kind
        blocks = ggml.quantized(kind, numbers)
        self.sets = np.stack([blocks] * max(2, -(-COLD // blocks.nbytes)))

    def planq_runs(self, x: Array, output: Array, threads: int) -> list[Run]:
        """Of floats: codes are made of them in each run, as ggml makes them."""
        desc = planq.LinearGgufDescriptor(
            input_shape=x.shape,
            weight_shape=(SIDE, SIDE),
            type=self.kind,
            input_dtype="float32",
            output_dtype="float32",
        )
        stream = planq.host_stream(threads)
        plan = planq.Plan.select(stream, desc)
        workspace = plan.empty_workspace(np)
        return [
            partial(
                plan.bind(workspace, planq.LinearGgufArgs(input=x, weight=each, output=output)),
                stream,
            )
            for each in self.sets
        ]


def products(threads: int, turns: int) -> Iterator[dict[str, Any]]:
    """Of every type and number of rows."""
    draw, loop = np.random.default_rng(1), CopyLoop(threads)
    numbers = draw.standard_normal((SIDE, SIDE), np.float32)
    pool = ggml.Threads.of(threads)
    for kind in ggml.NUMBERS:
        weights = Weights(kind, numbers)
        for rows in ROWS:
            x = draw.standard_normal((rows, SIDE), np.float32)
            output = np.empty((rows, SIDE), np.float32)
            peers = peer_products(weights, x)
            contenders: dict[str, Sequence[Run]] = {
                "planq": weights.planq_runs(x, output, threads),
                "read": [partial(loop.read, weights.sets.ctypes.data, weights.sets.nbytes)],
            }
            for name, listed in peers.items():
                contenders[name] = [partial(each.run, pool) for each in listed]
            best = best_of(contenders, turns, LEAST)
            nbytes = weights.sets[0].nbytes
            own = best.pop("planq")
            read = best.pop("read") / len(weights.sets)
            name = min(best, key=lambda peer: best[peer])
            found = peers[name][0].result()
            yield {
                "name": f"{kind}/{rows}x{SIDE}x{SIDE}",
                "threads": threads,
                "us": own * 1e6,
                "gbps": nbytes / own / 1e9,
                "tops": 2 * rows * SIDE**2 / own / 1e12,
                "read_gbps": nbytes / read / 1e9,
                "peer": name,
                "peer_us": best[name] * 1e6,
                "speedup": best[name] / own,
                # Both round activations to codes, with scales of their own.
                "rms_between": float(np.sqrt(np.mean((found - output) ** 2)) / output.std()),
            }
            for listed in peers.values():
                for each in listed:
                    each.close()
    pool.close()


def peer_products(weights: Weights, x: Array) -> dict[str, list[ggml.Product]]:
    """Those of ggml: of the blocks as they are, and in an order of its own where it has one."""
    made = {}
    for name, repacked in (("ggml", False), ("ggml, repacked", True)):
        try:
            made[name] = [
                ggml.Product(weights.kind, each, x, repacked=repacked) for each in weights.sets
            ]
        except ValueError:
            continue
    return made


# --- Gemma 3


def own_rates(network: Gemma3, prompt: list[int]) -> tuple[float, float]:
    """Tokens a second of a prompt, and of those that follow it."""
    text = network.text(PROMPT + WRITTEN + 1)
    tokens = network.continued(text, prompt, WRITTEN + 1)
    begin = time.perf_counter()
    next(tokens)
    middle = time.perf_counter()
    for _ in tokens:
        pass
    end = time.perf_counter()
    text.release()
    return PROMPT / (middle - begin), WRITTEN / (end - middle)


def of_products(network: Gemma3, rows: int, turns: int) -> float:
    """The seconds of a step's products, one after another, the head's of one token."""
    bound = [bound for launch, bound in network.launches(rows) if launch.results]

    def run() -> None:
        for each in bound:
            each(network.machine.stream)

    return best_of({"products": [run]}, turns, LEAST)["products"]


def texts(path: Path, threads: int, turns: int) -> dict[str, Any]:
    """Rates of the model, the best of turns."""
    limits = Limits(rows=PROMPT, texts=1, asked=1, context=PROMPT + WRITTEN + 1)
    with read_gguf(path) as files:
        model = Gemma3(files, machine_of("host", threads), limits)
    peer = ggml.Texts(path, threads, PROMPT + WRITTEN + 64)
    drawn = np.random.default_rng(2).integers(3, model.sizes.vocabulary, PROMPT - 1)
    prompt = [2, *drawn.tolist()]
    own, other = [0.0, 0.0], [0.0, 0.0]
    for turn in range(turns + 1):
        found = own_rates(model, prompt), peer.rates(prompt, WRITTEN)
        if turn:
            own = [max(pair) for pair in zip(own, found[0], strict=True)]
            other = [max(pair) for pair in zip(other, found[1], strict=True)]
    seconds = [of_products(model, rows, turns) for rows in (PROMPT, 1)]
    parts = zip(("prompt", "text"), own, other, seconds, (PROMPT, 1), strict=True)
    return {
        "threads": threads,
        **{
            part: {
                "tokens_per_second": rate,
                "peer_tokens_per_second": peer_rate,
                "speedup": rate / peer_rate,
                "products_share": spent * rate / tokens,
            }
            for part, rate, peer_rate, spent, tokens in parts
        },
    }


# --- The record


def table(found: dict[str, Any]) -> Iterator[str]:
    """What a run prints."""
    for each in found["products"]:
        yield (
            f"{each['name']:24} {each['threads']} threads {each['us']:10.1f} us "
            f"{each['gbps']:6.1f} GB/s (read {each['read_gbps']:5.1f}) {each['tops']:6.3f} TOPS  "
            f"{each['speedup']:5.2f} x {each['peer']}"
        )
    for each in found["texts"]:
        for part in ("prompt", "text"):
            told = each[part]
            yield (
                f"{part:24} {each['threads']} threads {told['tokens_per_second']:8.1f} tokens/s, "
                f"llama.cpp {told['peer_tokens_per_second']:8.1f}: {told['speedup']:5.2f} x, "
                f"products take {told['products_share']:.0%}"
            )


def part_of(part: str, threads: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """What is measured on so many threads."""
    if part == "texts":
        return [texts(given.model, threads, given.turns)]
    return list(products(threads, given.turns))


def in_own_process(part: str, threads: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """The same in a process of its own, where NumPy's library has as many threads and no more."""
    words = [str(given.model)] if given.model else []
    words += ["--threads", str(threads), "--turns", str(given.turns), "--part", part]
    found: list[dict[str, Any]] = in_process(__file__, words, threads)
    return found


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure beside ggml and llama.cpp.")
    parser.add_argument("model", nargs="?", type=Path, help="Gemma 3, a GGUF file")
    parser.add_argument("--threads", default="1,2", help="of the host, several runs")
    parser.add_argument("--turns", type=int, default=5, help="of each measurement; the best counts")
    parser.add_argument("--part", choices=["products", "texts"], help=argparse.SUPPRESS)
    parser.add_argument("--note", help="what the record says of the machine besides")
    parser.add_argument("--json", type=Path, help="the folder of records")
    given = parser.parse_args(words)
    counts = [int(count) for count in given.threads.split(",")]
    if given.part:
        print(json.dumps(part_of(given.part, counts[0], given)))
        return 0
    parts = ("products", "texts") if given.model else ("products",)
    measured: dict[str, list[Any]] = {"products": [], "texts": []}
    for part, count in itertools.product(parts, counts):
        measured[part] += in_own_process(part, count, given)
    print("\n".join(table(measured)))
    if given.json:
        record = {
            **begun(
                words,
                host_facts(),
                xllamacpp=ggml.release(),
                ggml=", ".join(ggml.instructions()),
            ),
            "model": given.model.name if given.model else None,
            "turns": given.turns,
            **({"note": given.note} if given.note else {}),
            "llama": measured,
        }
        file = given.json / "host" / "llama.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
