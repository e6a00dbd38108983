"""Pickles: none of them runs code, whatever is allowed; tensors and plain containers open.

A gadget is refused in both modes, in every form of file, and where the environment asks torch to
run pickles. What else stands in a checkpoint is refused by default, or opened as inert data.
"""

from __future__ import annotations

import argparse
import builtins
import functools
import io
import os
import pathlib
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._utils
from numpy.f2py import crackfortran

from tests.hostile.rows import Outcome, Row, Scene, parametrized, run
from tests.hostile.small_models import (
    PLACE,
    Call,
    changed,
    holding,
    opened,
    refused,
    repacked,
    scan,
    text,
    torch_bytes,
    weights,
    write,
)

#: In the environment it makes torch.load run pickles.
FORCED = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
ALLOWED = ("--allow-pickle", "--trust-remote-code")


def touching(scene: Scene) -> str:
    return f"touch {scene.canary}"


def opening(scene: Scene) -> str:
    return f"open({str(scene.canary)!r}, 'w').close()"


def called(scene: Scene) -> bytes:
    """A call of what lies on the stack."""
    return text(touching(scene)) + b"\x85R"


def system(scene: Scene) -> Call:
    return Call(os.system, touching(scene))


def with_attribute(value: Any) -> torch.nn.Parameter:
    found = torch.nn.Parameter(torch.ones(2))
    found.remark = value  # type: ignore[attr-defined]
    return found


def with_hooks(value: Any) -> Call:
    """A tensor in the place of whose hooks something else stands."""
    storage = torch.ones(1)._typed_storage()
    return Call(torch._utils._rebuild_tensor_v2, storage, 0, (1,), (1,), False, value)


#: A value whose careless unpickling creates the canary, or instructions that no pickler writes.
GADGETS: dict[str, Callable[[Scene], Any]] = {
    "builtins.eval": lambda s: Call(eval, opening(s)),
    "eval by its old name": lambda s: b"c__builtin__\neval\n" + text(opening(s)) + b"\x85R",
    "a chain of getattr": lambda s: Call(
        Call(getattr, Call(builtins.__import__, "os"), "system"), touching(s)
    ),
    "a method of what was made": lambda s: Call(Call(getattr, pathlib.Path(s.canary), "touch")),
    "a pickle in the pickle": lambda s: Call(pickle.loads, pickle.dumps(system(s))),
    "a function of numpy that evaluates": lambda s: Call(
        crackfortran.getlincoef, opening(s), {"x": 1}
    ),
    "the attributes of a parameter": lambda s: with_attribute(system(s)),
    "the hooks of a tensor": lambda s: with_hooks(system(s)),
    "the instruction OBJ": lambda s: b"(cposix\nsystem\n" + text(touching(s)) + b"o",
    "a dotted name through torch": lambda s: (
        text("torch.serialization") + text("os.system") + b"\x93" + called(s)
    ),
}
#: These would reach for the network, for a browser, or for what another process registered.
ELSEWHERE: dict[str, Callable[[Scene], Any]] = {
    "torch.hub.load": lambda s: Call(torch.hub.load, str(s.inputs), "x"),
    "a code of the copyreg registry": lambda s: b"\x82\x01",
}


def planted(gadget: Any) -> bytes:
    """A gadget beside honest weights, as a torch file."""
    if isinstance(gadget, bytes):
        return torch_bytes({"state_dict": weights(), "x": PLACE}, instructions=gadget)
    return torch_bytes({"state_dict": weights(), "x": gadget})


def file_with(make: Callable[[Scene], Any]) -> Callable[[Scene], pathlib.Path]:
    return lambda scene: holding("model.pt", planted(make(scene)))(scene)


def in_form(form: str) -> Callable[[Scene], pathlib.Path]:
    return lambda scene: holding("model.pt", torch_bytes({**weights(), "x": system(scene)}, form))(
        scene
    )


def in_place_of(number: int) -> Callable[[Scene], pathlib.Path]:
    """A gadget in place of one of the small pickles around the weights of a legacy file."""

    def make(scene: Scene) -> pathlib.Path:
        data, ends = torch_bytes(weights(), "legacy"), [0]
        stream = io.BytesIO(data)
        while len(ends) <= number:
            list(pickletools.genops(stream))
            ends.append(stream.tell())
        evil = pickle.dumps(system(scene), protocol=2)
        return holding("model.pth", data[: ends[-2]] + evil + data[ends[-1] :])(scene)

    return make


def unsafe(name: str, make: Callable[[Scene], pathlib.Path], **more: Any) -> Row:
    """Refused whatever is allowed."""
    return refused(name, make, "E_UNSAFE_FORMAT", modes=((), ALLOWED), **more)


RUNNING_CODE = [
    *(
        unsafe(f"os.system, {form}", in_form(form), env=FORCED)
        for form in ("zip", "zip protocol 4", "legacy", "raw protocol 2", "raw protocol 4")
    ),
    unsafe("os.system, zip, not forced", in_form("zip")),
    unsafe("os.system in pickle 2 of a legacy file", in_place_of(2)),
    *(unsafe(name, file_with(make), env=FORCED) for name, make in {**GADGETS, **ELSEWHERE}.items()),
]


def beside(value: Any) -> Any:
    """Weights, and something else."""
    return holding("last.ckpt", lambda: torch_bytes({"state_dict": weights(), "x": value}))


def holds(content: Callable[[], Any]) -> Any:
    return holding("model.pt", lambda: torch_bytes(content()))


def bad_sparse() -> Any:
    where = torch.tensor([[10**9], [0]])
    return {"w": torch.sparse_coo_tensor(where, torch.ones(1), (3, 3), check_invariants=False)}


def itself() -> Any:
    found: dict[str, Any] = weights()
    found["x"] = found
    return found


def shadowing() -> Any:
    """Parameters with attributes that are called like methods."""
    found = {name: torch.nn.Parameter(tensor) for name, tensor in weights().items()}
    for parameter in found.values():
        parameter.numel = 10**18  # type: ignore[method-assign, assignment]
        parameter.detach = "nothing"  # type: ignore[method-assign, assignment]
    return found


def shrunk(data: bytes) -> bytes:
    """The numbers of every storage are cut in half."""
    return repacked(
        data, lambda name, content: content[: len(content) // 2] if "/data/" in name else content
    )


CONTENTS = [
    refused("a bad sparse tensor", holds(bad_sparse), "E_UNSUPPORTED"),
    refused("a meta tensor", holds(lambda: {"w": torch.ones(3, device="meta")}), "E_CORRUPT"),
    unsafe("a whole module", holds(lambda: torch.nn.GRU(2, 3))),
    refused(
        "a view that claims a terabyte",
        holds(lambda: {"w": torch.zeros(1).expand(500_000, 500_000)}),
        "E_LIMIT",
        room=500,
    ),
    refused("a dictionary that holds itself", holds(itself), "E_CORRUPT"),
    opened(
        "lists that double",
        beside(functools.reduce(lambda inner, _: [inner, inner], range(60), [])),
        room=500,
    ),
    refused("a storage that is too small", changed("model.pt", shrunk), "E_CORRUPT"),
    refused(
        "a compressed torch file",
        changed("model.pt", lambda data: repacked(data, compression=zipfile.ZIP_DEFLATED)),
        "E_UNSUPPORTED",
    ),
    Row("attributes that shadow methods", scan(holds(shadowing)), 0),
]


def same_as_weights_alone(outcome: Outcome) -> None:
    import memaudit

    alone = write(outcome.scene.output / "same.safetensors")
    report = memaudit.scan(alone, level="quick", horizon=32).to_dict()
    assert outcome.curves() == report["results"]["memory"]["curves"]


def setting(value: bytes | Callable[[Scene], bytes]) -> Any:
    """Settings as OmegaConf writes them, with this value in one of them."""

    def config(scene: Scene) -> bytes:
        content = value if isinstance(value, bytes) else value(scene)
        node = b"comegaconf.nodes\nAnyNode\n)\x81}" + text("_val") + content + b"sb"
        made = b"}" + text("hidden") + node + b"s"
        return b"comegaconf.dictconfig\nDictConfig\n)\x81}" + text("_content") + made + b"sb"

    return file_with(config)


NAMESPACE = argparse.Namespace(hidden=4)
SAME: dict[str, Any] = {"check": same_as_weights_alone}
OBJECTS = [
    refused("a Namespace", beside(NAMESPACE), "E_UNSAFE_FORMAT", "--allow-pickle"),
    opened("a Namespace, allowed", beside(NAMESPACE), "--allow-pickle", **SAME),
    opened("settings of OmegaConf", setting(b"K\x03"), **SAME),
    unsafe("settings with a gadget", setting(lambda s: b"cposix\nsystem\n" + called(s))),
    opened(
        "a call for gigabytes that is not made",
        beside(Call(bytearray, 1 << 33)),
        "--allow-pickle",
        room=700,
        **SAME,
    ),
]

ROWS = [*RUNNING_CODE, *CONTENTS, *OBJECTS]


@parametrized(ROWS)
def test_a_pickle_runs_nothing(row: Row, capfd: pytest.CaptureFixture[str]) -> None:
    run(row, __name__, capfd)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_every_gadget_runs_where_it_is_read_carelessly(tmp_path: pathlib.Path) -> None:
    for number, make in enumerate(GADGETS.values()):
        scene = Scene(tmp_path / str(number))
        scene.root.mkdir()
        torch.load(io.BytesIO(planted(make(scene))), weights_only=False)
        assert scene.canary.exists(), list(GADGETS)[number]
