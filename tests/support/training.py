"""A network that learns a text, for the optimizers of `planq.torch.optim`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

TEXT = (Path(__file__).parents[2] / "LICENSE").read_bytes()


def network() -> torch.nn.Module:
    """Predicts a byte of a text from the eight before it; two tensors have state of 8 bits."""
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Embedding(128, 16),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 128),
    )


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """64 places of the text: bytes, and the byte behind them."""
    places = (np.arange(64) * 37 + step * 64) % (len(TEXT) - 9)
    windows = torch.tensor([list(TEXT[i : i + 9]) for i in places]) % 128
    return windows[:, :8], windows[:, 8]


def train(model: torch.nn.Module, optimizer: Any, steps: range, device: str = "cpu") -> list[float]:
    """The losses."""
    losses = []
    for step in steps:
        given, wanted = (x.to(device) for x in batch(step))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(given), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
