"""A vocabulary of a few words, as a GGUF file has it."""

from __future__ import annotations

import numpy as np

NORMAL, CONTROL, USER, BYTE = 1, 3, 4, 6
JOINED = ["ab", "ba", "aba", "▁a", "ca", "cab", "▁▁", "bc", "abc", "aa", "aaa", "é▁", "c▁a"]
VOCABULARY = [
    *((token, CONTROL, -1000.0) for token in ("<pad>", "<eos>", "<bos>", "<unk>")),
    *((token, CONTROL, -1000.0) for token in ("<turn>", "<end_of_turn>")),
    *((token, USER, -1000.0) for token in ("\n\n", "\n\n\n", "<b>", "a<b>")),
    *((f"<0x{byte:02X}>", BYTE, -1000.0) for byte in range(256)),
    # Some of one score.
    *((token, NORMAL, -float(i // 2)) for i, token in enumerate(JOINED)),
    *((token, NORMAL, -50.0 - i) for i, token in enumerate("abc▁Zé\n<>0x4")),
]
METADATA = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": [token for token, _, _ in VOCABULARY],
    "tokenizer.ggml.scores": np.array([score for _, _, score in VOCABULARY], np.float32),
    "tokenizer.ggml.token_type": np.array([kind for _, kind, _ in VOCABULARY], np.int32),
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.eos_token_id": 1,
}
