"""Low-rank adapters of PEFT, merged in memory into the model that they were made for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memaudit.errors import SourceError, clean, listed
from memaudit.extras import needs
from memaudit.loading import require_finite

if TYPE_CHECKING:
    from memaudit.loading.adapters import Adapter

#: What decides the weights of a LoRA; all else says how it was trained, or names code.
SETTINGS = (
    *("r", "lora_alpha", "target_modules", "exclude_modules", "modules_to_save", "bias"),
    *("fan_in_fan_out", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "lora_bias"),
    *("layers_to_transform", "layers_pattern", "target_parameters", "task_type"),
)


def merge(model: Any, adapter: Adapter, source: str) -> tuple[Any, str]:
    """The model with the adapter in its weights, and a sentence on what was merged."""
    with needs("peft", extra="peft"):
        from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    kind = adapter.settings.get("peft_type")
    if kind != "LORA":
        raise _refused(f"an adapter of the type {clean(kind)}", "merge it into its base with peft")
    require_finite(adapter.tensors, source=source)
    largest = max((len(t) for n, t in adapter.tensors.items() if ".lora_A." in n), default=0)
    ranks = [adapter.settings.get("r"), *dict(adapter.settings.get("rank_pattern") or {}).values()]
    if not all(isinstance(rank, int) and 0 < rank <= largest for rank in ranks):
        fact = f"an adapter whose weights have the rank {largest}, and whose settings say otherwise"
        raise _refused(fact, "save it again with peft")
    known = {name: adapter.settings[name] for name in SETTINGS if name in adapter.settings}
    try:
        # A seed of its own: the numbers that peft draws are all replaced.
        with torch.random.fork_rng(devices=[]):
            made = get_peft_model(model, LoraConfig(**known, inference_mode=True))
        own = {name for name, _ in made.named_parameters() if "lora_" in name}
        found = set_peft_model_state_dict(made, dict(adapter.tensors))
    except (ValueError, TypeError, RuntimeError, KeyError, AttributeError) as error:
        fact = f"an adapter that does not fit its base: {clean(error, limit=300)}"
        raise _refused(fact, "name another with --set base=PATH_OR_HUB_ID") from None
    missing = own.intersection(found.missing_keys)
    if missing or found.unexpected_keys:
        odd = listed(map(clean, sorted(missing) or found.unexpected_keys), most=4)
        fact = f"an adapter that does not fit its base: {'without' if missing else 'with'} {odd}"
        raise _refused(fact, "name another with --set base=PATH_OR_HUB_ID")
    pairs = sum(name.endswith("lora_A.weight") for name in adapter.tensors)
    words = (
        f"a LoRA of rank {clean(adapter.settings.get('r'))} on {pairs} layers was merged by peft"
    )
    return made.merge_and_unload(), words


def _refused(fact: str, hint: str) -> SourceError:
    return SourceError("E_WEIGHTS", f"this is {fact}", hint=hint, stage="open")
