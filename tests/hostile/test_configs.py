"""Configs and settings: sizes are bounded, and nothing in them reaches out or names code.

The folders of the model zoos are here, too: their weights must be those that the config asks for.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import memaudit
from tests.hostile.rows import QUICK, Arrange, Outcome, Row, Scene, parametrized, run
from tests.hostile.small_models import whole, write

DEMOS = Path(memaudit.__file__).parent / "demos"


def folder(config: Any = None, **files: Any) -> Arrange:
    """The weights with a config, as text or as JSON, and other files; two underscores are a dot."""

    def arrange(scene: Scene) -> list[str]:
        write(scene.inputs / "model.safetensors")
        for name, content in {"config__json": config, **files}.items():
            path = scene.inputs / (name if "." in name else name.replace("__", "."))
            if callable(content):
                content(path, scene)
            elif content is not None:
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                path.write_bytes(data)
        return ["scan", str(scene.inputs), *QUICK]

    return arrange


def broken(name: str, config: Any, code: str = "E_CONFIG", **more: Any) -> Row:
    return Row(name, folder(config), 3, code, **more)


def works(name: str, arrange: Arrange, **more: Any) -> Row:
    return Row(name, arrange, 0, check=whole, **more)


def link_outside(path: Path, scene: Scene) -> None:
    (scene.root / "secret").write_text('{"hidden_size": "a secret"}')
    path.symlink_to(scene.root / "secret")


def gigabyte(path: Path, scene: Scene) -> None:
    path.touch()
    os.truncate(path, 1 << 30)


def evil_code(path: Path, scene: Scene) -> None:
    """A module that a careless reader would import."""
    path.write_text(f"open({str(scene.canary)!r}, 'w').close()\nclass Evil: ...\n")


def evil_tags(path: Path, scene: Scene) -> None:
    """Tags by which a careless reader of YAML would run a command."""
    tags = ("!!python/object/apply:os.system", "!!python/object/new:os.system", "!os.system")
    lines = [f"k{i}: {tag} ['touch {scene.canary}']\n" for i, tag in enumerate(tags)]
    path.write_text("".join([*lines, "n: !!python/name:os.system ''\n"]))


def unfolding() -> bytes:
    """A kilobyte of YAML that would become ten billion words."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)]
    return "\n".join(["a0: &a0 [word]", *lines]).encode()


CODE = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
EVIL = dict.fromkeys(
    ("configuration_evil.py", "modeling_evil.py", "__init__.py", "hubconf.py"), evil_code
)
KERNELS = {
    "_attn_implementation": "foreign/kernel",
    "attn_implementation": {"": "foreign/kernel@main:run"},
    "kernel_config": {"RMSNorm": "foreign/kernel:Norm"},
    "experts_implementation": "foreign/kernel",
    "attribute_map": {"_attn_implementation_internal": "nonlinearity"},
}
LORA = {"peft_type": "LORA", "base_model_name_or_path": "foreign/base"}
DEEP = b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def only_an_adapter(scene: Scene) -> list[str]:
    arguments = folder(adapter_config__json=LORA)(scene)
    (scene.inputs / "model.safetensors").rename(scene.inputs / "adapter_model.safetensors")
    return [*arguments]


CONFIGS = [
    broken("a size of -16", {"hidden_size": -16}),
    broken("a size of 1e9", {"hidden_size": 10**9}, "E_LIMIT", room=500),
    broken("a size stated twice", b'{"hidden_size": 4, "hidden_size": 8}'),
    broken("another size than the weights", {"kind": "lstm", "hidden_size": 8}),
    broken("a million layers", {"n_layer": 10**6}, "E_LIMIT", room=500),
    broken("not JSON", b"{not json"),
    broken("deep nesting", DEEP, room=500),
    broken("unknown quantization", {"quantization_config": {"quant_method": "x"}}, "E_UNSUPPORTED"),
    broken("a config outside", link_outside, "E_PATH"),
    broken("a config of a gigabyte", gigabyte, "E_LIMIT", room=500),
    Row("an adapter of a foreign base", only_an_adapter, 3, "E_UNSUPPORTED", "foreign/base"),
    works(
        "auto_map",
        folder({"auto_map": CODE, "a": [{"auto_map": CODE}], "trust_remote_code": True}, **EVIL),
    ),
    works("names of kernels", folder(KERNELS)),
]


def yaml(name: str, text: Any, code: str = "E_CONFIG", **more: Any) -> Row:
    return Row(f"YAML: {name}", folder(config__yaml=text), 3, code, **more)


SETTINGS = [
    works("YAML: tags that name code", folder(config__yaml=evil_tags)),
    yaml("references that unfold", unfolding(), room=500),
]


Change = Callable[[dict[str, Any], dict[str, torch.Tensor]], object]
HEAD = "classifier.weight"


def bert(change: Change = lambda config, tensors: None, *options: str, **files: Any) -> Arrange:
    """A folder of transformers with its config and weights changed, and other files beside them."""

    def arrange(scene: Scene) -> list[str]:
        shutil.copytree(DEMOS / "bert", scene.inputs, dirs_exist_ok=True)
        config = json.loads((scene.inputs / "config.json").read_text())
        tensors = load_file(scene.inputs / "model.safetensors")
        change(config, tensors)
        (scene.inputs / "config.json").write_text(json.dumps(config))
        save_file(tensors, scene.inputs / "model.safetensors")
        for name, content in files.items():
            path = scene.inputs / (name if "." in name else name.replace("__", "."))
            content(path, scene) if callable(content) else path.write_bytes(content)
        return ["scan", str(scene.inputs), *QUICK, "--query", "impulse", *options]

    return arrange


def misfit(name: str, change: Change, code: str, says: str = "", **more: Any) -> Row:
    return Row(f"zoo: {name}", bert(change, **more), 3, code, says)


def of_bert(outcome: Outcome) -> None:
    """The library's own class was built, whatever the config says."""
    assert "BertForSequenceClassification" in outcome.report()["subject"]["description"]


def no_tokenizer(outcome: Outcome) -> None:
    """The curve of the text says why there is none, the other one is there."""
    assert outcome.curves()["context"]["status"] == "no_tokenizer"
    assert outcome.curves()["impulse"]["values"]


def fine(name: str, arrange: Arrange, check: Callable[[Outcome], None], **more: Any) -> Row:
    return Row(f"zoo: {name}", arrange, 0, check=check, **more)


def stated(**values: Any) -> Change:
    return lambda config, tensors: config.update(values)


def another_head(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors[HEAD] = torch.ones(2, 47)


def nothing_fits(config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors.clear()
    tensors["a"] = torch.ones(2)


ZOOS = [
    misfit("a tensor is missing", lambda c, w: w.pop(HEAD), "E_WEIGHTS", HEAD),
    misfit(
        "a surplus tensor in a layer",
        lambda c, w: w.update({"bert.encoder.layer.0.extra.weight": torch.ones(2, 2)}),
        "E_WEIGHTS",
        "extra",
    ),
    misfit("a tensor of another shape", another_head, "E_WEIGHTS", HEAD),
    misfit("no tensor fits", nothing_fits, "E_WEIGHTS"),
    misfit("an activation that is none", stated(hidden_act="evil"), "E_CONFIG"),
    misfit(
        "code in the repository", stated(model_type="evil", auto_map=CODE), "E_UNSUPPORTED", **EVIL
    ),
    fine("a foreign kernel", bert(stated(_attn_implementation="evil/kernel")), of_bert),
    fine("no tokenizer", bert(stated(), "--query", "context", tokenizer__json=b"{"), no_tokenizer),
]

ROWS = [*CONFIGS, *SETTINGS, *ZOOS]


@parametrized(ROWS)
def test_a_config_reaches_no_code_and_no_other_place(
    row: Row, capfd: pytest.CaptureFixture[str]
) -> None:
    run(row, __name__, capfd)
