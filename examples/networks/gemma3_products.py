"""The products of Gemma 3 one by one: the digest of each over some tokens, in a file.

Another machine computes them again, and so do other pieces of the same text. Where all digests of
the logits agree, so do these. Where they do not, the first product that differs says where to look.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from planq.networks.gemma3 import Gemma3, Limits, Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from planq.networks import Machine
    from planq.networks.gemma3.sizes import Source
    from planq.networks.gemma3.step import Launch

# Tokens at a time.
WAYS = {"alone": 1, "7 at a time": 7, "32 at a time": 32}
# Tokens of a record: those of a prompt, and those that follow it.
RECORDED = 32


def main(
    files: Source, machine: Machine, ids: Sequence[int], record: Path | None, verify: Path | None
) -> int:
    """Records products, or computes them again; 0 if all have the digests of the record."""
    limits = Limits(rows=RECORDED, texts=1, asked=RECORDED, context=2 * RECORDED)
    network = Gemma3(files, machine, limits)
    if record:
        prompt = (list(ids) * RECORDED)[:RECORDED]
        text = network.text(2 * RECORDED)
        fed = [*prompt, *network.continued(text, prompt, RECORDED)]
        text.release()
        found = digests(network, fed, RECORDED)
        record.write_text(json.dumps({"ids": fed, "digests": found}, indent=1) + "\n")
        print(f"{len(found)} products of {len(fed)} tokens")
    if not verify:
        return 0
    told = json.loads(verify.read_text())
    ways = differing(network, told["ids"], told["digests"])
    for way, others in ways.items():
        count = len(told["digests"]) - len(others)
        first = f"; the first other one is {others[0]}" if others else ""
        alike = f"{count} of {len(told['digests'])} products have the same digest"
        print(f"{machine.name}, {way}: {alike}{first}")
    return 1 if any(ways.values()) else 0


def digests(network: Gemma3, ids: Sequence[int], at_a_time: int) -> dict[str, str]:
    """Of each product SHA-256 of its rows, for a text that is computed in such pieces."""
    found: dict[str, Any] = defaultdict(hashlib.sha256)
    rows = 0

    def watch(launch: Launch) -> None:
        for name, result in launch.results.items():
            found[name].update(network.machine.get(result[:rows]).tobytes())

    text, network.watch = network.text(len(ids)), watch
    for at in range(0, len(ids), at_a_time):
        piece = ids[at : at + at_a_time]
        rows = len(piece)
        network.step([Part(text, piece, asked=rows)])
    text.release()
    network.watch = None
    return {name: each.hexdigest() for name, each in found.items()}


def differing(
    network: Gemma3, ids: Sequence[int], expected: Mapping[str, str]
) -> dict[str, list[str]]:
    """Of each way to compute them, the products that have other digests, the first one first."""
    return {
        way: [
            name
            for name, digest in digests(network, ids, at_a_time).items()
            if expected.get(name) != digest
        ]
        for way, at_a_time in WAYS.items()
    }
