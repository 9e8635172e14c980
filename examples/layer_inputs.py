"""Records what the linear layers of a model are fed: the file of `planq quantize --layer-inputs`.

    python examples/layer_inputs.py MODEL TEXTS INPUTS.safetensors

MODEL is a folder that transformers loads, and each line of the file TEXTS is a text. Rows of
padding are left out. All rows are in memory until they are written, as float32.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file


@torch.inference_mode()
def recorded(model: torch.nn.Module, batches: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Of each linear layer, under the name of its weight, the rows that it is fed."""
    rows = dict[str, list[torch.Tensor]]()
    kept = torch.ones(1, 1, dtype=torch.bool)

    def keep(name: str) -> Callable[[Any, tuple[torch.Tensor, ...]], None]:
        def hook(module: Any, given: tuple[torch.Tensor, ...]) -> None:
            del module
            tokens = given[0].dim() == 3 and given[0].shape[:2] == kept.shape
            own = given[0][kept] if tokens else given[0].flatten(0, -2)
            rows.setdefault(f"{name}.weight", []).append(own.float().cpu())

        return hook

    hooks = [
        module.register_forward_pre_hook(keep(name))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    for batch in batches:
        kept = batch["attention_mask"].bool()
        model(**batch)
    for hook in hooks:
        hook.remove()
    return {name: torch.cat(each) for name, each in rows.items()}


def named(found: dict[str, torch.Tensor], folder: Path, base: str) -> dict[str, torch.Tensor]:
    """The same under the names of the weights in the files of a model's folder.

    A model without its head has names without the prefix of the base model, which the files of a
    model with a head have.
    """
    names = set[str]()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names |= set(file.keys())
    return {
        name if name in names or f"{base}.{name}" not in names else f"{base}.{name}": rows
        for name, rows in found.items()
    }


def main(words: list[str]) -> int:
    """Loads the model, and writes what its layers are fed by 32 texts at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="its folder")
    parser.add_argument("texts", type=Path, help="a text in each line")
    parser.add_argument("inputs", type=Path, help="the file that is written")
    given = parser.parse_args(words)
    from transformers import AutoModel, AutoTokenizer  # not for those who call recorded()

    tokenizer = AutoTokenizer.from_pretrained(given.model)
    if tokenizer.pad_token is None:  # Llama's and Mistral's have none; rows of padding are left out
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModel.from_pretrained(given.model, dtype=torch.float32).eval()
    texts = [line for line in given.texts.read_text().splitlines() if line.strip()]
    batches = [
        dict(tokenizer(texts[at : at + 32], padding=True, truncation=True, return_tensors="pt"))
        for at in range(0, len(texts), 32)
    ]
    found = named(recorded(model, batches), given.model, model.base_model_prefix)
    save_file(found, given.inputs)
    counts = [len(each) for each in found.values()]
    print(f"{len(found)} layers, {min(counts)} to {max(counts)} rows of {len(texts)} texts")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
