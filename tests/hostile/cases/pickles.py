"""Pickles that would run code: refused by default and with --allow-pickle, and never run."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import torch

from tests.hostile.case import Case, Scene
from tests.loading import pickle_writing as write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: In the environment it makes torch.load run pickles.
FORCED = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
ALLOWED = ("--allow-pickle",)


class Evil:
    """Unpickling it would create the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


def system(how: str, flags: tuple[str, ...]) -> Callable[[Scene], list[str]]:
    """An os.system pickle in every form that torch and pickle write."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        content = {"w": torch.ones(2), "x": Evil(scene.canary)}
        if how.startswith("raw"):
            path.write_bytes(pickle.dumps(content["x"], protocol=int(how[-1])))
        else:
            zipped, protocol = how != "legacy", 4 if how == "zip protocol 4" else 2
            torch.save(
                content, path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol
            )
        return ["scan", str(path), *flags]

    return arrange


def written(
    value: Callable[[str], bytes], flags: tuple[str, ...], *, protocol: int = 2
) -> Callable[[Scene], list[str]]:
    """A zip whose pickle holds honest weights and what `value` writes for a canary."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        weights = write.entries(w=write.tensor(write.storage("0", 1), (1,)))
        body = write.entries(state_dict=weights, x=value(str(scene.canary)))
        path.write_bytes(write.zip_file(write.pickled(body, protocol=protocol), {"0": write.ONE}))
        return ["scan", str(path), *flags]

    return arrange


def touch(canary: str) -> bytes:
    return write.text(f"touch {canary}")


def opens(canary: str) -> bytes:
    return write.text(f"open({canary!r}, 'w').close()")


def imported(module: str) -> bytes:
    return write.call("builtins.__import__", write.text(module))


def attribute(of: bytes, name: str) -> bytes:
    return write.call("builtins.getattr", of, write.text(name))


def called(function: bytes, *arguments: bytes) -> bytes:
    return function + write.many(*arguments) + b"R"


def memoized(canary: str) -> bytes:
    """The names come out of the memo, behind a decoy on the stack."""
    stored = write.text("posix") + b"\x94" + b"0" + write.text("system") + b"\x94" + b"0"
    return (
        stored + b"h\x00h\x01" + write.text("decoy") + b"0\x93" + write.many(touch(canary)) + b"R"
    )


def in_parameter(canary: str) -> bytes:
    """The gadget stands in the attributes of a parameter."""
    data = write.tensor(write.storage("0", 1), (1,))
    evil = write.call("posix.system", touch(canary))
    state = write.entries(remark=evil)
    name = "torch._utils._rebuild_parameter_with_state"
    return write.call(name, data, b"\x88", write.call("collections.OrderedDict"), state)


def in_pickle(canary: str) -> bytes:
    inner = write.pickled(write.call("posix.system", touch(canary)))
    return write.call("_pickle.loads", b"B" + len(inner).to_bytes(4, "little") + inner)


def in_legacy(place: int, flags: tuple[str, ...]) -> Callable[[Scene], list[str]]:
    """The gadget stands in one of the pickles before or behind the object of a legacy file."""

    def arrange(scene: Scene) -> list[str]:
        path = scene.inputs / "model.pt"
        evil = write.pickled(write.call("posix.system", touch(str(scene.canary))))
        value = write.pickled(
            write.entries(w=write.tensor(write.storage("0", 1, legacy=True), (1,)))
        )
        pickles = [*write.LEGACY_PICKLES, value, write.pickled(write.listed(write.text("0")))]
        pickles[place] = evil
        path.write_bytes(b"".join(pickles) + (1).to_bytes(8, "little") + write.ONE)
        return ["scan", str(path), *flags]

    return arrange


#: What is tried, what memaudit calls it, and how it is written for a canary.
GADGETS: list[tuple[str, str, Callable[[str], bytes]]] = [
    ("builtins.eval", "builtins.eval", lambda c: write.call("builtins.eval", opens(c))),
    ("__builtin__.eval", "builtins.eval", lambda c: write.call("__builtin__.eval", opens(c))),
    ("builtins.exec", "builtins.exec", lambda c: write.call("builtins.exec", opens(c))),
    (
        "a chain of getattr",
        "builtins.__import__",
        lambda c: called(attribute(imported("os"), "system"), touch(c)),
    ),
    (
        "getattr on what was made",
        "builtins.getattr",
        lambda c: attribute(write.call("my.module"), "system"),
    ),
    ("names from the memo", "os.system", memoized),
    (
        "the instruction INST",
        "os.system",
        lambda c: b"(" + touch(c) + b"iposix\nsystem\n",
    ),
    (
        "the instruction OBJ",
        "os.system",
        lambda c: b"(" + write.named("posix.system") + touch(c) + b"o",
    ),
    (
        "a dotted name through another module",
        "torch.serialization.os.system",
        lambda c: called(write.stack_named("torch.serialization", "os.system"), touch(c)),
    ),
    (
        "a call that is thrown away",
        "os.system",
        lambda c: write.call("posix.system", touch(c)) + b"0N",
    ),
    (
        "a function of numpy that evaluates",
        "numpy.f2py",
        lambda c: write.call("numpy.f2py.crackfortran.getlincoef", opens(c), b"}"),
    ),
    ("runpy", "runpy.run_path", lambda c: write.call("runpy.run_path", write.text(c))),
    ("webbrowser", "webbrowser.open", lambda c: write.call("webbrowser.open", write.text(c))),
    (
        "torch.hub.load",
        "torch.hub.load",
        lambda c: write.call("torch.hub.load", write.text(c), write.text("x")),
    ),
    (
        "a partial call",
        "os.system",
        lambda c: called(write.call("functools.partial", write.named("posix.system")), touch(c)),
    ),
    ("the attributes of a parameter", "os.system", in_parameter),
    (
        "a key of a dictionary",
        "os.system",
        lambda c: b"}" + write.call("posix.system", touch(c)) + b"Ns",
    ),
    (
        "the hooks of a tensor",
        "os.system",
        lambda c: write.tensor(
            write.storage("0", 1), (1,), hooks=write.call("posix.system", touch(c))
        ),
    ),
    ("a pickle in the pickle", "_pickle.loads", in_pickle),
]


def _cases() -> list[Case]:
    refused = {"exit": 3, "code": "E_UNSAFE_FORMAT"}
    found: list[Case] = []
    for flags in ((), ALLOWED):
        tail = " with --allow-pickle" if flags else ""
        for how in ("zip", "zip protocol 4", "legacy", "raw protocol 2", "raw protocol 4"):
            says = "a plain Python pickle" if how.startswith("raw") else "would run os.system"
            for env in ({}, FORCED):
                name = f"os.system, {how}{', forced by torch' if env else ''}{tail}"
                arrange = system(how, flags)
                found.append(Case("pickles", name, arrange, **refused, says=says, env=env))
        for what, says, value in GADGETS:
            arrange = written(value, flags, protocol=4)
            says = f"would run {says}"
            found.append(
                Case("pickles", f"{what}{tail}", arrange, **refused, says=says, env=FORCED)
            )
        for place, where in enumerate(("first", "second", "third", "fourth", "fifth")):
            name = f"os.system in the {where} pickle of a legacy file{tail}"
            if place == 0:  # what does not begin with the magic number is no torch file
                continue
            says = "would run os.system"
            found.append(Case("pickles", name, in_legacy(place, flags), **refused, says=says))
        registry = written(lambda _: b"\x82\x01", flags)
        name = f"a code of the copyreg registry{tail}"
        found.append(Case("pickles", name, registry, **refused, says="codes of a registry"))
    return found


CASES = _cases()
