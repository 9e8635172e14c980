"""The shapes of the parameters of models."""

from __future__ import annotations


def shapes_of(model: str) -> tuple[tuple[int, ...], ...]:
    """The 291 parameters of Llama 3 8B, ``llama-8b/4`` with a quarter of each of its widths."""
    name, _, by = model.partition("/")
    if name != "llama-8b":
        raise ValueError(f"no such model: {model}")
    hidden, inner, keys, words = (n // int(by or 1) for n in (4096, 14336, 1024, 128256))
    attention = ((hidden, hidden), (keys, hidden), (keys, hidden), (hidden, hidden))
    layer = (*attention, *[(inner, hidden)] * 2, (hidden, inner), (hidden,), (hidden,))
    return ((words, hidden), *layer * 32, (hidden,), (words, hidden))
