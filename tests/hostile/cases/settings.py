"""Settings of trainers in YAML, or inside the weights, that lie, unfold, name code or lead away."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safetensors.torch import save_file

from tests.hostile.case import Case, Scene
from tests.hostile.cases.configs import OPTIONS, fifo, folder, lstm, named, notes, sparse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.hostile.cases.configs import Arrange

NAME = "config.yaml"
HONEST = b"model: {_target_: src.Net, hidden_size: 4}\nseed: 1\n"


def beside(text: bytes, name: str = NAME) -> Arrange:
    """A folder with the weights, and settings under a name."""

    def arrange(scene: Scene) -> list[str]:
        (scene.inputs / name).parent.mkdir(exist_ok=True)
        (scene.inputs / name).write_bytes(text)
        return folder()(scene)

    return arrange


def made(make: Callable[[Scene], None]) -> Arrange:
    def arrange(scene: Scene) -> list[str]:
        make(scene)
        return folder()(scene)

    return arrange


def link(name: str) -> Callable[[Scene], None]:
    """A link of this name to settings outside, or to the folder that holds them."""

    def make(scene: Scene) -> None:
        outside = scene.root / "elsewhere"
        outside.mkdir()
        (outside / NAME).write_text("hidden_size: a secret")
        target = outside if name == ".hydra" else outside / NAME
        (scene.inputs / name).symlink_to(target)

    return make


def unfolding() -> bytes:
    """A kilobyte that would become ten billion words."""
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 11)]
    return "\n".join(["a0: &a0 [word]", *lines]).encode()


def merging() -> bytes:
    """The same, by mappings that take one another over."""
    wide = "{" + ", ".join(f"k{i}: {i}" for i in range(1000)) + "}"
    return f"a: &a {wide}\nl: [{', '.join(['{<<: *a}'] * 5000)}]\n".encode()


def evil(scene: Scene) -> None:
    """Tags by which a careless reader would run a command."""
    command = f"touch {scene.canary}"
    tags = ("!!python/object/apply:os.system", "!!python/object/new:os.system", "!os.system")
    text = "".join(f"k{i}: {tag} ['{command}']\n" for i, tag in enumerate(tags))
    (scene.inputs / NAME).write_text(text + "n: !!python/name:os.system ''\n")


def inside(stated: Any) -> Arrange:
    """Weights whose own header states hyper-parameters."""

    def arrange(scene: Scene) -> list[str]:
        text = stated if isinstance(stated, str) else json.dumps(stated)
        path = scene.inputs / "model.safetensors"
        save_file(lstm(), path, metadata={"hyper_parameters": text})
        return ["scan", str(path), *OPTIONS]

    return arrange


def broken(name: str, text: bytes, says: str, *, code: str = "E_CONFIG") -> Case:
    return Case("settings", name, beside(text), exit=3, code=code, says=says)


def odd(name: str, make: Callable[[Scene], None], *, code: str = "E_PATH") -> Case:
    return Case("settings", name, made(make), exit=3, code=code, says=NAME)


def works(name: str, arrange: Arrange, *words: str) -> Case:
    return Case("settings", name, arrange, exit=0, check=notes(*words))


CASES = [
    broken("a list", b"- 1", "holds a list"),
    broken("not YAML", b"a: [1\nb: }", "is not YAML"),
    broken("not UTF-8", b"\xff\xfea\x00", "UTF-8"),
    broken("two documents", b"a: 1\n---\na: 2\n", "several documents"),
    broken("a size stated twice", b"hidden_size: 4\nhidden_size: 8\n", "twice"),
    broken(
        "a vocabulary for 25 GB", b"d: {vocab_size: 400000000, d_model: 16}", "", code="E_LIMIT"
    ),
    broken("a size of 5000 digits", b"n: " + b"9" * 5000, "5000 digits"),
    broken("references that unfold", unfolding(), "unfolds"),
    broken("mappings that take one another over", merging(), "unfolds"),
    broken("a list that holds itself", b"a: &a [*a]", "not finished"),
    broken("deep nesting", b"a: " + b"[" * 100_000, "nested"),
    broken("deep indents", b"".join(b" " * i + b"a:\n" for i in range(600)), "nested"),
    broken("quantization", b"quantization_config: {a: 1}", "quantization", code="E_UNSUPPORTED"),
    broken("keys without an end", b"? " * 100_000, ""),
    broken("a quarter of a megabyte of marks", b"- " * 130_000, ""),
    odd("a link that leads outside", link(NAME)),
    odd("a folder that leads outside", link(".hydra")),
    odd("a FIFO", fifo(NAME)),
    odd("a folder", lambda scene: (scene.inputs / NAME).mkdir()),
    odd("a gigabyte", sparse(NAME), code="E_LIMIT"),
    works("honest", beside(HONEST), "settings were read from config.yaml"),
    works("honest, of Hydra", beside(HONEST, ".hydra/config.yaml"), ".hydra/config.yaml"),
    works("honest, of Lightning", beside(HONEST, "hparams.yaml"), "hparams.yaml"),
    works("tags that name code", made(evil), "left out, for a tag", "k0, k1, k2, n"),
    works("broken beside a file that is named", named(beside(b"- 1")), "was not read"),
    works("a bomb beside a file that is named", named(beside(unfolding())), "was not read"),
    works("a link beside a file that is named", named(made(link(NAME))), "was not read"),
    works(
        "inside the weights", inside({"_name_": "s4", "seed": 1}), "hyper_parameters in the file"
    ),
    works("inside, not JSON", inside("{not json"), "were not read"),
    works("inside, nested deeply", inside("[" * 200_000), "were not read"),
    works("inside, for 25 GB", inside({"vocab_size": 4 * 10**8, "d_model": 16}), "were not read"),
]
