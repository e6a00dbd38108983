"""Honest checkpoints with more than tensors in them: refused by default, opened when allowed.

OmegaConf's settings are opened by default: they are known by name, and are data or refused.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import save_file

from tests.hostile.case import Case, Outcome, Scene
from tests.loading import pickle_writing as write

if TYPE_CHECKING:
    from collections.abc import Callable

SCAN = ("--quick", "--horizon", "32")


def lstm() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    module = torch.nn.LSTM(2, 3)
    return {
        name: torch.randn(value.shape, generator=generator) / 2
        for name, value in module.state_dict().items()
    }


def omegaconf(more: bytes = b"") -> bytes:
    """The pickle of {"state_dict": ..., "hyper_parameters": DictConfig} as OmegaConf writes it.

    `more` is the value of a third setting.
    """

    def made(name: str, state: bytes) -> bytes:
        return write.named(f"omegaconf.{name}") + b")\x81" + state + b"b"

    def node(value: bytes) -> bytes:
        metadata = made("base.Metadata", write.entries(ref_type=write.named("typing.Any")))
        return made("nodes.AnyNode", write.entries(_metadata=metadata, _val=value, _parent=b"N"))

    weights, settings = {}, {"hidden": node(b"K\x03"), "name": node(write.text("s4"))}
    settings |= {"more": node(more)} if more else {}
    for place, (name, value) in enumerate(lstm().items()):
        stored = write.storage(str(place), value.numel())
        weights[name] = write.tensor(stored, tuple(value.shape), stride=value.stride())
    config = made("dictconfig.DictConfig", write.entries(_content=write.entries(**settings)))
    return write.entries(state_dict=write.entries(**weights), hyper_parameters=config)


def with_omegaconf(path: pathlib.Path) -> None:
    write_beside(path, omegaconf())


def with_a_gadget(kind: str) -> Callable[[pathlib.Path], None]:
    """The same, with a call inside the settings that an unpickler would make."""
    gadgets = {
        "inside": write.call("posix.system", write.text("touch ../canary")),
        "as a method": write.call("omegaconf.dictconfig.DictConfig.__init__", write.text("x")),
        "as a call": write.call("omegaconf.dictconfig.DictConfig", write.named("my.module.run")),
        "as a function": write.call("omegaconf.omegaconf.OmegaConf.load", write.text("../canary")),
    }
    return lambda path: write_beside(path, omegaconf(more=gadgets[kind]))


def write_beside(path: pathlib.Path, content: bytes) -> None:
    raw = {str(i): value.numpy().tobytes() for i, value in enumerate(lstm().values())}
    path.write_bytes(write.zip_file(write.pickled(content), raw))


def saving(settings: Any, *, legacy: bool = False) -> Callable[[pathlib.Path], None]:
    def save(path: pathlib.Path) -> None:
        content = {"state_dict": lstm(), "hyper_parameters": settings}
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)

    return save


def arranged(save: Callable[[pathlib.Path], None], *flags: str) -> Callable[[Scene], list[str]]:
    def arrange(scene: Scene) -> list[str]:
        save(scene.inputs / "last.ckpt")
        save_file(lstm(), scene.inputs / "same.safetensors")
        return ["scan", str(scene.inputs / "last.ckpt"), *SCAN, *flags]

    return arrange


def scan_both(arguments: list[str]) -> int:
    """Scan the checkpoint, and the same weights as safetensors."""
    from memaudit.cli.app import main

    verb, source, *rest = arguments
    same = str(pathlib.Path(source).with_name("same.safetensors"))
    return main([verb, same, *rest, "--json", "same.json"]) or main(
        [*arguments, "--json", "report.json"]
    )


def compared(*stubs: str) -> Callable[[Outcome], None]:
    def check(outcome: Outcome) -> None:
        assert outcome.curves() == outcome.curves("same.json"), "the curves differ"
        found = outcome.report()
        notes = " ".join(found["subject"]["notes"])
        assert "made inert" in notes or "made plain" in notes, notes
        missing = [stub for stub in stubs if stub not in notes]
        assert not missing, f"{missing} are not named in {notes}"
        json.dumps(found, allow_nan=False)

    return check


#: What is saved beside the weights, how, and the stubs that the report must name.
OBJECTS: list[tuple[str, Callable[[pathlib.Path], None], tuple[str, ...]]] = [
    ("a Namespace", saving(argparse.Namespace(hidden=3)), ("argparse.Namespace (1)",)),
    (
        "a Namespace in a legacy file",
        saving(argparse.Namespace(hidden=3), legacy=True),
        ("argparse.Namespace (1)",),
    ),
    ("a Path", saving({"folder": pathlib.PurePosixPath("/data/x")}), ("PurePosixPath (1)",)),
    (
        "numpy objects",
        saving({"rate": np.float64(0.1), "mean": np.ones(3), "n": np.int32(3)}),
        ("numpy.dtype", "numpy.ndarray", "multiarray.scalar"),
    ),
]
#: Nothing but data, and known by name: it opens without being allowed.
OMEGACONF = ("omegaconf.dictconfig.DictConfig (1)", "omegaconf.nodes.AnyNode (2)", "typing.Any")
GADGETS = {
    "inside": "would run os.system",
    "as a method": "would run",
    "as a call": "--allow-pickle",
    "as a function": "--allow-pickle",
}


def _cases() -> list[Case]:
    found: list[Case] = []
    for name, save, stubs in OBJECTS:
        refused = {"exit": 3, "code": "E_UNSAFE_FORMAT", "says": "--allow-pickle"}
        found.append(Case("pickles", f"{name} beside the weights", arranged(save), **refused))
        found.append(opened(f"{name} beside the weights, allowed", save, stubs, "--allow-pickle"))
    found.append(opened("an OmegaConf beside the weights", with_omegaconf, OMEGACONF))
    found.append(
        opened("an OmegaConf, allowed", with_omegaconf, OMEGACONF, "--allow-pickle"),
    )
    for kind, says in GADGETS.items():
        name, arrange = f"an OmegaConf with a gadget {kind}", arranged(with_a_gadget(kind))
        found.append(Case("pickles", name, arrange, exit=3, code="E_UNSAFE_FORMAT", says=says))
    return found


def opened(
    name: str, save: Callable[[pathlib.Path], None], stubs: tuple[str, ...], *flags: str
) -> Case:
    """A file that is scanned, with the same curves as its weights alone."""
    return Case(
        "pickles",
        name,
        arranged(save, *flags),
        exit=0,
        command=scan_both,
        check=compared(*stubs),
        writes=("same.json",),
    )


CASES = _cases()
