"""Whether a network has one digest of the same texts on several devices, in any batch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from planq.networks.gemma3 import Gemma3, Limits
from planq.networks.gemma3.schedule import completed
from planq.networks.machine import machine_of
from planq.networks.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planq.checkpoint import GgufFiles

PROMPTS = (
    "The capital of France is",
    "Water boils at 100 degrees, and at the top of a mountain",
    "def fibonacci(n):\n",
    "1, 2, 3, 4, 5, 6,",
    "Der Hund läuft durch den",
    "日本の首都は",
    "She sells sea shells by the sea shore. The shells she sells are",
)
# Tokens that are made of each.
MADE = 16
# How many texts at a time, and how many tokens of a prompt in a step.
WAYS: dict[str, tuple[int, int | None]] = {
    "one text at a time": (1, None),
    "one text, 3 tokens of a prompt at a time": (1, 3),
    "all texts together, 5 tokens of a prompt at a time": (len(PROMPTS), 5),
}


class Found(NamedTuple):
    """What a device makes of the texts.

    Attributes:
        device: Its name, of a host with the number of threads.
        way: How texts were put together.
        digest: SHA-256 of the digests of all texts.
    """

    device: str
    way: str
    digest: str


def audited(
    files: GgufFiles,
    devices: Sequence[str],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Found]:
    """Computes the prompts on each device in each way. A host has 1 thread, and then all.

    Args:
        files: The model.
        devices: ``host``, ``cuda:N``.
        progress: Is told how many digests there are, and how many there will be.

    Raises:
        CheckpointError: The file is no Gemma 3.
        DeviceError: A device is not there.
    """
    tokenizer = Tokenizer(files.metadata)
    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    context = max(map(len, prompts)) + MADE
    limits = Limits(rows=64, texts=len(prompts), asked=64, context=context, page=16)
    machines = [
        (name if threads is None else f"{name}, 1 thread", machine_of(name, threads))
        for name in devices
        for threads in ((1, None) if name == "host" else (None,))
    ]
    done, total = 0, len(machines) * len(WAYS)
    for device, machine in machines:
        network = Gemma3(files, machine, limits)
        for way, (batch, chunk) in WAYS.items():
            progress(done, total)
            texts = completed(network, prompts, MADE, batch=batch, chunk=chunk)
            told = "".join(text.digest for text in texts)
            yield Found(device, way, hashlib.sha256(told.encode()).hexdigest())
            done += 1
