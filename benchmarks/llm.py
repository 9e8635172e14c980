"""Measures Gemma 3 of plans beside transformers on one device: tokens a second.

    python3 benchmarks/llm.py MODEL.gguf|drawn [--device cuda] [--texts 1,64] [--prompt 512]
        [--context 256] [--written 128] [--modes eager,tuned-graph,reduce-overhead] [--turns 5]
        [--note TEXT] [--json FOLDER]

README.md in this folder says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

import planq
from harness.core.cuda import device_facts
from harness.core.report import begun, keep
from harness.core.turns import best_of, host_facts
from harness.peers import gemma
from planq.checkpoint import read_gguf
from planq.networks.gemma3 import GREEDY, Gemma3, Limits, Part, Sampling

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "networks"))
from gemma3_drawn import Drawn

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
LEAST: Final = 0.2  # seconds of a turn
VOCABULARY: Final = 262144  # of the drawn model: that of the real one
MODES: Final = {"host": "eager", "cuda": "eager,tuned-graph,reduce-overhead"}
DRAWS: Final = Sampling(0.8, top_k=64, top_p=0.95)
EXACT: Final = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, batch_invariant=True)
# The rung that the cheapest plans are asked for; they may depend on the batch.
WEAKER: Final = planq.PlanPreference(determinism=planq.Determinism.RUN_TO_RUN)


# --- planq


class Own:
    """Networks of plans: of those that promise every bit, and of the fastest."""

    def __init__(self, files: Any, given: argparse.Namespace) -> None:
        limits = Limits(
            rows=max(given.prompt, *given.texts),
            texts=max(given.texts),
            asked=max(given.texts),
            context=max(given.prompt, given.context + given.written),
        )
        # Texts of all parts are there together, twice, and the prompt.
        pages = limits.table * (2 * sum(given.texts) + 1)
        limits = replace(limits, pages=pages)
        self.exact = Gemma3(files, given.device, limits)
        self.others = [
            [name, *pair]
            for name, plan in self.exact.plans.items()
            if len(set(pair := kernels(plan))) > 1
        ]
        # Where all plans are the same there is nothing to measure.
        faster = Gemma3(files, given.device, limits, preference=WEAKER) if self.others else None
        self.networks = {"planq": self.exact}
        if faster:
            self.networks["planq run_to_run"] = faster

    def decoding(self, prompts: Array, written: int) -> dict[str, Run]:
        """What writes the tokens of texts, likeliest and drawn."""
        made: dict[str, Run] = {
            name: decoding(network, prompts, written, GREEDY)
            for name, network in self.networks.items()
        }
        return made | {"planq drawn": decoding(self.exact, prompts, written, DRAWS)}

    def prompt(self, ids: list[int]) -> dict[str, Run]:
        """What reads a prompt."""
        return {name: partial(read, network, ids) for name, network in self.networks.items()}

    def logits(self, ids: list[int]) -> Array:
        """Of the last token of a prompt."""
        text = self.exact.text(len(ids))
        found = self.exact.step([Part(text, ids)], logits=True).logits()
        text.release()
        return found[0]


def kernels(plan: planq.Plan) -> tuple[str, str]:
    """What runs with the promise of a plan, and what the fastest plan of its descriptor has."""
    weaker = planq.explain(plan.descriptor, WEAKER, device=plan.device).chosen
    own = plan.explain().chosen
    named = [f"{each.sku}:{each.body}" for each in (own, weaker) if each is not None]
    return named[0], named[-1]


def decoding(network: Gemma3, prompts: Array, written: int, sampling: Sampling) -> Run:
    """What continues texts together, as an engine does.

    The host learns every token, while the next one is computed already.
    """
    context = prompts.shape[1]
    texts = [network.text(context + written, sampling=sampling) for _ in prompts]

    def start() -> None:
        for text, ids in zip(texts, prompts.tolist(), strict=True):
            for at in range(0, context, network.limits.rows):
                network.step([Part(text, ids[at : at + network.limits.rows], 0)])

    def run() -> list[list[int]]:
        if not texts[0].length:
            start()
        for text in texts:
            text.length = context
        firsts = prompts[:, :1].tolist()
        made = [network.step(list(map(Part, texts, firsts)))]
        found = []
        for _ in range(written - 1):
            made.append(network.step([Part(text) for text in texts]))
            found.append(made.pop(0).tokens().tolist())
        return [*found, made.pop().tokens().tolist()]

    return run


def read(network: Gemma3, ids: list[int]) -> int:
    """Reads a prompt in one step, and waits for the token."""
    text = network.text(len(ids))
    made = network.step([Part(text, ids)])
    token = int(made.tokens()[0])
    text.release()
    return token


# --- Both


class Bench:
    """What is measured on a device.

    Args:
        given: The words of the command line.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        if given.model == "drawn":
            self._load(Drawn(vocabulary=given.vocabulary))
        else:
            with read_gguf(Path(given.model)) as files:
                self._load(files)
        self.draw = np.random.default_rng(2)
        self.failed: dict[str, str] = {}

    def _load(self, files: Any) -> None:
        device = self.given.device.replace("host", "cpu")
        self.own = Own(files, self.given)
        self.peer = gemma.Peer(files, device) if gemma.release() else None

    def drawn(self, *shape: int) -> Array:
        """Tokens."""
        return self.draw.integers(3, self.own.exact.sizes.vocabulary, shape)

    def entries(self) -> Iterator[dict[str, Any]]:
        """What is measured, one after another."""
        given = self.given
        for texts in given.texts:
            prompts = self.drawn(texts, given.context)
            contenders = self.own.decoding(prompts, given.written)
            if self.peer:
                peer = gemma.Decoding(self.peer, prompts, given.written)
                contenders |= self._in_modes(f"decode {texts}", peer)
            yield {
                "part": "decode",
                "texts": texts,
                "context": given.context,
                "written": given.written,
                **self._measured(contenders, given.written, texts),
            }
        ids = self.drawn(given.prompt).tolist()
        contenders = self.own.prompt(ids)
        if self.peer:
            contenders |= self._in_modes("prompt", gemma.Prompt(self.peer, ids))
        yield {
            "part": "prompt",
            "tokens": given.prompt,
            **self._measured(contenders, 1, given.prompt),
        }

    def _in_modes(self, part: str, peer: gemma.Decoding | gemma.Prompt) -> dict[str, Run]:
        """Those modes that work; why others do not is recorded."""
        made = {}
        for mode in self.given.modes:
            name = f"transformers {mode}"
            print(f"{part}: {name} is made", file=sys.stderr, flush=True)
            try:
                made[name] = peer.run(mode)
                made[name]()
            except Exception as error:  # a compiler may fail in any way
                made.pop(name, None)
                lines = str(error).strip().splitlines() or [""]
                self.failed[f"{part}, {name}"] = f"{type(error).__name__}: {lines[0][:200]}"
        return made

    def _measured(self, contenders: dict[str, Run], steps: int, tokens: int) -> dict[str, Any]:
        """Of a step with so many tokens; a run has so many steps."""
        runs = {name: [run] for name, run in contenders.items()}
        best = best_of(runs, self.given.turns, self.given.least)
        faster = best.get("planq run_to_run", best["planq"])
        rates = {name: steps * tokens / spent for name, spent in best.items()}
        peers = [name for name in best if name.startswith("transformers")]
        found: dict[str, Any] = {
            "us": {name: spent / steps * 1e6 for name, spent in best.items()},
            "tokens_per_second": rates,
            # In percent of the time: 0 where the fastest plans are the exact ones.
            "promise_costs": 100 * (best["planq"] / faster - 1),
        }
        if peers:
            fastest = max(peers, key=lambda name: rates[name])
            found |= {"fastest_peer": fastest, "speedup": rates["planq"] / rates[fastest]}
        return found

    def cosine(self) -> float | None:
        """Between the logits of both behind a prompt."""
        if not self.peer:
            return None
        ids = self.drawn(self.given.prompt).tolist()
        theirs = gemma.Prompt(self.peer, ids).logits[0].cpu().numpy().astype(np.float64)
        own = self.own.logits(ids).astype(np.float64)
        return float(own @ theirs / np.linalg.norm(own) / np.linalg.norm(theirs))


# --- The record


def table(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What a run prints."""
    for each in entries:
        if each["part"] == "prompt":
            yield f"a prompt of {each['tokens']} tokens"
        else:
            yield f"{each['texts']} texts of {each['context']} tokens, {each['written']} written"
        for name, rate in each["tokens_per_second"].items():
            yield f"  {name:28} {rate:12.1f} tokens/s {each['us'][name]:12.1f} us a step"
        yield f"  the promise costs {each['promise_costs']:.1f} % of a step"
        if "speedup" in each:
            yield f"  {each['speedup']:.2f} times as fast as {each['fastest_peer']}"


def told_of(bench: Bench) -> Iterator[str]:
    """What a run prints of plans and peers."""
    others = bench.own.others
    if others:
        yield f"{len(others)} plans are others where less is asked:"
        yield from (f"  {name}: {own}, {other}" for name, own, other in others)
    else:
        yield "no plan is another where less is asked, so the promise costs nothing"
    if bench.peer is None:
        yield "transformers is not installed: planq alone is measured"
    yield from (f"failed: {name}: {reason}" for name, reason in bench.failed.items())


def record(
    bench: Bench, words: list[str], entries: list[dict[str, Any]], cosine: float | None
) -> dict[str, Any]:
    """Everything, as JSON has it."""
    given = bench.given
    index = int(given.device.partition(":")[2] or 0)
    machine = host_facts() if given.device == "host" else device_facts(index)
    return {
        **begun(words, machine, transformers=gemma.release() or "none"),
        "model": Path(given.model).name,
        "turns": given.turns,
        **({"note": given.note} if given.note else {}),
        "llm": {
            "entries": entries,
            "other_plans": bench.own.others,
            "failed": bench.failed,
            "logits_cosine": cosine,
        },
    }


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def modes(text: str) -> list[str]:
    found = [mode for mode in text.split(",") if mode]
    for mode in found:
        if mode not in gemma.MODES:
            known = ", ".join(gemma.MODES)
            raise argparse.ArgumentTypeError(f"expected some of {known}, got {mode}")
    return found


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Gemma 3 beside transformers.")
    parser.add_argument("model", help="a GGUF file, or drawn: random weights of those shapes")
    parser.add_argument("--device", default="cuda", help="host, cuda or cuda:N")
    parser.add_argument("--texts", type=numbers, default=[1, 64], help="of a step, several runs")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--context", type=int, default=256, help="tokens before those written")
    parser.add_argument("--written", type=int, default=128, help="tokens that are written")
    parser.add_argument("--modes", type=modes, help=f"of torch: {', '.join(gemma.MODES)}")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY, help="of the drawn model")
    parser.add_argument("--turns", type=int, default=5, help="of each measurement; the best counts")
    parser.add_argument("--least", type=float, default=LEAST, help="seconds of a turn")
    parser.add_argument("--note", help="what the record says of the machine besides")
    parser.add_argument("--json", type=Path, help="the folder of records")
    given = parser.parse_args(words)
    if given.modes is None:
        given.modes = modes(MODES["host" if given.device == "host" else "cuda"])
    return given


@torch.no_grad()
def main(words: list[str]) -> int:
    given = parsed(words)
    bench = Bench(given)
    cosine, entries = bench.cosine(), list[dict[str, Any]]()
    for entry in bench.entries():
        print("\n".join(table([entry])), flush=True)
        entries.append(entry)
        if given.json:  # what there is, if a later part takes too long
            keep(given.json, "llm", record(bench, words, entries, cosine))
    print("\n".join(told_of(bench)))
    if cosine is not None:
        print(f"cosine of both logits behind a prompt: {cosine:.5f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
