"""Gemma 3 by transformers, from the weights of a GGUF file: what a network of plans is beside.

A cache is static, as compilers and graphs need it: each layer has room for all tokens.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import torch

import planq
from harness.core.cuda import captured
from planq.networks.gemma3.sizes import BLOCKS, Sizes, stored, weights_of

Array = np.ndarray[Any, Any]
Run = Callable[[], object]
PRODUCTS: Final = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS: Final = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# How torch runs a step: a mode of torch.compile, if any, and whether we capture it in a graph.
MODES: Final[Mapping[str, tuple[str | None, bool]]] = {
    "eager": (None, False),
    "eager-graph": (None, True),
    "compiled-graph": ("default", True),
    "tuned-graph": ("max-autotune-no-cudagraphs", True),
    "reduce-overhead": ("reduce-overhead", False),
}


def release() -> str | None:
    """The release of transformers; None: it is not installed."""
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return None


class Peer:
    """The model on a device.

    Args:
        files: The model, as :class:`planq.networks.gemma3.Gemma3` takes it.
        device: As torch names it.
        dtype: Of weights and activations.
    """

    def __init__(self, files: Any, device: str, dtype: torch.dtype = torch.bfloat16) -> None:
        self.sizes, self.device = Sizes.of(files), device
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of what it imports only now.
            transformers = importlib.import_module("transformers")
            self.caches = importlib.import_module("transformers.cache_utils")
            made = transformers.Gemma3ForCausalLM(_config(transformers, self.sizes))
        made.load_state_dict(_state(files, self.sizes))
        self.model = made.to(device, dtype).eval()
        torch._dynamo.config.recompile_limit = 64  # type: ignore[attr-defined]

    def cache(self, length: int) -> Any:
        """A static one for so many tokens, which layers with a window fill like the others."""
        layers = [self.caches.StaticLayer(length) for _ in range(self.sizes.layers)]
        return self.caches.Cache(layers=layers)

    def masks(self, slots: torch.Tensor, position: torch.Tensor) -> dict[str, torch.Tensor]:
        """What tokens at positions, (1, tokens), see of the cache."""
        before = slots <= position[:, :, None]
        near = before & (slots > position[:, :, None] - self.sizes.window)
        return {"full_attention": before[:, None], "sliding_attention": near[:, None]}

    def likeliest(self, ids: Any, position: Any, masks: Any, cache: Any) -> torch.Tensor:
        """The next token of each text, (texts, 1)."""
        return self.logits(ids, position, masks, cache).argmax(-1, keepdim=True)

    def logits(self, ids: Any, position: Any, masks: Any, cache: Any) -> torch.Tensor:
        """Of the last token of each text."""
        found: torch.Tensor = self.model(
            input_ids=ids,
            position_ids=position,
            attention_mask=masks,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return found[:, -1]


class Decoding:
    """Texts that are continued together, a token of each in a step.

    Args:
        peer: The model.
        prompts: Tokens, (texts, tokens), which are in the cache when it begins.
        written: How many tokens follow.
    """

    def __init__(self, peer: Peer, prompts: Array, written: int) -> None:
        self.peer, self.written = peer, written
        texts, self.context = prompts.shape
        length = self.context + written
        self.cache = peer.cache(length)
        self.slots = torch.arange(length, device=peer.device)
        ids = torch.from_numpy(prompts).to(peer.device)
        self.first = self.forward(ids, self.slots[None, : self.context])
        self.ids = torch.zeros(texts, 1, dtype=torch.int64, device=peer.device)
        self.position = torch.zeros(1, 1, dtype=torch.int64, device=peer.device)
        self.rewind()

    def forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """The next token of each text."""
        masks = self.peer.masks(self.slots, position)
        return self.peer.likeliest(ids, position, masks, self.cache)

    def rewind(self) -> None:
        """Back to the prompts."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.context)
        self.position.fill_(self.context)
        self.ids.copy_(self.first)

    def run(self, mode: str) -> Run:
        """What writes all tokens in a mode, and tells the host each while the next one is made."""
        step = in_mode(mode, self.forward, self._stepped)
        self.rewind()
        step()  # compiled before anybody captures or measures it
        self.rewind()
        if MODES[mode][1]:
            step = captured(step)[0].replay
        return partial(self._write, step)

    def _stepped(self, forward: Callable[..., torch.Tensor]) -> None:
        """One step: the tokens and their positions are those of the next one then."""
        self.ids.copy_(forward(self.ids, self.position))
        self.position.add_(1)

    def _write(self, step: Run) -> list[list[int]]:
        self.rewind()
        made: list[list[int]] = []
        ahead: Fetched | None = None
        for _ in range(self.written):
            step()
            before, ahead = ahead, Fetched(self.ids)
            if before:
                made.append(before.tokens())
        assert ahead is not None
        return [*made, ahead.tokens()]


class Prompt:
    """A prompt in one step, up to the token that the host knows.

    Args:
        peer: The model.
        ids: The prompt.
    """

    def __init__(self, peer: Peer, ids: list[int]) -> None:
        self.peer = peer
        self.ids = torch.tensor([ids], device=peer.device)
        self.position = torch.arange(len(ids), device=peer.device)[None]
        self.cache = peer.cache(len(ids))
        # torch's fastest attention has no mask; a window that sees all of the prompt needs none.
        seen = peer.masks(self.position[0], self.position)
        near = None if len(ids) <= peer.sizes.window else seen["sliding_attention"]
        self.masks = {"full_attention": None, "sliding_attention": near}
        self.logits = self.peer.logits(self.ids, self.position, self.masks, self.cache).float()

    def forward(self) -> torch.Tensor:
        """The next token."""
        for layer in self.cache.layers:
            layer.cumulative_length.zero_()
        return self.peer.likeliest(self.ids, self.position, self.masks, self.cache)

    def run(self, mode: str) -> Run:
        """What reads the prompt in a mode, and waits for the token."""
        step = in_mode(mode, self.forward, lambda forward: forward())
        made = step()
        if MODES[mode][1]:
            graph, made = captured(step)
            return lambda: (graph.replay(), made.tolist())
        return lambda: step().tolist()


def in_mode(
    mode: str, forward: Callable[..., torch.Tensor], step: Callable[..., Any]
) -> Callable[[], Any]:
    """A step whose forward pass is compiled as the mode has it."""
    compiling, _ = MODES[mode]
    if compiling is None:
        return partial(step, forward)
    made = torch.compile(forward, mode=compiling, fullgraph=True, dynamic=False)

    def run() -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return step(made)

    return run


class Fetched:
    """A tensor on its way to the host."""

    def __init__(self, tensor: torch.Tensor) -> None:
        on_gpu = tensor.is_cuda
        self._held = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu)
        self._held.copy_(tensor, non_blocking=True)
        self._event: Any = torch.cuda.Event() if on_gpu else None
        if on_gpu:
            self._event.record()

    def tokens(self) -> list[int]:
        """Waits for it."""
        if self._event is not None:
            self._event.synchronize()
        found: list[int] = self._held.flatten().tolist()
        return found


def _config(transformers: Any, sizes: Sizes) -> Any:
    return transformers.Gemma3TextConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.hidden,
        intermediate_size=sizes.inner,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.key_heads,
        head_dim=sizes.head,
        query_pre_attn_scalar=sizes.head,
        sliding_window=sizes.window,
        layer_types=[
            f"{'sliding' if sizes.windowed(layer) else 'full'}_attention"
            for layer in range(sizes.layers)
        ],
        rms_norm_eps=sizes.epsilon,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in (
                ("full_attention", sizes.base),
                ("sliding_attention", sizes.windowed_base),
            )
        },
        attn_implementation="sdpa",
    )


def _state(files: Any, sizes: Sizes) -> dict[str, torch.Tensor]:
    """The weights by transformers' names."""
    found = {
        name: torch.from_numpy(floats_of(files, entry))
        for name, entry in weights_of(files, sizes).items()
    }
    state = {
        "model.embed_tokens.weight": found["token_embd"],
        "lm_head.weight": found["token_embd"],
        "model.norm.weight": found["output_norm"] - 1,  # a file has 1 + w for the norms
    }
    for layer in range(sizes.layers):
        own, theirs = f"blk.{layer}.", f"model.layers.{layer}."
        state |= {f"{theirs}{to}.weight": found[own + name] for name, to in PRODUCTS.items()}
        state |= {f"{theirs}{to}.weight": found[own + name] - 1 for name, to in NORMS.items()}
    return state


def floats_of(files: Any, entry: Any) -> Array:
    """A tensor of a file in float32."""
    shape, kind = stored(entry)
    data = files.tensor(entry).view(kind).reshape(shape)
    if entry.dtype not in BLOCKS:
        return np.array(data)
    desc = planq.GgufDequantizeDescriptor(
        shape=entry.shape, type=BLOCKS[entry.dtype], output_dtype="float32"
    )
    plan = planq.Plan.select(planq.HOST, desc)
    outputs = plan.empty_outputs(np)
    plan.run(planq.HOST, None, planq.GgufDequantizeArgs(input=data, **outputs))
    made: Array = outputs["output"]
    return made
