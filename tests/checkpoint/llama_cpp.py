"""llama.cpp, out of the package `xllamacpp`, with a file of planq's."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import numpy as np
import xllamacpp

if TYPE_CHECKING:
    from pathlib import Path

    from planq.audit.reference.formats import Array


class Server:
    """llama.cpp with one file, on one thread and in float32 where it can.

    Args:
        path: The file.
        embedding: Whether it gives embeddings, and no tokens.
    """

    def __init__(self, path: Path, *, embedding: bool = False) -> None:
        options = xllamacpp.CommonParams()
        options.model.path = str(path)
        options.embedding = embedding
        options.n_ctx, options.n_parallel, options.n_gpu_layers = 128, 1, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
        options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        options.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        options.warmup = False
        self._server = xllamacpp.Server(options)

    def logarithms(self, tokens: list[int], count: int) -> Array:
        """The logarithms of the probabilities of each of so many tokens after these."""
        request = {
            "prompt": tokens,
            "n_predict": 1,
            "logprobs": count,
            "temperature": 0,
            # Half a letter would come without probabilities, which are told as they were before.
            "logit_bias": [[tokens[-1], 1000.0]],
            "cache_prompt": False,
        }
        told = self._server.handle_completions(request)
        found = np.full(count, -np.inf)
        for each in told["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            found[each["id"]] = each["logprob"]
        return found

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, without any at its ends."""
        address = self._server.listening_address
        request = urllib.request.Request(
            f"{address}/tokenize",
            json.dumps({"content": text, "add_special": False}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return list(json.load(answer)["tokens"])

    def embedding(self, text: str | list[int]) -> Array:
        """The vector of a text, which may come as tokens."""
        told = self._server.handle_embeddings({"input": [text]})
        return np.array(told["data"][0]["embedding"])
