"""The products of a drawn Gemma 3 270M on a GPU: their digests are the host's, in any batch."""

from __future__ import annotations

from functools import cache

import pytest

import gemma3_products
from gemma3_drawn import Drawn
from gemma3_model import Model

pytestmark = pytest.mark.gpu
TOKENS = 32


@cache
def drawn() -> Model:
    """All layers, and the head for a share of the tokens."""
    return Model(Drawn(), context=4 * TOKENS, rows=TOKENS)


def test_each_product_has_one_digest_on_both_devices() -> None:
    """Of a prompt and of what follows it: alone, in pieces and together, merged and by itself."""
    record = gemma3_products.recorded(drawn(), range(TOKENS), TOKENS)
    assert sum(len(fed.digests) for fed in record.values()) == 18 * 7 + 1
    found = gemma3_products.differing(drawn(), record, gemma3_products.Cuda("cuda"))
    assert found == {way: [] for way in gemma3_products.WAYS}
