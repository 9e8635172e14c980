"""Small models of many architectures with random weights, and what they make of some input."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    import transformers

    logging.disable(logging.NOTSET)

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
_LLAMA = {**_TEXT, "num_key_value_heads": 2}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 100}
_IMAGE = {key: value for key, value in _TEXT.items() if key != "vocab_size"}
_IMAGE |= {"image_size": 32, "patch_size": 8}
_OPT = {key: value for key, value in _TEXT.items() if key != "intermediate_size"}
_OPT |= {"ffn_dim": 128, "word_embed_proj_dim": 64}
_BART = {
    "d_model": 64,
    "vocab_size": 100,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 128 for side in ("encoder", "decoder")},
}
_WHISPER = {
    **_BART,
    "num_mel_bins": 16,
    "max_source_positions": 20,
    "max_target_positions": 30,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}


@dataclass(frozen=True)
class Small:
    """A class of transformers, and a small config of it."""

    name: str
    config: dict[str, Any]


# By name: as many kinds of names, of tied weights and of layers as there are.
MODELS = {
    "albert": Small("AlbertForMaskedLM", {**_TEXT, "embedding_size": 32}),
    "bart": Small("BartForConditionalGeneration", _BART),
    "bert": Small("BertModel", _TEXT),
    "bert-masked": Small("BertForMaskedLM", _TEXT),
    "bloom": Small("BloomForCausalLM", {**_GPT, "hidden_size": 64}),
    "clip": Small(
        "CLIPModel",
        {
            "text_config": {**_TEXT, "max_position_embeddings": 32, "projection_dim": 64},
            "vision_config": {**_IMAGE, "projection_dim": 64},
            "projection_dim": 64,
        },
    ),
    "deberta": Small(
        "DebertaV2Model",
        {
            **_TEXT,
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
        },
    ),
    "distilbert": Small(
        "DistilBertForMaskedLM",
        {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "vocab_size": 100},
    ),
    "electra": Small("ElectraForMaskedLM", {**_TEXT, "embedding_size": 32}),
    "falcon": Small("FalconForCausalLM", _TEXT),
    "gemma": Small("GemmaForCausalLM", {**_LLAMA, "head_dim": 16}),
    "gemma2": Small("Gemma2ForCausalLM", {**_LLAMA, "head_dim": 16}),
    "gpt-neox": Small("GPTNeoXForCausalLM", _TEXT),
    "gpt2": Small("GPT2LMHeadModel", _GPT),
    "gptj": Small("GPTJForCausalLM", {**_GPT, "rotary_dim": 8}),
    "llama": Small("LlamaForCausalLM", _LLAMA),
    "llama-tied": Small("LlamaForCausalLM", {**_LLAMA, "tie_word_embeddings": True}),
    "mbart": Small("MBartForConditionalGeneration", _BART),
    "mistral": Small("MistralForCausalLM", _LLAMA),
    "mixtral": Small("MixtralForCausalLM", {**_LLAMA, "num_local_experts": 4}),
    "mpnet": Small("MPNetModel", _TEXT),
    "mpt": Small("MptForCausalLM", {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 100}),
    "opt": Small("OPTForCausalLM", _OPT),
    "opt-projected": Small("OPTForCausalLM", {**_OPT, "word_embed_proj_dim": 32}),
    "phi": Small("PhiForCausalLM", _TEXT),
    "phi3": Small("Phi3ForCausalLM", {**_LLAMA, "pad_token_id": 0}),
    "qwen2": Small("Qwen2ForCausalLM", {**_LLAMA, "tie_word_embeddings": True}),
    "qwen2-moe": Small(
        "Qwen2MoeForCausalLM",
        {
            **_LLAMA,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
            "num_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
    "qwen3": Small("Qwen3ForCausalLM", {**_LLAMA, "head_dim": 16}),
    "roberta": Small("RobertaForSequenceClassification", _TEXT),
    "t5": Small(
        "T5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 99},
    ),
    "vit": Small("ViTForImageClassification", _IMAGE),
    "whisper": Small("WhisperForConditionalGeneration", _WHISPER),
    "xlm-roberta": Small("XLMRobertaForMaskedLM", _TEXT),
}


def build(name: str) -> Any:
    """A model with random weights, the same ones each time."""
    small = MODELS[name]
    kind = getattr(transformers, small.name)
    torch.manual_seed(0)
    model = kind(kind.config_class(**small.config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.08)
    return model


def save(name: str, folder: Path) -> torch.Tensor:
    """Writes a model into a folder, and returns its answer."""
    model = build(name)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    model.save_pretrained(folder)
    return answer(name, model)


def load(name: str, folder: Path) -> Any:
    """The model of a folder, of which every weight has to be found, and no other."""
    kind = getattr(transformers, MODELS[name].name)
    model, told = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    return model.eval()


def answer(name: str, model: Any) -> torch.Tensor:
    """What a model makes of sixteen tokens, a picture or a sound; one vector."""
    tokens = torch.arange(3, 19)[None]
    picture = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
    sound = torch.linspace(-1, 1, 16 * 40).reshape(1, 16, 40)
    given = {
        "vit": {"pixel_values": picture},
        "clip": {"input_ids": tokens, "pixel_values": picture},
        "whisper": {"input_features": sound, "decoder_input_ids": tokens[:, :8]},
        **{
            name: {"input_ids": tokens, "decoder_input_ids": tokens}
            for name in ("t5", "bart", "mbart")
        },
    }.get(name, {"input_ids": tokens})
    with torch.no_grad():
        out = model(**given)
    if "text_embeds" in out:
        return torch.cat([out["text_embeds"].flatten(), out["image_embeds"].flatten()])
    found: torch.Tensor = out["logits" if "logits" in out else "last_hidden_state"]
    return found.flatten().float()
