"""Curse-of-memory: a residual recurrence whose class, dt and activation are not in the file."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, ClassVar

from memaudit.errors import ArgumentError, SourceError, clean
from memaudit_ssm.families.agreement import (
    activation_of,
    projection,
    require_alike,
    require_stated,
)
from memaudit_ssm.families.family import AbstractFamily, Group, Whole, shape_of
from memaudit_ssm.layers.curse import ACTIVATIONS, BLOCKS, CELLS, Residual
from memaudit_ssm.models.curse import CurseNet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from memaudit_ssm.facts import Facts

_FIRST = re.compile(r"^(?P<prefix>(?:.*\.)?)[WP]\.weight\Z")
_NETS = (("model", "net"), ("net",))
_MIXING = tuple(
    f"{net}.linear{i}.{end}" for net in "gf" for i in (1, 2) for end in ("weight", "bias")
)
#: The classes of the public code, in small letters.
_CLASSES = {"simplernn": "rnn", "simplediagonalrnn": "diagonalrnn", "simplessm": "ssm"}
#: The code's own defaults.
_STEP, _ACTIVATION = "1.0", "linear"


class CurseFamily(AbstractFamily):
    """net.W.weight (m,), and net.P.weight (m,m) or none, between encoder.U and decoder.U."""

    name: ClassVar[str] = "curse"

    def find(self, tensors: Mapping[str, Tensor]) -> list[Group]:
        groups: dict[str, Group] = {}
        for name in tensors:
            match = _FIRST.match(name)
            if match is None or match["prefix"] in groups or not _is_ours(match["prefix"], tensors):
                continue
            groups[match["prefix"]] = _group(match["prefix"], tensors)
        return list(groups.values())

    def layer(self, group: Group, tensors: Mapping[str, Tensor], facts: Facts) -> Residual:
        return _core(group, tensors, facts, CELLS)

    def whole(
        self, groups: list[Group], tensors: Mapping[str, Tensor], facts: Facts
    ) -> Whole | str:
        if [group.prefix for group in groups] != ["net."]:
            return "the recurrence is not the one that is called net"
        if not {"encoder.U.weight", "decoder.U.weight"} <= set(tensors):
            return "encoder.U or decoder.U is missing"
        core = _core(groups[0], tensors, facts, BLOCKS)
        _, inputs, first = projection(facts, tensors, "encoder")
        outputs, _, last = projection(facts, tensors, "decoder")
        require_alike(tensors, ("net.W.weight", 0), ("encoder.U.weight", 0))
        require_alike(tensors, ("net.W.weight", 0), ("decoder.U.weight", 1))
        net = CurseNet(
            core,
            inputs=inputs,
            outputs=outputs,
            biases=(first, last),
            activations=(activation_of(facts, "encoder"), activation_of(facts, "decoder")),
            pooled=not _sequences(facts),
        )
        return Whole(net)


def _is_ours(prefix: str, tensors: Mapping[str, Tensor]) -> bool:
    """W beside P, or W alone in the place that the models give it: a name is not much."""
    names = (f"{prefix}W.weight", f"{prefix}P.weight")
    if all(name in tensors for name in names):
        return any(tensors[name].ndim == axes for name, axes in zip(names, (1, 2), strict=True))
    outside = prefix.removesuffix("net.")
    around = {f"{outside}encoder.U.weight", f"{outside}decoder.U.weight"}
    if prefix != outside and around & set(tensors):
        return True
    return prefix in ("", "net.") and names[0] in tensors and tensors[names[0]].ndim == 1


def _group(prefix: str, tensors: Mapping[str, Tensor]) -> Group:
    """W, and P where it belongs; g and f stand around the recurrence."""
    inside = [name for name in tensors if name.startswith(prefix)]
    known = (f"{prefix}g.", f"{prefix}f.", f"{prefix}W.", f"{prefix}P.")
    mixed = any(name.startswith(known[:2]) for name in inside)
    roles = ["W.weight", "P.weight"] if mixed or f"{prefix}P.weight" in tensors else ["W.weight"]
    ours = inside if prefix else [name for name in inside if name.startswith(known)]
    expected = {prefix + role for role in (*roles, *(_MIXING if mixed else ()))}
    strange = tuple(name for name in ours if name not in expected)
    return Group(prefix, {role: prefix + role for role in roles}, strange)


def _core(
    group: Group,
    tensors: Mapping[str, Tensor],
    facts: Facts,
    kinds: Mapping[str, type[Residual]],
) -> Residual:
    key = group.keys["W.weight"]
    (width,) = shape_of(tensors, key, 1)
    require_stated(facts, _NETS, "rec1_size", width, f"the length of {clean(key)} is")
    if "P.weight" in group.keys:
        require_alike(tensors, (key, 0), (group.keys["P.weight"], 0))
        require_alike(tensors, (key, 0), (group.keys["P.weight"], 1))
    mixed = f"{group.prefix}{_MIXING[0]}" in tensors
    word = _cell(group, facts, mixed=mixed)
    step, activation = _step(facts), _activation(facts)
    _require_names(group, tensors, BLOCKS[word](width, dt=step, activation=activation))
    core = kinds[word](width, dt=step, activation=activation)
    if _says_raw(facts) and bool((tensors[key] < 0).any()) and core.parameterization == "relu":
        raise SourceError(
            "E_UNSUPPORTED",
            f"the config says training: false, so that {clean(key)}, which has negative entries, "
            "passes through no relu; such a net is not rebuilt",
            hint="audit the net as it was trained: remove training: false from the config",
            stage="config",
        )
    return core


def _require_names(group: Group, tensors: Mapping[str, Tensor], block: Residual) -> None:
    """The names in the file are those of the cell."""
    known = ("W.weight", "P.weight", *_MIXING)
    given = {role for role in known if group.prefix + role in tensors}
    wanted = set(block.state_dict())
    if wanted != given:
        odd = ", ".join(sorted(group.prefix + role for role in wanted ^ given))
        what = "lack" if wanted - given else "hold"
        raise _config_error(f"the cell is {block.cell}, but the weights {what} {clean(odd)}")


def _says_raw(facts: Facts) -> bool:
    """Whether the config builds the net without the relu on W."""
    return any(facts.section(*path).get("training") is False for path in _NETS)


def _cell(group: Group, facts: Facts, *, mixed: bool) -> str:
    """From the option, or from the class in the config; names alone leave two of them open."""
    likely = _likely(group, mixed=mixed)
    if not facts.given("cell"):
        for path in _NETS:
            target = facts.section(*path).get("_target_")
            if isinstance(target, str):
                word = target.rpartition(".")[2].lower()
                word = _CLASSES.get(word, word)
                if word not in CELLS:
                    known = ", ".join(CELLS)
                    raise _config_error(f"the net is a {clean(target)}, which is none of {known}")
                return word
    return facts.choice("cell", likely + tuple(name for name in CELLS if name not in likely))


def _likely(group: Group, *, mixed: bool) -> tuple[str, ...]:
    """The cells with these names, for the hint."""
    if "P.weight" not in group.keys:
        return ("diagonalrnn", "lru")
    return ("ssm",) if mixed else ("rnn", "softplusrnn")


def _step(facts: Facts) -> float:
    step = facts.number("dt")
    if step is None:
        # A number that nobody says is taken or asked for like any other word.
        step = float(facts.choice("dt", (_STEP,), default=_STEP if _says_net(facts) else None))
    if not (math.isfinite(step) and step > 0.0):
        fact = f"dt is {step:g}, not a positive number"
        raise (
            ArgumentError(fact, hint="give --set dt=0.33")
            if facts.given("dt")
            else (_config_error(fact))
        )
    return step


def _activation(facts: Facts) -> str:
    default = _ACTIVATION if _says_net(facts) else None
    return facts.choice("activation", tuple(ACTIVATIONS), default=default)


def _says_net(facts: Facts) -> bool:
    """Whether the config speaks of the net: only then is its silence the code's default."""
    return any(facts.section(*path) for path in _NETS)


def _sequences(facts: Facts) -> bool:
    for path in _NETS:
        value = facts.section(*path).get("return_sequences")
        if isinstance(value, bool):
            return value
    facts.assumed["return_sequences"] = "true (nothing says it; the code's own default)"
    return True


def _config_error(fact: str) -> SourceError:
    return SourceError(
        "E_CONFIG",
        fact,
        hint="correct the config, or give --set cell=… --set dt=… --set activation=…",
        stage="config",
    )
