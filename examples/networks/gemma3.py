"""Gemma 3 from a GGUF file, as a network of plans: text, speed, and one digest on every machine.

    python gemma3.py MODEL.gguf [--prompt "The capital of France is"] [--tokens 32] [--device cuda]
    python gemma3.py MODEL.gguf --check
    python gemma3.py MODEL.gguf --record FILE
    python gemma3.py MODEL.gguf --verify FILE [--device cuda]

The first continues a prompt greedily. It prints how many tokens a second the prompt and the text
took, and SHA-256 of the logits that chose the tokens. It is the same on a host and on a GPU.

--check continues 32 prompts together, and again in other batches and other pieces: one digest of
each, and log-probabilities near those of a program in float32. Exit status: 0 if that is so.

--record keeps the digest of each product of 64 tokens in a file. --verify computes them again, for
a token alone, for 7 and for 32 at a time, and names the first product that is another. Exit status:
0 if all are those of the file. `drawn` in the place of the model is one that needs no file, of the
same shapes and types: see gemma3_drawn.py.

planq.networks.gemma3 has the network, gemma3_check.py beside this program the comparison, and
gemma3_products.py the record.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import gemma3_check
import gemma3_products
from gemma3_drawn import Drawn
from planq.checkpoint import read_gguf
from planq.networks import machine_of
from planq.networks.gemma3 import Gemma3, Limits
from planq.networks.tokenizer import Tokenizer


def complete(network: Gemma3, tokenizer: Tokenizer, ids: list[int], most: int) -> None:
    """Continues a prompt up to a token that ends it, and prints what came of it."""
    network.prepare(len(ids))
    text = network.text(len(ids) + most, digested=True)
    made, times = list[int](), [time.perf_counter() - network.digesting]
    for token in network.continued(text, ids, most, tokenizer.ends):
        made.append(token)
        times.append(time.perf_counter() - network.digesting)
    print(f"{tokenizer.decode([*ids, *made])}\n")
    # The last step of the prompt makes the first token.
    for name, count, seconds in (
        ("prompt", len(ids), times[1] - times[0]),
        ("text", len(made) - 1, times[-1] - times[1]),
    ):
        if count:
            rate = count / seconds
            print(f"{name}: {count} tokens in {seconds:.3f} s, {rate:.1f} tokens a second")
    print(f"digest: {text.digest()}")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run Gemma 3 from a GGUF file.")
    parser.add_argument("model", help="the file, or 'drawn'")
    parser.add_argument("--prompt", default="The capital of France is", help="what to continue")
    parser.add_argument("--tokens", type=int, default=32, help="how many are made at most")
    parser.add_argument("--device", default="host", help="where: host, cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="of the host; by default all")
    parser.add_argument("--check", action="store_true", help="compare 32 texts instead")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep digests of products")
    parser.add_argument("--verify", type=Path, metavar="FILE", help="compute such products again")
    given = parser.parse_args(words)
    machine = machine_of(given.device, given.threads)
    if given.model == "drawn":
        if not (given.record or given.verify):
            parser.error("a drawn model has no words: it takes --record or --verify")
        return gemma3_products.main(Drawn(), machine, range(2, 34), given.record, given.verify)
    with read_gguf(given.model) as files:
        tokenizer = Tokenizer(files.metadata)
        ids = tokenizer.encode(given.prompt)
        if given.record or given.verify:
            return gemma3_products.main(files, machine, ids, given.record, given.verify)
        if given.check:
            return gemma3_check.main(files, machine, tokenizer, given.tokens)
        limits = Limits(texts=1, asked=1, context=len(ids) + given.tokens)
        network = Gemma3(files, machine, limits)
    complete(network, tokenizer, ids, given.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
