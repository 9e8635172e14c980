"""Products of GGUF files beside ggml, and Gemma 3 beside llama.cpp, in docs/performance.md."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from plots import microseconds
from records import Run
from tables import table

INTRODUCTION = """\
`linear_gguf` on the host beside `ggml_mul_mat` of the package xllamacpp, both of float32
activations, whose codes each makes by its own rule. Weights are 4096 × 4096, of so many that no
cache has them; *read* is a loop that only reads them, on as many threads. ggml has the weights as
they are, or repacked where it has an order of its own: the faster of the two counts. Turns of all
alternate, and the best of each counts. × is ggml's time over planq's; below 1 is **bold**."""
TEXTS = """\
Gemma 3 270M of a file in Q4_K_M: a prompt of {prompt} tokens, and {written} tokens that follow it,
as [planq.networks](networks.md) and as llama.cpp compute it. *Products* is the part
of planq's time that its products take when they run one after another; the rest is
attention, norms, gates and Python."""
PROMPT, WRITTEN = 512, 64


def section(runs: Sequence[Run]) -> list[str]:
    """The newest run on each processor."""
    newest: dict[str, Run] = {}
    for run in runs:
        newest.setdefault(run.facts["machine"]["processor"], run)
    lines = ["## Beside llama.cpp", ""] if newest else []
    for run in newest.values():
        facts = run.facts
        machine, versions = facts["machine"], facts["software"]
        told = (
            f"On {machine['cores']} cores of an {machine['processor']}: planq with "
            f"{machine['instructions']}, ggml of xllamacpp {versions['xllamacpp']} with "
            f"{versions['ggml']}. Build `{run.build}` of planq, {run.date}."
        )
        told += f" {facts['note']}" if "note" in facts else ""
        lines += [*textwrap.wrap(told, 100), "", *INTRODUCTION.splitlines(), ""]
        lines += table(
            ["type", "rows", "threads", "µs", "GB/s", "read, GB/s", "TOPS", "ggml, µs", "×"],
            [_product(entry) for entry in facts["llama"]["products"]],
        )
        if facts["llama"]["texts"]:
            lines += [*TEXTS.format(prompt=PROMPT, written=WRITTEN).splitlines(), ""]
            lines += table(
                ["", "threads", "tokens a second", "llama.cpp", "×", "products"],
                [row for entry in facts["llama"]["texts"] for row in _texts(entry)],
            )
    return lines


def _product(entry: dict[str, Any]) -> list[str]:
    kind, problem = entry["name"].split("/")
    peer = microseconds(entry["peer_us"])
    return [
        kind,
        problem.split("x")[0],
        str(entry["threads"]),
        microseconds(entry["us"]),
        f"{entry['gbps']:.1f}",
        f"{entry['read_gbps']:.1f}",
        f"{entry['tops']:.3f}",
        f"{peer} (repacked)" if "repacked" in entry["peer"] else peer,
        _times(entry["speedup"]),
    ]


def _texts(entry: dict[str, Any]) -> Iterator[list[str]]:
    for part in ("prompt", "text"):
        told = entry[part]
        yield [
            part,
            str(entry["threads"]),
            f"{told['tokens_per_second']:.1f}",
            f"{told['peer_tokens_per_second']:.1f}",
            _times(told["speedup"]),
            f"{told['products_share']:.0%}",
        ]


def _times(speedup: float) -> str:
    text = f"{speedup:.2f}"
    return text if speedup >= 1 else f"**{text}**"
