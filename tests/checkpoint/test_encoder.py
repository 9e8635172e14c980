"""MiniLM's encoder in W8A8: that of `make demo`, in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from checkpoint import model as minilm
from planq.cli.demo_encoder import Encoder, FloatProducts, W8A8Products, digest, spans
from planq.cli.demo_sentences import SENTENCES
from planq.executors import HostExecutor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The floating model, as a folder."""
    return minilm.extract(tmp_path_factory.mktemp("model"))


def test_in_float32_it_is_the_model_that_transformers_loads(source: Path) -> None:
    encoder = Encoder(source)
    made = encoder.embed(encoder.tokens(minilm.sentences()), FloatProducts(encoder))
    expected = minilm.embeddings(minilm.load(source), source).numpy()
    assert np.abs(made - expected).max() < 1e-6


def test_in_w8a8_its_products_have_one_digest(source: Path) -> None:
    """On any number of threads, for a sentence alone and for all, in any order."""
    encoder = Encoder(source)
    tokens = encoder.tokens(SENTENCES)
    floating = FloatProducts(encoder)
    expected = encoder.embed(tokens, floating)
    assert len(floating.fed) == len(encoder.products) == 36
    every = list(range(len(tokens)))
    orders = ([[one] for one in every], [every], [every[::-1]], [every[7:], every[:7]])
    digests = set()
    for threads, batches in zip((None, 1, 2, 5), orders, strict=True):
        products = W8A8Products(encoder, HostExecutor(threads))
        assert len(products.plans) == 5
        digests.add(digest(products, floating.fed, batches, spans(tokens)))
    assert len(digests) == 1
    cosine = np.sum(encoder.embed(tokens, products) * expected, axis=1)
    assert cosine.mean() >= 0.995


def test_a_product_is_that_of_its_codes(source: Path) -> None:
    """Scale, codes, exact sums, and one rounding for each operation of float32 after them."""
    encoder = Encoder(source)
    name = "encoder.layer.3.output.dense"
    weight, bias = (encoder.tensors[f"{name}.{part}"] for part in ("weight", "bias"))
    rows = np.random.default_rng(0).standard_normal((9, weight.shape[1]), dtype=np.float32)
    codes, scales = zip(*(quantized(values) for values in (rows, weight)), strict=True)
    sums = codes[0].astype(np.int64) @ codes[1].T.astype(np.int64)
    expected = sums.astype(np.float32) * scales[0] * scales[1].T + bias
    made = W8A8Products(encoder, HostExecutor())(name, rows)
    assert np.array_equal(made.view(np.uint32), expected.view(np.uint32))


def quantized(values: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Codes and scales of rows."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    return np.rint(values / scale).astype(np.int8), scale
