"""The descriptors of a step: one plan for each, whatever the number of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import planq
from planq.networks.gemma3.sizes import BLOCKS, PRODUCTS, TOGETHER, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from planq.networks.gemma3.sizes import Entry, Sizes

BIT_EXACT = planq.PlanPreference(determinism=planq.Determinism.BIT_EXACT, batch_invariant=True)
# Of codes of activations, as `linear_gguf` takes them.
CODES: dict[str, Any] = {
    "output_dtype": "int8",
    "scope": planq.Scope.group(32),
    "scale_dtype": "float32",
    "quotient": planq.Quotient.RATIO,
}


@dataclass(frozen=True)
class Limits:
    """What a network is made for; memory is allocated for all of it.

    Attributes:
        rows: The most tokens of a step.
        texts: The most texts of a step.
        asked: The most tokens of a step of which there are logits.
        context: The most tokens of a text.
        page: How many tokens a page of the cache holds.
        pages: How many pages the cache has. None: as many as `texts` of `context` tokens take.
    """

    rows: int = 512
    texts: int = 32
    asked: int = 128
    context: int = 2048
    page: int = 64
    pages: int | None = None

    def __post_init__(self) -> None:
        """Raises ArgumentError for a number that is not positive."""
        for name in ("rows", "texts", "asked", "context", "page", "pages"):
            found = getattr(self, name)
            if found is not None and found < 1:
                raise planq.ArgumentError(name, "1 or more", str(found))

    @property
    def table(self) -> int:
        """The most pages of a text."""
        return -(-self.context // self.page)

    @property
    def cache(self) -> int:
        """Pages that there are."""
        return self.texts * self.table if self.pages is None else self.pages

    @property
    def batches(self) -> list[int]:
        """Numbers of texts that there are plans of attention for: powers of two."""
        return [1 << i for i in range((self.texts - 1).bit_length() + 1)]


def descriptors(
    sizes: Sizes, limits: Limits, weights: Mapping[str, Entry]
) -> dict[str, planq.Descriptor]:
    """Each by the name of its launches."""
    tokens = planq.Dim("tokens", max=limits.rows)
    return {
        **_products(sizes, tokens, weights),
        **_elements(sizes, tokens, BLOCKS[weights["token_embd"].dtype]),
        **_positions(sizes, limits, tokens),
        **{
            attention_name(batch, windowed, single): _attention(
                sizes, limits, tokens, batch, windowed, single
            )
            for batch in limits.batches
            for windowed in (False, True)
            for single in (False, True)
        },
    }


def attention_name(batch: int, windowed: bool, single: bool) -> str:
    """How the plan of attention is called. `single`: each text has one token."""
    told = {"windowed": windowed, "single tokens": single}
    return ", ".join([f"attention of {batch}", *(word for word, holds in told.items() if holds)])


def _products(
    sizes: Sizes, tokens: planq.Dim, weights: Mapping[str, Entry]
) -> dict[str, planq.Descriptor]:
    """One for each weight, or for several of one input."""
    alone = ["token_embd"]
    together = {}
    merged = {each for names in TOGETHER.values() for each in names}
    for layer in range(sizes.layers):
        alone += [f"blk.{layer}.{name}" for name in PRODUCTS if name not in merged]
        for name, names in TOGETHER.items():
            together[f"blk.{layer}.{name}"] = [weights[f"blk.{layer}.{each}"] for each in names]
    made: dict[str, planq.Descriptor] = {
        name: planq.LinearGgufMergedDescriptor(
            input_shape=(tokens, sizes.hidden),
            weight_shapes=tuple(stored(each)[0] for each in entries),
            types=tuple(BLOCKS[each.dtype] for each in entries),
            input_dtype="int8",
            output_dtype="float32",
        )
        for name, entries in together.items()
    }
    return made | {
        name: planq.LinearGgufDescriptor(
            input_shape=(tokens, weights[name].shape[1]),
            weight_shape=weights[name].shape,
            type=BLOCKS[weights[name].dtype],
            # Heads become codes inside of their product.
            input_dtype="float32" if "attn_output" in name else "int8",
            output_dtype="float32",
        )
        for name in alone
    }


def _elements(sizes: Sizes, tokens: planq.Dim, kind: planq.GgufType) -> dict[str, planq.Descriptor]:
    """Embeddings, norms, gates, and the tokens that logits choose."""
    rows, logits = (tokens, sizes.hidden), (tokens, sizes.vocabulary)
    norm = planq.RmsNormDescriptor(shape=rows, input_dtype="float32", weight_dtype="float32")
    return {
        "embedding": planq.GgufDequantizeDescriptor(
            shape=rows,
            type=kind,
            output_dtype="float32",
            table_rows=sizes.vocabulary,
            index_dtype="int64",
        ),
        "scaling": planq.AddDescriptor(shape=rows, input_dtype="float32"),
        "norm": norm,
        "codes of norm": replace(norm, residual_dtype="float32", **CODES),
        "gate": planq.ActivationDescriptor(
            shape=(tokens, sizes.inner),
            function="gelu_tanh",
            gated=True,
            layout="separate",
            input_dtype="float32",
            **CODES,
        ),
        "chosen rows": planq.EmbeddingDescriptor(
            shape=rows, table_rows=tokens.max, table_dtype="float32", output_dtype="float32"
        ),
        "argmax": planq.ArgmaxDescriptor(shape=logits, input_dtype="float32"),
        "sample": planq.SampleDescriptor(shape=logits, input_dtype="float32"),
    }


def _positions(sizes: Sizes, limits: Limits, tokens: planq.Dim) -> dict[str, planq.Descriptor]:
    """Positions, and the cache."""
    return {
        "turn and append": planq.RotaryKvCacheAppendDescriptor(
            query_shape=(tokens, sizes.heads, sizes.head),
            key_heads=sizes.key_heads,
            value_dim=sizes.head,
            dtype="float32",
            max_position=limits.context,
            norm_weight_dtype="float32",
            pages=limits.cache,
            page_size=limits.page,
            cache_dtype="float16",
            output_dtype="float16",
        ),
    }


def _attention(
    sizes: Sizes, limits: Limits, tokens: planq.Dim, batch: int, windowed: bool, single: bool
) -> planq.Descriptor:
    return planq.AttentionDescriptor(
        query_shape=(tokens, sizes.heads, sizes.head),
        key_heads=sizes.key_heads,
        batch=batch,
        max_query=1 if single else limits.rows,
        max_key=limits.context,
        pages=limits.cache,
        page_size=limits.page,
        input_dtype="float16",
        output_dtype="float32",
        causal=True,
        window=sizes.window if windowed else None,
    )
