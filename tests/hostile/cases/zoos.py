"""Folders of the model zoos that lie about their model, its code, its weights or its tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.hostile.case import Case, Outcome, Scene

DEMOS = Path(__file__).resolve().parents[3] / "memaudit" / "demos"
OPTIONS = ("--quick", "--horizon", "8", "--query", "impulse", "--json", "report.json")
#: The zoo's library is imported first, which takes seconds and memory of its own.
PATIENT: dict[str, Any] = {"seconds": 90.0, "megabytes": 1500.0}
Weights = dict[str, Tensor]


def model(
    change: Callable[[dict[str, Any], Weights, Scene], object] | None = None,
    *options: str,
    demo: str = "bert",
    **files: bytes,
) -> Callable[[Scene], list[str]]:
    """A demo with its config and weights changed, and other files beside them."""

    def arrange(scene: Scene) -> list[str]:
        shutil.copytree(DEMOS / demo, scene.inputs, dirs_exist_ok=True)
        config = json.loads((scene.inputs / "config.json").read_text())
        weights = load_file(scene.inputs / "model.safetensors")
        if change is not None:
            change(config, weights, scene)
        (scene.inputs / "config.json").write_text(json.dumps(config))
        save_file(weights, scene.inputs / "model.safetensors")
        for name, content in files.items():
            (scene.inputs / name.replace("__", ".")).write_bytes(content)
        return ["scan", str(scene.inputs), *OPTIONS, *options]

    return arrange


def with_code(config: dict[str, Any], weights: Weights, scene: Scene) -> None:
    """A model whose code lies in the repository and would leave a trace."""
    del weights
    trace = f"open({str(scene.canary)!r}, 'w').close()\n"
    (scene.inputs / "configuration_evil.py").write_text(trace + "class EvilConfig: ...\n")
    (scene.inputs / "modeling_evil.py").write_text(trace + "class EvilModel: ...\n")
    config["auto_map"] = {
        "AutoConfig": "configuration_evil.EvilConfig",
        "AutoModel": "modeling_evil.EvilModel",
    }


def unknown_with_code(config: dict[str, Any], weights: Weights, scene: Scene) -> None:
    with_code(config, weights, scene)
    config["model_type"] = "evil"


def no_tokenizer(outcome: Outcome) -> None:
    """The curve of the text says why there is none, the other one is there."""
    memory = outcome.curves()
    assert memory["context"]["status"] == "no_tokenizer"
    assert memory["impulse"]["values"]


def of_bert(outcome: Outcome) -> None:
    """The library's own class was built, whatever the config says."""
    assert "BertForSequenceClassification" in outcome.report()["subject"]["description"]


def refused(name: str, change: Any, code: str, says: str = "", **more: Any) -> Case:
    return Case("zoos", name, model(change, **more), 3, code, says=says, **PATIENT)


def fine(
    name: str, arrange: Callable[[Scene], list[str]], check: Callable[[Outcome], None] | None = None
) -> Case:
    return Case("zoos", name, arrange, 0, check=check, writes=("report.json",), **PATIENT)


def pop(weights: Weights, name: str) -> None:
    assert weights.pop(name, None) is not None


TEXT = ("--query", "context")
HEAD = "classifier.weight"
CASES = [
    fine("an honest folder", model(), of_bert),
    refused("a tensor is missing", lambda c, w, s: pop(w, HEAD), "E_WEIGHTS", HEAD),
    refused(
        "an unknown tensor in a layer",
        lambda c, w, s: w.update({"bert.encoder.layer.0.extra.weight": torch.ones(2, 2)}),
        "E_WEIGHTS",
        "extra",
    ),
    refused(
        "a tensor of another shape",
        lambda c, w, s: w.update({HEAD: torch.ones(2, 47)}),
        "E_WEIGHTS",
        HEAD,
    ),
    refused("no tensor fits", lambda c, w, s: (w.clear(), w.update(a=torch.ones(2))), "E_WEIGHTS"),
    refused(
        "a weight is not a number",
        lambda c, w, s: w[HEAD].fill_(float("nan")),
        "E_NONFINITE",
        HEAD,
    ),
    refused(
        "more layers than the weights",
        lambda c, w, s: c.update(num_hidden_layers=3),
        "E_WEIGHTS",
        "layer.2",
    ),
    refused(
        "heads that do not divide", lambda c, w, s: c.update(num_attention_heads=5), "E_CONFIG"
    ),
    refused("an activation that is none", lambda c, w, s: c.update(hidden_act="evil"), "E_CONFIG"),
    refused("a billion tokens", lambda c, w, s: c.update(vocab_size=10**9), "E_LIMIT"),
    refused("a million layers", lambda c, w, s: c.update(num_hidden_layers=10**6), "E_LIMIT"),
    refused("an unknown model type", lambda c, w, s: c.update(model_type="evil"), "E_UNSUPPORTED"),
    refused("code in the repository", unknown_with_code, "E_UNSUPPORTED", "trust"),
    fine("code that is not needed", model(with_code), of_bert),
    fine("an architecture of code", model(lambda c, w, s: c.update(architectures=["os.system"]))),
    fine(
        "a kernel from somewhere",
        model(lambda c, w, s: c.update(_attn_implementation="evil/kernel")),
        of_bert,
    ),
    fine("no tokenizer that can be read", model(None, *TEXT, tokenizer__json=b"{"), no_tokenizer),
    fine(
        "a tokenizer of another size",
        model(lambda c, w, s: None, *TEXT, tokenizer__json=b"", vocab__txt=b"a\n" * 70_000),
        no_tokenizer,
    ),
    Case(
        "zoos",
        "an unknown timm name",
        lambda scene: ["scan", "timm:sequenser2d_s", *OPTIONS],
        2,
        "E_ARGUMENT",
        says="sequencer2d_s",
        **PATIENT,
    ),
    Case(
        "zoos",
        "an image model without a sequence",
        lambda scene: ["scan", "timm:resnet18", *OPTIONS, "--set", "pretrained=false"],
        3,
        "E_UNSUPPORTED",
        **PATIENT,
    ),
    Case(
        "zoos",
        "a timm name without a network",
        lambda scene: ["scan", "timm:vit_tiny_patch16_224", *OPTIONS, "--offline"],
        5,
        "E_OFFLINE",
        says="pretrained=false",
        env={"HF_HUB_CACHE": "/nonexistent"},
        **PATIENT,
    ),
]
