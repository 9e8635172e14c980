"""Plans of one text's decoding that follow one another: each reads what those ahead have written.

A step turns indices into rows, rows into queries, keys and values, and queries into the next
step's indices. So a kernel that read or wrote too early would change all that comes later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import planq

HEADS, COLUMNS, ROWS, PLACES = 2, 16, 64, 16
WIDTH = (HEADS + 2) * COLUMNS


class Chain:
    """The steps of some tokens on a device.

    Args:
        tokens: Their number.
        apart: Whether positions and the cache are plans of their own.
        device: As torch calls it.
        stream: Where the plans run.
    """

    def __init__(self, tokens: int, *, apart: bool, device: str, stream: Any) -> None:
        self.tokens, self.stream, self.apart = tokens, stream, apart
        self.at = {name: held.to(device) for name, held in tensors(tokens).items()}
        self.runs = [*self._step("first", "second"), *self._step("second", "first")]

    def results(self) -> dict[str, bytes]:
        """All memory."""
        return {
            name: held.cpu().contiguous().view(torch.uint8).numpy().tobytes()
            for name, held in self.at.items()
        }

    def run(self, times: int) -> None:
        """Two steps, so often."""
        for _ in range(times):
            for run in self.runs:
                run(self.stream)

    def _step(self, index: str, drawn: str) -> list[Callable[[Any], Any]]:
        queries = (
            self.at["rows"].view(self.tokens, WIDTH)[:, : HEADS * COLUMNS]
            if self.apart
            else self.at["query_output"].view(self.tokens, HEADS * COLUMNS)
        )
        embedding = planq.EmbeddingDescriptor(
            shape=(self.tokens, WIDTH),
            table_rows=ROWS,
            table_dtype="float32",
            output_dtype="float32",
        )
        logits: dict[str, Any] = {
            "shape": (self.tokens, HEADS * COLUMNS),
            "input_dtype": "float32",
        }
        return [
            self._bound(
                embedding,
                table=self.at["table"],
                index=self.at[index],
                output=self.at["rows"].view(self.tokens, WIDTH),
                invalid=self.at["invalid"][:1],
            ),
            *(self._apart(index) if self.apart else self._fused(index)),
            self._bound(
                planq.ArgmaxDescriptor(**logits), input=queries, output=self.at["likeliest"]
            ),
            self._bound(
                planq.SampleDescriptor(**logits),
                input=queries,
                seed=self.at["seed"],
                position=self.at[index],
                output=self.at[drawn],
            ),
        ]

    def _heads(self) -> dict[str, torch.Tensor]:
        rows = self.at["rows"]
        return {"query": rows[:, :HEADS], "key": rows[:, HEADS : HEADS + 1]}

    def _turn(self, index: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Fields and operands of positions. The likeliest token of the step before has the slot."""
        fields = {"query_shape": (self.tokens, HEADS, COLUMNS), "key_heads": 1, "dtype": "float32"}
        fields |= {"max_position": ROWS, "norm_weight_dtype": "float32"}
        given = self._heads() | {"cos_sin": self.at["turns"], "position": self.at[index]}
        given |= {f"{side}_weight": self.at["weight"] for side in ("query", "key")}
        return fields, given | {"eps": 1e-6}

    def _pages(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fields = {"value_dim": COLUMNS, "pages": 4, "page_size": PLACES, "cache_dtype": "float16"}
        given = {name: self.at[name] for name in ("key_cache", "value_cache")}
        given |= {"value": self.at["rows"][:, HEADS + 1 :], "slot": self.at["likeliest"]}
        return fields, given

    def _fused(self, index: str) -> list[Callable[[Any], Any]]:
        (turn, turned), (pages, appended) = self._turn(index), self._pages()
        desc = planq.RotaryKvCacheAppendDescriptor(**turn, **pages, output_dtype="float32")
        output = {"query_output": self.at["query_output"], "invalid": self.at["invalid"]}
        return [self._bound(desc, **turned, **appended, **output)]

    def _apart(self, index: str) -> list[Callable[[Any], Any]]:
        (turn, turned), (pages, appended) = self._turn(index), self._pages()
        invalid = {"invalid": self.at["invalid"][:1]}
        append = planq.KvCacheAppendDescriptor(
            key_shape=(self.tokens, 1, COLUMNS), input_dtype="float32", **pages
        )
        key = {"key": self._heads()["key"]}
        return [
            self._bound(planq.RotaryEmbeddingDescriptor(**turn), **turned, **invalid),
            self._bound(append, **key, **appended, **invalid),
        ]

    def _bound(self, desc: planq.Descriptor, **operands: Any) -> Callable[[Any], Any]:
        plan = planq.Plan.select(self.stream, desc)
        names = {operator.name: operator.args for operator in planq.operators()}
        return plan.bind(None, names[desc.operator](**operands))


def tensors(tokens: int) -> dict[str, torch.Tensor]:
    """All of a chain, with what it begins with."""
    made = torch.Generator().manual_seed(tokens)
    angles = torch.rand((ROWS, COLUMNS // 2), generator=made) * 20
    first = torch.randint(0, HEADS * COLUMNS, (tokens,), generator=made)
    return {
        "table": torch.randn((ROWS, WIDTH), generator=made),
        "turns": torch.cat([angles.cos(), angles.sin()], 1),
        "weight": torch.randn(COLUMNS, generator=made) * 2,
        "seed": torch.arange(tokens) * 7919,
        "first": first,
        "second": torch.zeros_like(first),
        "likeliest": first.clone(),
        "rows": torch.zeros((tokens, HEADS + 2, COLUMNS)),
        "query_output": torch.zeros((tokens, HEADS, COLUMNS)),
        "key_cache": torch.zeros((4, PLACES, 1, COLUMNS), dtype=torch.float16),
        "value_cache": torch.zeros((4, PLACES, 1, COLUMNS), dtype=torch.float16),
        "invalid": torch.zeros(2, dtype=torch.int64),
    }
