"""Tiny random models of many families of transformers, and ways to open them."""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from memaudit.interfaces import Request
from memaudit.loading.access import Access
from memaudit.loading.source import parse_source
from memaudit_transformers import TransformersAdapter
from memaudit_transformers.subject import TransformersSubject

WORDS = 50
WIDTH = 32
PLACES = 24

_COMMON = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2}
_ENCODER = {
    **_COMMON,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": PLACES,
    "pad_token_id": 0,
}
_DECODER = {
    **_ENCODER,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT2 = {"vocab_size": WORDS, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": PLACES}
_JAMBA = {
    **_DECODER,
    **{"num_hidden_layers": 4, "num_experts": 4, "mamba_d_state": 4},
    **{"attn_layer_period": 2, "attn_layer_offset": 1},
    **{"expert_layer_period": 2, "expert_layer_offset": 1},
}
_BART = {
    **{"vocab_size": WORDS, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2},
    **{"encoder_attention_heads": 4, "decoder_attention_heads": 4},
    **{"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": PLACES},
}
_T5 = {
    "vocab_size": WORDS,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
_GEMMA = {**_DECODER, "lru_width": WIDTH, "attention_window_size": 16, "num_hidden_layers": 3}
_XLSTM = {**_COMMON, "embedding_dim": WIDTH, "num_blocks": 2}
_OPT = {"vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": 2, "ffn_dim": 48}
_DISTIL = {"vocab_size": WORDS, "dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}

#: name → class, config class, values of the config.
ZOO: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", _ENCODER),
    "bert bare": ("BertModel", "BertConfig", _ENCODER),
    "bert words": ("BertForMaskedLM", "BertConfig", _ENCODER),
    "bert tags": ("BertForTokenClassification", "BertConfig", _ENCODER),
    "bert answers": ("BertForQuestionAnswering", "BertConfig", _ENCODER),
    "bert pretraining": ("BertForPreTraining", "BertConfig", _ENCODER),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {**_ENCODER, "pad_token_id": 1}),
    "distilbert": (
        "DistilBertForSequenceClassification",
        "DistilBertConfig",
        {**_DISTIL, "max_position_embeddings": PLACES},
    ),
    "modernbert": (
        "ModernBertForSequenceClassification",
        "ModernBertConfig",
        {**_DECODER, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    ),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**_ENCODER, "embedding_size": 16}),
    "electra": ("ElectraForPreTraining", "ElectraConfig", {**_ENCODER, "embedding_size": 16}),
    "deberta": ("DebertaV2Model", "DebertaV2Config", _ENCODER),
    "mpnet": ("MPNetModel", "MPNetConfig", {**_ENCODER, "pad_token_id": 1}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "gpt2 scores": ("GPT2ForSequenceClassification", "GPT2Config", _GPT2),
    "gptneox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _ENCODER),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {**_OPT, "num_attention_heads": 4, "max_position_embeddings": PLACES}
        | {"word_embed_proj_dim": WIDTH},
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {**_GPT2, "hidden_size": WIDTH}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DECODER),
    "llama scores": (
        "LlamaForSequenceClassification",
        "LlamaConfig",
        {**_DECODER, "pad_token_id": None},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _DECODER),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**_DECODER, "num_local_experts": 4}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**_DECODER, "head_dim": 8}),
    "t5": ("T5ForConditionalGeneration", "T5Config", _T5),
    "bart": ("BartForConditionalGeneration", "BartConfig", _BART),
    "mamba": ("MambaForCausalLM", "MambaConfig", {**_COMMON, "state_size": 4}),
    "mamba2": (
        "Mamba2ForCausalLM",
        "Mamba2Config",
        {**_COMMON, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8},
    ),
    "rwkv": (
        "RwkvForCausalLM",
        "RwkvConfig",
        {**_COMMON, "num_hidden_layers": 4, "attention_hidden_size": WIDTH, "rescale_every": 2},
    ),
    "recurrentgemma": ("RecurrentGemmaForCausalLM", "RecurrentGemmaConfig", _GEMMA),
    "xlstm": ("xLSTMForCausalLM", "xLSTMConfig", {**_XLSTM, "num_heads": 4, "chunk_size": 8}),
    "jamba": ("JambaForCausalLM", "JambaConfig", _JAMBA),
}


def make(name: str, **changed: Any) -> Any:
    """A model of the zoo with weights of its own; the global generator stays as it was."""
    kind, config, values = ZOO[name]
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some families warn when they are imported
        torch.manual_seed(7)
        settings = getattr(transformers, config)(**{**values, **changed})
        model = getattr(transformers, kind)(settings).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def saved(model: Any, folder: Path) -> Path:
    """A folder as `save_pretrained` writes it."""
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> Path:
    """The folder, with its tensors changed."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def configured(folder: Path, **changed: Any) -> Path:
    """The folder, with its config changed; None removes a key."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changed}
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return folder


def opened(
    source: Any,
    dtype: torch.dtype | None = None,
    *,
    access: Access | None = None,
    **options: Any,
) -> TransformersSubject:
    """What the adapter makes of a source."""
    where = parse_source(source) if access is None else parse_source(source, access=access)
    request = Request(torch.device("cpu"), dtype, None, options=options)
    subject = TransformersAdapter().load(where, request)
    assert isinstance(subject, TransformersSubject)
    return subject


@functools.cache
def tiny(name: str) -> TransformersSubject:
    """The subject of a saved model of the zoo, made once: a subject keeps nothing of a call."""
    with tempfile.TemporaryDirectory() as folder:
        return opened(saved(make(name), Path(folder)))


@contextmanager
def code_cache(folder: Path) -> Iterator[None]:
    """While open, trusted code is copied to a place that is not the user's, and forgotten."""
    from transformers import dynamic_module_utils

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
            del sys.modules[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(folder))
        forget()
        yield
        forget()


def noise(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=dtype)


def ids(*shape: int, words: int = WORDS) -> torch.Tensor:
    return torch.randint(4, words, shape, generator=torch.Generator().manual_seed(3))


def write_tokenizer(folder: Path, words: int = WORDS) -> Path:
    """A tokenizer.json of whole words, with [CLS] in front of a text and [SEP] behind it."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
    vocabulary |= {f"w{i}": i for i in range(4, words)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    made.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    made.post_processor = processors.TemplateProcessing(  # type: ignore[assignment]
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=9)
    made.enable_truncation(max_length=3)
    made.save(str(folder / "tokenizer.json"))
    return folder
