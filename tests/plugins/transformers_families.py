"""A tiny random model of every recurrent family of the installed transformers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

VOCABULARY = 40
#: What configs call a layer that is recurrent, whatever else it holds.
RECURRENT = {"linear_attention", "mamba", "hybrid", "recurrent"}


@dataclass(frozen=True)
class Family:
    """A folder of the library, the model type to build, its cell and small sizes."""

    folder: str
    cell: str
    model_type: str
    sizes: dict[str, Any] = field(default_factory=dict)
    variant: str = ""

    def __str__(self) -> str:
        return f"{self.folder}-{self.variant}" if self.variant else self.folder

    def config(self) -> Any:
        from transformers import AutoConfig

        return AutoConfig.for_model(
            self.model_type,
            **{**COMMON, **self.sizes},
            attn_implementation="eager",
            experts_implementation="eager",
        )

    def build(self, seed: int = 0) -> nn.Module:
        """A model in evaluation mode, drawn without touching the global generator.

        The library starts with weights so small that the recurrences hardly reach the output.
        """
        from transformers import AutoModel

        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed)
            model = AutoModel.from_config(self.config()).eval()
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter += 0.3 * torch.randn_like(parameter)
        return model

    def recurrent_layers(self) -> list[int]:
        """Which layers the config says are recurrent; all where it tells no types."""
        config = self.config()
        types = getattr(config, "layers_block_type", None) or getattr(config, "layer_types", None)
        count = config.num_hidden_layers
        return [i for i in range(count) if types is None or types[i] in RECURRENT]


COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
MIXED = ["linear_attention", "full_attention", "linear_attention"]
#: Two layers that share one attention block.
HYBRID = {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"]}
MAMBA = {"state_size": 4, "time_step_rank": 2}
MAMBA2 = {**MAMBA, "num_heads": 4, "head_dim": 8, "n_groups": 2, "chunk_size": 8}
JAMBA = {"mamba_d_state": 4, "mamba_dt_rank": 2}
HEADS = {"mamba_d_state": 4, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_chunk_size": 8}
DELTA = {
    "layer_types": MIXED,
    "head_dim": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
LATENT = {
    "layer_types": MIXED,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "n_group": 1,
    "topk_group": 1,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
KIMI = {**LATENT, "linear_head_dim": 8, "linear_num_heads": 2}

FAMILIES = [
    Family("mamba", "mamba1", "mamba", MAMBA),
    Family("falcon_mamba", "mamba1", "falcon_mamba", MAMBA),
    Family(
        "jamba",
        "mamba1",
        "jamba",
        {**JAMBA, "num_experts": 2, "attn_layer_period": 3, "attn_layer_offset": 1},
    ),
    Family("zamba", "mamba1", "zamba", {**JAMBA, **HYBRID}),
    Family("mamba2", "mamba2", "mamba2", MAMBA2),
    Family(
        "zamba2",
        "mamba2",
        "zamba2",
        {
            "mamba_d_state": 4,
            "n_mamba_heads": 4,
            "chunk_size": 8,
            **HYBRID,
        },
    ),
    Family("bamba", "mamba2", "bamba", {**HEADS, "attn_layer_indices": [1]}),
    Family("falcon_h1", "mamba2", "falcon_h1", {**HEADS, "mamba_d_ssm": 32}),
    Family(
        "granitemoehybrid",
        "mamba2",
        "granitemoehybrid",
        {
            **HEADS,
            "layer_types": MIXED,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 16,
        },
    ),
    Family(
        "nemotron_h",
        "mamba2",
        "nemotron_h",
        {
            "layers_block_type": ["linear_attention", "full_attention", "mlp", "linear_attention"],
            "num_hidden_layers": 4,
            "ssm_state_size": 4,
            "mamba_num_heads": 4,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "chunk_size": 8,
            "head_dim": 8,
        },
    ),
    Family("qwen3_next", "gated-delta", "qwen3_next", {**DELTA, **EXPERTS}),
    Family("qwen3_5", "gated-delta", "qwen3_5_text", DELTA),
    Family("qwen3_5_moe", "gated-delta", "qwen3_5_moe_text", {**DELTA, **EXPERTS}),
    Family(
        "qwen4_exp",
        "gated-delta",
        "qwen4_exp_text",
        {
            **DELTA,
            **EXPERTS,
            "hc_count": 2,
            "hc_lowrank": 4,
            "indexer_n_heads": 2,
            "indexer_kv_heads": 1,
            "indexer_head_dim": 8,
            "indexer_budget": 8,
            "indexer_compress_ratio": 2,
        },
    ),
    Family("olmo_hybrid", "gated-delta", "olmo_hybrid", {**DELTA, "linear_a_log_min": 0.5}),
    Family("kimi_linear", "kimi-delta", "kimi_linear", KIMI),
    Family(
        "bailing_hybrid",
        "kimi-delta",
        "bailing_hybrid",
        {**LATENT, "head_dim": 8, "num_mtp_layers": 0},
    ),
    Family(
        "glm5_next",
        "kimi-delta",
        "glm5_next_text",
        {
            **KIMI,
            "q_lora_rank": 8,
            "qk_rope_head_dim": 0,
            "n_routed_experts": 4,
            "index_topk": 8,
            "index_head_dim": 8,
            "index_n_heads": 2,
            "index_kpool": 2,
            "hc_mult": 2,
        },
    ),
    Family(
        "minimax",
        "lightning",
        "minimax",
        {"layer_types": MIXED, "num_local_experts": 4, "block_size": 8},
    ),
    Family(
        "recurrent_gemma",
        "rg-lru",
        "recurrent_gemma",
        {"block_types": ["recurrent", "attention", "recurrent"], "attention_window_size": 16},
    ),
    Family("rwkv", "rwkv", "rwkv", {"attention_hidden_size": 16}),
    Family(
        "xlstm",
        "mlstm",
        "xlstm",
        {"num_heads": 2, "chunk_size": 8, "autocast_kernel_dtype": "float32"},
    ),
    Family(
        "bailing_hybrid",
        "kimi-delta",
        "bailing_hybrid",
        {**LATENT, "head_dim": 8, "num_mtp_layers": 0, "kda_safe_gate": False},
        variant="unbounded",
    ),
    Family("mamba2", "mamba2", "mamba2", {**MAMBA2, "time_step_limit": (0.01, 0.02)}, "limited"),
]
