"""Perplexity of a text by planq and by llama.cpp, on the same GGUF file of Gemma 3.

    python3 benchmarks/perplexity.py MODEL.gguf TEXT [--tokens 512] [--device cuda] [--threads 2]

It is e to the mean of -log p of each token after those before it, the first one aside. Both
programs are given the same tokens. Exit status: 0 if the two are within 2 % of one another.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from planq.checkpoint import read_gguf
from planq.networks import machine_of
from planq.networks.gemma3 import Gemma3, Limits, Part
from planq.networks.tokenizer import Tokenizer

Array = np.ndarray[Any, Any]
MOST = 0.02
# Tokens whose logits are made in a step.
PIECE = 64
# A token with so much more is chosen, whatever its own probability; llama.cpp tells this one.
CHOSEN = 1e6


def own_logarithms(network: Gemma3, ids: list[int]) -> Array:
    """The logarithm of the probability of each token but the first, by planq."""
    text, found = network.text(len(ids)), list[float]()
    for at in range(0, len(ids) - 1, PIECE):
        piece = ids[at : min(at + PIECE, len(ids) - 1)]
        following = ids[at + 1 : at + 1 + len(piece)]
        logits = network.step([Part(text, piece, len(piece))], logits=True).logits()
        for row, token in zip(logits.astype(np.float64), following, strict=True):
            most = row.max()
            found.append(row[token] - most - np.log(np.exp(row - most).sum()))
    text.release()
    return np.array(found)


class Peer:
    """llama.cpp with a file, out of the package xllamacpp.

    Args:
        path: The file.
        threads: Of its products.
        context: The most tokens of a text.
    """

    def __init__(self, path: Path, threads: int, context: int) -> None:
        import xllamacpp  # which says much about itself

        options = xllamacpp.CommonParams()
        options.model.path = str(path)
        options.n_ctx, options.n_parallel, options.n_gpu_layers = context, 1, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
        options.warmup, options.verbosity = False, -1
        options.swa_full = True  # what was read stays, so that one token goes on from it
        self._server = xllamacpp.Server(options)

    def logarithms(self, ids: list[int]) -> Array:
        """The same by llama.cpp: each token is forced, and its own probability told."""
        return np.array([self._logarithm(ids[:at], ids[at]) for at in range(1, len(ids))])

    def _logarithm(self, before: list[int], token: int) -> float:
        request = {
            "prompt": before,
            "n_predict": 1,
            "logprobs": 1,
            "temperature": 0,
            "logit_bias": [[token, CHOSEN]],
            "cache_prompt": True,
        }
        (told,) = self._server.handle_completions(request)["choices"][0]["logprobs"]["content"]
        if told["id"] != token:
            raise AssertionError(f"llama.cpp chose {told['id']}, expected {token}")
        return float(told["logprob"])


def perplexity(logarithms: Array) -> float:
    """Of the logarithms of probabilities."""
    return float(np.exp(-logarithms.mean()))


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare perplexities of planq and llama.cpp.")
    parser.add_argument("model", type=Path, help="Gemma 3, a GGUF file")
    parser.add_argument("text", type=Path, help="a file in UTF-8")
    parser.add_argument("--tokens", type=int, default=512, help="how many of the text at most")
    parser.add_argument("--device", default="host", help="planq's: host, cuda or cuda:N")
    parser.add_argument("--threads", type=int, default=2, help="of both programs on the host")
    given = parser.parse_args(words)
    threads = given.threads if given.device == "host" else None
    with read_gguf(given.model) as files:
        ids = Tokenizer(files.metadata).encode(given.text.read_text())[: given.tokens]
        limits = Limits(rows=PIECE, texts=1, asked=PIECE, context=len(ids))
        network = Gemma3(files, machine_of(given.device, threads), limits)
    own = perplexity(own_logarithms(network, ids))
    other = perplexity(Peer(given.model, given.threads, len(ids) + 64).logarithms(ids))
    apart = abs(own / other - 1)
    print(f"{len(ids)} tokens: planq {own:.3f}, llama.cpp {other:.3f}, {apart:.2%} apart")
    return 0 if apart <= MOST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
