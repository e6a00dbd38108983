"""Configs that lie, bloat or name code, and weights that do not belong together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.hostile.case import Case, Outcome, Scene

OPTIONS = ("--quick", "--horizon", "32", "--json", "report.json")
Arrange = Callable[[Scene], list[str]]
#: What the weights' own config states.
HONEST = {"kind": "lstm", "hidden_size": 4, "num_layers": 3}


def lstm() -> dict[str, Tensor]:
    """A small LSTM of three layers, the same in every case."""
    shapes = nn.LSTM(2, 4, num_layers=3, device="meta").state_dict()
    numbers = {name: torch.arange(t.numel()).reshape(t.shape) for name, t in shapes.items()}
    return {name: 0.5 * torch.sin(number.double()).float() for name, number in numbers.items()}


def folder(
    config: object = None, *, tensors: Callable[[], dict[str, Tensor]] = lstm, **files: bytes
) -> Arrange:
    """A folder with the weights, a config (text as it is, else as JSON) and other files."""

    def arrange(scene: Scene) -> list[str]:
        save_file(tensors(), scene.inputs / "model.safetensors")
        if config is not None:
            data = config if isinstance(config, bytes) else json.dumps(config).encode()
            (scene.inputs / "config.json").write_bytes(data)
        for name, content in files.items():
            (scene.inputs / name.replace("__", ".")).write_bytes(content)
        return ["scan", str(scene.inputs), *OPTIONS]

    return arrange


def named(arrange: Arrange) -> Arrange:
    """The same, but the user names the file."""

    def of_the_file(scene: Scene) -> list[str]:
        word, place, *options = arrange(scene)
        return [word, f"{place}/model.safetensors", *options]

    return of_the_file


def beside(make: Callable[[Scene], None], config: object = None) -> Arrange:
    """The same folder, with something else put into it."""

    def arrange(scene: Scene) -> list[str]:
        arguments = folder(config)(scene)
        make(scene)
        return arguments

    return arrange


def notes(*words: str) -> Callable[[Outcome], None]:
    """The report is whole, and its notes have these words and none on anything else left out."""

    def check(outcome: Outcome) -> None:
        report = outcome.report()
        assert report["complete"]
        said = "\n".join(report["subject"]["notes"])
        for word in words:
            assert word in said, f"{word!r} is not in {said!r}"
        assert bool(words) or "left out" not in said, said

    return check


def broken(name: str, config: object, says: str, *, code: str = "E_CONFIG") -> Case:
    return Case("configs", name, folder(config), exit=3, code=code, says=says)


def odd_file(name: str, make: Callable[[Scene], None], *, code: str = "E_PATH") -> Case:
    return Case("configs", name, beside(make), exit=3, code=code, says="config.json")


def works(name: str, arrange: Arrange, *words: str) -> Case:
    return Case("configs", name, arrange, exit=0, check=notes(*words))


def link_outside(scene: Scene) -> None:
    outside = scene.root / "outside.json"
    outside.write_text(json.dumps({"hidden_size": "a secret"}))
    (scene.inputs / "config.json").symlink_to(outside)


def evil_code(scene: Scene) -> None:
    """Modules that a careless reader would import, by the names in the config and by custom."""
    line = f"open({str(scene.canary)!r}, 'w').write('run')\n"
    for name in ("modeling_evil.py", "configuration_evil.py", "__init__.py", "hubconf.py"):
        (scene.inputs / name).write_text(line)


def sparse(name: str) -> Callable[[Scene], None]:
    """A file of one gigabyte that takes no room."""

    def make(scene: Scene) -> None:
        with open(scene.inputs / name, "wb") as stream:
            stream.truncate(1 << 30)

    return make


def fifo(name: str) -> Callable[[Scene], None]:
    return lambda scene: os.mkfifo(scene.inputs / name)


def adapter(*, whole: bool) -> Arrange:
    """A LoRA whose base lies on the hub, beside a whole model or alone."""

    def arrange(scene: Scene) -> list[str]:
        arguments = folder()(scene)
        stated = {"peft_type": "LORA", "base_model_name_or_path": "foreign/base"}
        (scene.inputs / "adapter_config.json").write_text(json.dumps(stated))
        if not whole:
            model = scene.inputs / "model.safetensors"
            model.rename(scene.inputs / "adapter_model.safetensors")
        return arguments

    return arrange


def quantized(method: str) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": method}}


SIZES: list[tuple[str, Any, str]] = [
    ("-16", -16, "E_CONFIG"),
    ("0", 0, "E_CONFIG"),
    ("text", "16", "E_CONFIG"),
    ("null", None, "E_CONFIG"),
    ("true", True, "E_CONFIG"),
    ("16.5", 16.5, "E_CONFIG"),
    ("1e9", 10**9, "E_LIMIT"),
    ("Infinity", float("inf"), "E_CONFIG"),
]
CODE = {"AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil"}
KERNELS = {
    "_attn_implementation": "foreign/kernel",
    "attn_implementation": {"": "foreign/kernel@main:run"},
    "experts_implementation": "foreign/kernel",
    "kernel_config": {"RMSNorm": "foreign/kernel:Norm"},
    "attribute_map": {"_attn_implementation_internal": "nonlinearity"},
}
VOCABULARY = {"vocab_size": 4 * 10**8, "hidden_size": 16}

ESCAPES = {"\x1b[31m<img onerror=x>\u202e": {"auto_map": CODE}}
GARBAGE = b"\x00\xff not a tokenizer"


def without(*names: str) -> Callable[[], dict[str, Tensor]]:
    """The weights without some of them."""
    return lambda: {name: tensor for name, tensor in lstm().items() if name not in names}


def with_other(**others: Tensor) -> Callable[[], dict[str, Tensor]]:
    """The weights with some put in their place, or beside them."""
    return lambda: {**lstm(), **others}


def mismatched(name: str, tensors: Callable[[], dict[str, Tensor]], says: str) -> Case:
    return Case("weights", name, folder(tensors=tensors), exit=3, code="E_WEIGHTS", says=says)


def no_escapes(outcome: Outcome) -> None:
    notes("left out")(outcome)
    assert not {"\x1b", "\u202e"} & set(outcome.stdout + outcome.stderr)
    assert not {"\x1b", "\u202e"} & set("".join(outcome.report()["subject"]["notes"]))


CASES = [
    *(
        broken(f"{key} {name}", {key: value}, key, code=code)
        for key in ("hidden_size", "num_hidden_layers")
        for name, value, code in SIZES
    ),
    broken("a size of NaN", b'{"hidden_size": NaN}', "holds NaN"),
    broken("a size of 5000 digits", b'{"n": ' + b"9" * 5000 + b"}", "5000 digits"),
    broken("a vocabulary for 25 GB", VOCABULARY, "vocab_size 400000000", code="E_LIMIT"),
    broken("the same inside", {"text_config": [VOCABULARY]}, "text_config.", code="E_LIMIT"),
    broken("a million layers", {"n_layer": 10**6}, "n_layer 1000000", code="E_LIMIT"),
    broken("a billion classes", {"model_type": "x", "num_labels": 10**9}, "", code="E_LIMIT"),
    broken("not JSON", b"{not json", "is not JSON"),
    broken("empty", b"", "is not JSON"),
    broken("null", b"null", "holds null"),
    broken("a list", b"[]", "holds a list"),
    broken("not UTF-8", b"\xff\xfe{\x00}\x00", "UTF-8"),
    broken("deep nesting", b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested"),
    broken("nesting that parses", b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "nested"),
    broken("a size stated twice", b'{"hidden_size": 4, "hidden_size": 8}', "twice"),
    broken("half a surrogate pair", b'{"kind": "\\ud800"}', "no text"),
    broken("another hidden size", {**HONEST, "hidden_size": 8}, "the tensors of"),
    broken("unknown quantization", quantized("evil"), "'evil'", code="E_UNSUPPORTED"),
    broken("known quantization inside", {"a": quantized("gptq")}, "gptq", code="E_UNSUPPORTED"),
    odd_file("a link that leads outside", link_outside),
    odd_file("a FIFO", fifo("config.json")),
    odd_file("a folder", lambda scene: (scene.inputs / "config.json").mkdir()),
    odd_file("a gigabyte", sparse("config.json"), code="E_LIMIT"),
    *(
        works(f"{name} beside a file that is named", named(folder(config)), "was not read")
        for name, config in [
            ("a comment", b"// mine\n{}"),
            ("a list", b"[]"),
            ("a vocabulary of -1", {"vocab_size": -1}),
            ("a vocabulary for 25 GB", VOCABULARY),
        ]
    ),
    works("a link beside a file that is named", named(beside(link_outside)), "was not read"),
    works("a FIFO beside a file that is named", named(beside(fifo("config.json"))), "was not read"),
    works("a byte-order mark", folder(b"\xef\xbb\xbf" + json.dumps(HONEST).encode())),
    works("none", folder()),
    works("an unknown type", folder({"model_type": "nonsense", "architectures": ["Nonsense"]})),
    works("auto_map", beside(evil_code, {"auto_map": CODE, "trust_remote_code": True}), "auto_map"),
    works("auto_map inside", beside(evil_code, {"a": [{"auto_map": CODE}]}), "a.auto_map was left"),
    works("names of kernels", folder(KERNELS), *KERNELS),
    works("weights elsewhere", folder({"transformers_weights": "../../x"}), "transformers_weights"),
    Case("configs", "hostile keys", folder(ESCAPES), exit=0, check=no_escapes),
    works("an adapter beside a model", adapter(whole=True), "adapter is not applied"),
    Case(
        "configs",
        "an adapter with a foreign base",
        adapter(whole=False),
        exit=3,
        code="E_UNSUPPORTED",
        says="foreign/base",
    ),
    works("a garbage tokenizer", folder(HONEST, tokenizer__json=GARBAGE)),
    works("a tokenizer of a gigabyte", beside(sparse("tokenizer.json"), HONEST)),
    works("a tokenizer that is a FIFO", beside(fifo("tokenizer.json"), HONEST)),
    mismatched("weight_hh missing", without("weight_hh_l1"), "lacks weight_hh_l1"),
    mismatched("a bias missing", without("bias_ih_l2"), "lacks bias_ih_l2"),
    mismatched(
        "a layer missing in the middle",
        without("weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1"),
        "lacks weight_ih_l1",
    ),
    mismatched("a bias too long", with_other(bias_hh_l0=torch.zeros(17)), "bias_hh_l0 (17,)"),
    mismatched("a misshaped matrix", with_other(weight_hh_l2=torch.zeros(16, 5)), "(16, 5)"),
    mismatched(
        "whole numbers",
        with_other(weight_hh_l0=torch.ones(16, 4, dtype=torch.int8)),
        "weight_hh_l0 holds int8",
    ),
    Case(
        "weights",
        "an extra tensor",
        folder(tensors=with_other(unknown=torch.ones(3, 3, 3))),
        exit=0,
        check=notes("unknown"),
    ),
    Case(
        "weights",
        "no name that anybody knows",
        folder({"model_type": "nonsense"}, tensors=lambda: {"x": torch.ones(3, 3)}),
        exit=3,
        code="E_UNSUPPORTED",
    ),
]
