"""The encoder of a sentence transformer in torch, its products replaced, sentences, and digests.

The programs beside it replace products by those of planq, which derive from Product. For digests
these are fed what a run on the host fed them, because softmax, normalization and activation between
them are torch's, whose bits are of one machine.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import gelu, normalize, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Tokens of a batch come in multiples of it, because the fast kernels of tensor cores take matrices
# whose rows, such as those of attention's probabilities, are multiples of 16 bytes.
ALIGNED = 8
SENTENCES = (Path(__file__).parent / "sentences.txt").read_text().splitlines()


class Attention(Module):
    """Attention of all heads, as torch has it."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, mask)


class Layer(Module):
    """One of the encoder's layers; its members are called as the checkpoint's weights are."""

    def __init__(self, width: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.attend = Attention()
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
        heard = self.attend(query, key, value, mask[:, None, None])
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
        from safetensors.torch import load_file

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


class Product(Module):
    """A product in the place of one of the model's.

    Attributes:
        takes: The type of its operands, to which they are rounded.
        squares: Of each operand, and at last of the result, whether it is tokens by tokens; the
            others have tokens on the last axis but one alone.
        made_of: What its class makes it of again, on the host.
        multiply: Makes a result in float32 of operands of that type; each class defines its own.
    """

    takes: ClassVar[torch.dtype] = torch.float32
    squares: ClassVar[tuple[bool, ...]] = (False, False)
    multiply: Callable[..., torch.Tensor]

    def __init__(self, *made_of: torch.Tensor) -> None:
        super().__init__()
        self.made_of = made_of

    def forward(self, *operands: torch.Tensor) -> torch.Tensor:
        return self.multiply(*(x.to(self.takes) for x in operands))


class Scheme(NamedTuple):
    """Products that replace those of the model.

    Attributes:
        name: What to call it.
        least: The mean cosine of embeddings to those of float32 must not be smaller.
        makers: What makes the model's modules anew, by their types.
        kinds: The classes of the products in what is made.
    """

    name: str
    least: float
    makers: dict[type[Module], Callable[[Any], Module]]
    kinds: tuple[type[Product], ...]


class Batch(NamedTuple):
    """Sentences as the model takes them, and how many tokens each has."""

    inputs: dict[str, torch.Tensor]
    lengths: list[int]


def tokenized(folder: Path) -> Batch:
    """The sentences, padded."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding(pad_to_multiple_of=ALIGNED)
    tokens = tokenizer.encode_batch(SENTENCES)
    mask = torch.tensor([each.attention_mask for each in tokens])
    ids = torch.tensor([each.ids for each in tokens])
    return Batch({"input_ids": ids, "attention_mask": mask}, mask.sum(1).tolist())


def ways(count: int) -> dict[str, list[list[int]]]:
    """Which of so many sentences are computed together, and in which order."""
    every = list(range(count))
    return {"alone": [[one] for one in every], "together": [every], "reversed": [every[::-1]]}


def devices() -> list[str]:
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def embeddings(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """One unit vector for each sentence: the mean over its tokens."""
    return normalize((states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=-1)


class Expected(NamedTuple):
    """What the float32 model makes of the sentences, and whose it is."""

    whose: str
    states: torch.Tensor


def floating(folder: Path, batch: Batch) -> Expected:
    """Of transformers' model where it is installed, else of the one above."""
    try:
        from transformers import AutoModel
    except ModuleNotFoundError:
        return Expected("torch", Encoder(folder)(**batch.inputs))
    model = AutoModel.from_pretrained(folder).float()
    return Expected("transformers", model(**batch.inputs).last_hidden_state)


@dataclass(frozen=True)
class Fed:
    """A product, and what the model feeds it."""

    name: str
    product: Product
    operands: tuple[torch.Tensor, ...]


def recorded(model: Encoder, batch: Batch) -> list[Fed]:
    """Every product with its operands for these sentences, in the order of the run."""
    fed, hooks = [], []
    for name, module in model.named_modules():
        if isinstance(module, Product):
            hooks.append(
                module.register_forward_hook(
                    lambda product, given, made, name=name: fed.append(Fed(name, product, given))
                )
            )
    model(**batch.inputs)
    for hook in hooks:
        hook.remove()
    return fed


def cut(x: torch.Tensor, tokens: int, *, square: bool) -> torch.Tensor:
    """The part of the first tokens."""
    return x[..., :tokens, :tokens] if square else x[..., :tokens, :]


class Digests(NamedTuple):
    """Of the results of all products, and of each alone."""

    every: str
    each: list[str]


def digests(
    fed: Iterable[Fed], lengths: list[int], batches: list[list[int]], device: str
) -> Digests:
    """Of the products' results for all tokens, whatever sentences are computed together.

    Padding has no part in it, and none in the results: a sentence's probabilities of tokens beyond
    its end are exactly 0, and to a sum of tensor cores a product that is 0 adds nothing.
    """
    every, found = hashlib.sha256(), []
    for each in fed:
        alone = hashlib.sha256()
        for result in _results(each, lengths, batches, device):
            bits = result.cpu().numpy()
            every.update(bits)
            alone.update(bits)
        found.append(alone.hexdigest())
    return Digests(every.hexdigest(), found)


def digest(fed: Iterable[Fed], lengths: list[int], batches: list[list[int]], device: str) -> str:
    """That of all products."""
    return digests(fed, lengths, batches, device).every


def _results(
    fed: Fed, lengths: list[int], batches: list[list[int]], device: str
) -> Iterator[torch.Tensor]:
    """Those of each sentence."""
    *given, squared = fed.product.squares
    made = {}
    for together in batches:
        longest = max(lengths[one] for one in together)
        longest += -longest % ALIGNED
        operands = (
            cut(x[together], longest, square=square).to(device)
            for x, square in zip(fed.operands, given, strict=True)
        )
        made.update(zip(together, fed.product(*operands), strict=True))
    for one, length in enumerate(lengths):
        yield cut(made[one], length, square=squared).contiguous()


class Rows(NamedTuple):
    """Linear layers whose rows were computed alone.

    Attributes:
        count: How many they are.
        other: The names of those of which a row had other bits than among all rows.
    """

    count: int
    other: list[str]

    def __str__(self) -> str:
        right = self.count - len(self.other)
        lines = [f"{right} of {self.count} products have the bits that they have among all rows"]
        return "\n".join((*lines, *(f"  other bits: {name}" for name in self.other)))


def rows_alone(fed: Iterable[Fed], lengths: list[int], device: str) -> Rows:
    """Computes one token of each sentence alone, as an engine that writes text does.

    Products of tokens by tokens have no rows of their own, and are left out.
    """
    linear, other = [each for each in fed if not any(each.product.squares)], []
    places = [one % length for one, length in enumerate(lengths)]
    for each in linear:
        (x,) = (x.to(device) for x in each.operands)
        among = each.product(x)[range(len(places)), places]
        alone = torch.cat([each.product(x[one, [at]]) for one, at in enumerate(places)])
        if alone.cpu().numpy().tobytes() != among.cpu().numpy().tobytes():
            other.append(each.name)
    return Rows(len(linear), other)


def compare(
    scheme: Scheme, model: Encoder, batch: Batch, expected: Expected
) -> tuple[bool, list[Fed]]:
    """Prints how near the embeddings are, the digest on every device and in every way, and rows.

    Args:
        scheme: The products.
        model: One whose products they replace.
        batch: The sentences.
        expected: Of float32.

    Returns:
        Whether there is one digest, rows alone have the bits that they have among others, and
        embeddings are near; and the products.
    """
    model = replaced(model, scheme.makers)
    fed, mask = recorded(model, batch), batch.inputs["attention_mask"]
    print(f"{len(fed)} products in {scheme.name}, compared with float32 of {expected.whose}")
    right, digests = True, set()
    for device in devices():
        here = {name: each.to(device) for name, each in batch.inputs.items()}
        states = model.to(device)(**here).cpu()
        cosine = (embeddings(states, mask) * embeddings(expected.states, mask)).sum(-1)
        print(f"{device}: cosine {cosine.mean():.5f} on average, {cosine.min():.5f} at least")
        for name, batches in ways(len(batch.lengths)).items():
            digests.add(found := digest(fed, batch.lengths, batches, device))
            print(f"{device}, {name}: {found}")
        rows = rows_alone(fed, batch.lengths, device)
        print(f"{device}, rows alone: {rows}")
        right = right and not rows.other and bool(cosine.mean() >= scheme.least)
    model.cpu()  # Its products go back to the caller, who may record them.
    return right and len(digests) == 1, fed


def replaced(model: Encoder, makers: dict[type[Module], Callable[[Any], Module]]) -> Encoder:
    """The same model with every module of these types made anew."""
    model = copy.deepcopy(model)
    for name, module in list(model.named_modules()):
        if maker := makers.get(type(module)):
            model.set_submodule(name, maker(module))
    return model
