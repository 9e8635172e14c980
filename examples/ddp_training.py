"""Trains a small language model with DistributedDataParallel, whose gradients travel as codes.

    torchrun --nproc-per-node 2 examples/ddp_training.py [--hook int4] [--steps 300]

The text is what Python's own help() says, which every Python has; the model guesses its next byte.
With NCCL where each process has a GPU, with gloo elsewhere. At the end every rank has the same
weights, to the bit.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import os
import pydoc_data.topics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import planq.distributed

BYTES = 256
HEAD = 32
"""Elements of a head of attention."""


@dataclass(frozen=True)
class Options:
    """How large the model is, and how long it learns."""

    steps: int = 300
    width: int = 512
    layers: int = 6
    batch: int = 16
    length: int = 256
    rate: float = 1e-3


@dataclass(frozen=True)
class Result:
    """What a training gave.

    Attributes:
        losses: Of every step, in nats a byte: the mean over all ranks.
        held_out: Of text that no step has seen, at the end.
        ms: Of a step, the median.
        digest: Of the weights, the same on every rank.
        parameters: How many numbers the model has.
    """

    losses: list[float]
    held_out: float
    ms: float
    digest: str
    parameters: int


class LanguageModel(torch.nn.Module):
    """A transformer that sees the bytes before."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        width = options.width
        self.bytes = torch.nn.Embedding(BYTES, width)
        self.places = torch.nn.Embedding(options.length, width)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                width, width // HEAD, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(options.layers)
        )
        self.norm = torch.nn.LayerNorm(width)
        self.logits = torch.nn.Linear(width, BYTES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length, text.device)
        hidden = self.bytes(text) + self.places.weight[:length]
        for layer in self.layers:
            hidden = layer(hidden, mask, is_causal=True)
        logits: torch.Tensor = self.logits(self.norm(hidden))
        return logits


class Text:
    """Pieces of the text: the last tenth is for no step."""

    def __init__(self, options: Options, device: torch.device) -> None:
        topics = pydoc_data.topics.topics
        whole = "\n".join(topics[name] for name in sorted(topics)).encode()
        self.text = torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()
        self.options, self.device = options, device
        self.end = self.text.numel() * 9 // 10

    def of_step(self, step: int) -> torch.Tensor:
        """What this rank reads in a step: one byte more than the model does."""
        rng = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        last = self.end - self.options.length
        return self._pieces(torch.randint(last, (self.options.batch,), generator=rng))

    def held_out(self) -> torch.Tensor:
        """The same for every rank."""
        last = self.text.numel() - self.options.length - 1
        return self._pieces(torch.linspace(self.end, last, self.options.batch).long())

    def _pieces(self, firsts: torch.Tensor) -> torch.Tensor:
        places = firsts[:, None] + torch.arange(self.options.length + 1)
        return self.text[places].to(self.device)


# --- How gradients travel


Hook = Callable[[DistributedDataParallel], None]


def codes(model: DistributedDataParallel, dtype: str) -> None:
    """Codes of planq; what they lose of a gradient is added to the next one."""
    state = planq.distributed.QuantizedAllReduceState(
        model, error_feedback=True, dtype=dtype, group_size=128
    )
    model.register_comm_hook(state, planq.distributed.quantized_all_reduce_hook)


def power_sgd(model: DistributedDataParallel, rank: int) -> None:
    """Torch's products of two thin matrices, which feed errors back as well."""
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=10
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def half(model: DistributedDataParallel) -> None:
    """Torch's rounding to float16."""
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


HOOKS: dict[str, Hook] = {
    "none": lambda model: None,
    "fp16": half,
    "powersgd-1": functools.partial(power_sgd, rank=1),
    "powersgd-4": functools.partial(power_sgd, rank=4),
    "int8": functools.partial(codes, dtype="int8"),
    "int4": functools.partial(codes, dtype="int4"),
}


# --- Training


def train(hook: str, options: Options, device: torch.device, every: int = 0) -> Result:
    """From the same first weights, on the same text, whatever the hook.

    ``every``: how often the first rank prints the loss; 0: never.
    """
    torch.manual_seed(0)
    model = DistributedDataParallel(
        LanguageModel(options).to(device), device_ids=[device] if device.type == "cuda" else None
    )
    HOOKS[hook](model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    text, losses, ends = Text(options, device), [], [time.perf_counter()]
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = options.rate * min(1.0, (step + 1) / 50)
        loss = loss_of(model, text.of_step(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
        ends.append(time.perf_counter())
        if every and step % every == 0 and dist.get_rank() == 0:
            print(f"step {step:4d}  {losses[-1]:.4f} nats a byte", flush=True)
    with torch.no_grad():
        held_out = mean(loss_of(model, text.held_out()))
    spent = sorted(after - before for before, after in itertools.pairwise(ends))
    count = sum(parameter.numel() for parameter in model.parameters())
    return Result(losses, held_out, spent[len(spent) // 2] * 1e3, digest(model), count)


def loss_of(model: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """Of the guess at each next byte."""
    with torch.autocast(text.device.type, torch.bfloat16):
        logits = model(text[:, :-1])
    return cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())


def mean(value: torch.Tensor) -> float:
    """Over all ranks."""
    held = value.detach().float()
    dist.all_reduce(held)
    return held.item() / dist.get_world_size()


def digest(model: torch.nn.Module) -> str:
    """Of all weights, which every rank must have to the bit."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().cpu().numpy().tobytes())
    others: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(others, found.hexdigest()[:16])
    if len(set(others)) > 1:
        raise RuntimeError(f"the weights of the ranks differ: {', '.join(others)}")
    return str(others[0])


def join() -> torch.device:
    """Enters the group of all processes: with NCCL if there is a GPU for each of them."""
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cpu")
    if torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def main() -> None:
    plain = Options()
    parser = argparse.ArgumentParser(description="Train with gradients of 4 or 8 bits.")
    parser.add_argument("--hook", choices=HOOKS, default="int4")
    for name in ("steps", "width", "layers", "batch", "length"):
        parser.add_argument(f"--{name}", type=int, default=getattr(plain, name))
    given = vars(parser.parse_args())
    hook = given.pop("hook")
    if "LOCAL_RANK" not in os.environ:
        raise SystemExit("run it by torchrun --nproc-per-node 2")
    result = train(hook, Options(**given), join(), every=max(1, given["steps"] // 10))
    if dist.get_rank() == 0:
        print(f"{hook}: {result.losses[-1]:.4f} nats a byte, {result.held_out:.4f} of other text")
        print(f"{result.ms:.1f} ms a step; all {dist.get_world_size()} ranks have {result.digest}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
