"""Mixers of Mamba-1 and Mamba-2 in hosts of unknown make: each is run by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from memaudit.errors import SourceError, clean, listed
from memaudit.interfaces import (
    AbstractPerturbable,
    DiagonalDecay,
    Role,
    plain_name,
)
from memaudit.loading.filling import fill, require_finite
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.modes import point, spectrum
from memaudit.reparams import Exp
from memaudit.report import Identity, Recurrence
from memaudit.subjects.copies import Copies, ModeSource
from memaudit.subjects.hosts import Host, choose_parts, natural_order
from memaudit.subjects.modules import ModuleSubject, checked_inputs
from memaudit_ssm.core import retrofit_form
from memaudit_ssm.mixers import (
    EPSILON,
    OPTIONAL,
    AbstractMixer,
    DualMixer,
    DualShape,
    SelectiveMixer,
    SelectiveShape,
)
from memaudit_ssm.settings import Hyperparameters, Opening, unsupported

#: A mixer of Mamba-1; models that scan both ways spell the other way A_b_log, D_b, dt_proj_b.
PLAIN = re.compile(r"^(?P<prefix>(?:.*\.)?)A(?:_(?P<letter>[a-z]))?_log\Z")

#: All directions of a scan over a picture in one tensor.
MERGED = re.compile(r"^(?P<prefix>(?:.*\.)?)A_logs\Z")

#: Norms of dt, B or C between x_proj and the scan: their form is not stored in the file.
NORM = re.compile(r"^(?P<prefix>(?:.*\.)?)(?:dt|[bBcC])_?(?:layer_?)?norms?(?:\.|\Z)")

#: Names that speak of a recurrence, in this family and in others.
ALIKE = re.compile(
    r"(?:^|\.)(?:A(?:_[a-z])?_logs?|dt_bias|dt_projs?(?:_[a-z])?[._](?:weight|bias)"
    r"|nu_log|theta_log|Lambda(?:_re|_im)?|log_A_real|inv_dt|log_dt|log_step|time_decay"
    r"|recurrent_param|recurrent_kernel|(?:weight|w)_hh(?:_l[0-9]+)?(?:_reverse)?)\Z"
)

#: A block of the original Mamba language model.
BLOCK = re.compile(r"^(?P<root>(?:.*\.)?)layers\.(?P<number>[0-9]+)\.")


#: What stands around the scan of a whole mixer, and what of it none is without.
_AROUND = ("in_weight", "in_bias", "conv_weight", "conv_bias", "out_weight", "out_bias")
_NEEDED = ("in_weight", "conv_weight", "out_weight")
#: How deep inside a module its tensors are looked for.
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The names of one scan's tensors: role → key in the checkpoint.

    Roles are those of the shapes in `memaudit_ssm.mixers`. A `merged` scan has a first axis of
    directions; else `letter` tells the directions of a module apart. `dual` is Mamba-2. `bare` says
    why the scan is run without what stands around it, and is empty for a whole mixer.
    """

    prefix: str
    merged: bool
    letter: str
    dual: bool
    keys: dict[str, str]
    bare: str = ""

    def ends(self, roles: Iterable[str]) -> str:
        """The names of some tensors inside the module."""
        return ", ".join(self.keys[role].removeprefix(self.prefix) for role in roles)

    def stripped(self, why: str) -> ScanKeys:
        """The scan without what stands around it."""
        inner = {role: key for role, key in self.keys.items() if role not in _AROUND}
        return replace(self, keys=inner, bare=why)


@dataclass(frozen=True, slots=True)
class Found:
    """The scans among some names, and why others that begin like one are none."""

    scans: tuple[ScanKeys, ...]
    refused: dict[str, str]


def find_scans(names: Collection[str]) -> Found:
    """Every mixer or bare scan among the names, in the order of their first tensor."""
    known = set(names)
    normed = {match["prefix"]: name for name in names if (match := NORM.match(name))}
    begun = {name: keys for name in names if (keys := _keys_of(name, known)) is not None}
    unexpected = _unexpected_keys(names, begun.values())
    scans: list[ScanKeys] = []
    refused: dict[str, str] = {}
    for name, keys in begun.items():
        there = replace(keys, keys={role: key for role, key in keys.keys.items() if key in known})
        missing = [role for role in keys.keys if role not in there.keys and role not in OPTIONAL]
        # Mamba-2 has B, C and dt in in_proj: without what stands around it nothing can be run.
        lost = [role for role in missing if keys.dual or role not in _NEEDED]
        extra = unexpected.get(keys.prefix, "").removeprefix(keys.prefix)
        kind = "Mamba-2, " if keys.dual else ""
        bare = ""
        if keys.merged:
            bare = "directions side by side in one tensor"
        elif missing:
            bare = f"without {keys.ends(missing)}"
        elif extra:
            bare = f"a mixer has no {extra}"
        if lost:
            refused[name] = f"{kind}without {keys.ends(lost)}"
        elif keys.prefix in normed:
            norm = normed[keys.prefix].removeprefix(keys.prefix)
            refused[name] = f"{kind}{norm} stands between x_proj and the scan"
        elif keys.dual and bare:
            refused[name] = f"{kind}{bare}"
        else:
            scans.append(there.stripped(bare) if bare else there)
    return Found(tuple(scans), refused)


def _keys_of(name: str, known: set[str]) -> ScanKeys | None:
    """The keys that a scan with this A has when nothing of its mixer is missing."""
    if match := MERGED.match(name):
        ends = ("Ds", "dt_projs_weight", "dt_projs_bias", "x_proj_weight", "x_proj_bias")
        roles = ("D", "dt_weight", "dt_bias", "x_weight", "x_bias")
        letter, dual = "", False
    elif match := PLAIN.match(name):
        prefix, letter = match["prefix"], match["letter"] or ""
        way = f"_{letter}" if letter else ""
        dual = not letter and {f"{prefix}dt_bias", f"{prefix}in_proj.weight"} <= known
        dual = dual and f"{prefix}dt_proj.weight" not in known
        roles = ("D", "dt_bias", "norm_weight", *_AROUND)
        ends = ("D", "dt_bias", "norm.weight")
        if not dual:
            roles = ("D", "dt_weight", "dt_bias", "x_weight", "x_bias", *_AROUND)
            ends = (f"D{way}", f"dt_proj{way}.weight", f"dt_proj{way}.bias")
            ends += (f"x_proj{way}.weight", f"x_proj{way}.bias")
        # Both directions of a module share its projections.
        layers = ("in_proj", f"conv1d{way}", "out_proj")
        ends += tuple(f"{layer}.{end}" for layer in layers for end in ("weight", "bias"))
    else:
        return None
    keys = {role: match["prefix"] + end for role, end in zip(roles, ends, strict=True)}
    merged = match.re is MERGED
    return ScanKeys(match["prefix"], merged, letter, dual, {"A_log": name, **keys})


def _unexpected_keys(names: Iterable[str], scans: Iterable[ScanKeys]) -> dict[str, str]:
    """Prefix of a module → a tensor inside it that none of its scans has."""
    own: dict[str, set[str]] = {}
    for scan in scans:
        own.setdefault(scan.prefix, set()).update(scan.keys.values())
    found: dict[str, str] = {}
    for name in names:
        inside = name
        for _ in range(_DEEPEST):
            inside = inside.removesuffix(".").rpartition(".")[0]
            inside = f"{inside}." if inside else ""
            if inside in own:
                if name not in own[inside]:
                    found.setdefault(inside, name)
                break
    return found


def lookalikes(names: Iterable[str]) -> list[str]:
    """The names that speak of a recurrence."""
    return [name for name in names if ALIKE.search(name)]


def is_language_model(names: Collection[str], scans: Iterable[ScanKeys]) -> bool:
    """Whether these are the names of the original Mamba language model, which runs as a whole."""
    known = set(names)
    roots = {match["root"] if (match := BLOCK.match(scan.prefix)) else None for scan in scans}
    if len(roots) != 1 or None in roots:
        return False
    root = next(iter(roots))
    tables = {f"{root}embedding.weight", f"{root}embeddings.weight"}
    if not tables & known or f"{root}norm_f.weight" not in known:
        return False
    # In a hybrid, some blocks have attention in the place of the scan.
    blocks = {m[0] for name in names if (m := BLOCK.match(name)) and m["root"] == root}
    return all(f"{block}mixer.A_log" in known for block in blocks)


def read_shape(
    keys: ScanKeys, tensors: Mapping[str, Tensor]
) -> tuple[ScanKeys, SelectiveShape | DualShape]:
    """The sizes behind some keys, or E_WEIGHTS when the shapes contradict each other.

    A scan of Mamba-1 whose surroundings have other shapes than those of a mixer is run bare.
    """
    found = {role: tensors[key] for role, key in keys.keys.items()}
    for role, tensor in found.items():
        if not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise SourceError(
                "E_WEIGHTS",
                f"{clean(keys.keys[role])} holds {dtype}, not floats",
                hint="quantized weights must be dequantized before they are saved",
                stage="weights",
            )
    if keys.dual:
        return keys, _dual_shape(keys, found)
    dt, a = found["dt_weight"], found["A_log"]
    axes = 3 if keys.merged else 2
    if dt.ndim != axes or a.ndim not in (2, axes) or 0 in (*dt.shape, *a.shape):
        raise _contradiction(keys, found, "filled axes (d, N) of A and (d, R) of dt_proj")
    directions = int(dt.shape[0]) if keys.merged else 1
    shape = SelectiveShape(int(dt.shape[-2]), int(a.shape[-1]), int(dt.shape[-1]), directions)
    inner = {role: tensor for role, tensor in found.items() if role not in _AROUND}
    if wrong := _misfit(keys, inner, shape):
        raise _contradiction(keys, inner, wrong)
    if len(inner) == len(found):
        return keys, shape
    around = _around_shape(found)
    whole = None if around is None else replace(shape, around=around)
    if whole is None or _misfit(keys, found, whole):
        return keys.stripped(f"{_facts(keys, found, _NEEDED)} are not those of a mixer"), shape
    return keys, whole


def _dual_shape(keys: ScanKeys, found: Mapping[str, Tensor]) -> DualShape:
    around = _around_shape(found)
    if around is None or found["A_log"].ndim != 1 or not found["A_log"].numel():
        raise _contradiction(keys, found, "filled axes (H,) of A and those of a Mamba-2 mixer")
    heads, inner = len(found["A_log"]), int(found["out_weight"].shape[1])
    shape = DualShape(heads, inner, len(found["conv_weight"]), around)
    if inner % heads or shape.keys < 1 or (shape.mixed - inner) % 2:
        raise _contradiction(keys, found, f"{inner} channels shared by {heads} heads, B and C")
    if wrong := _misfit(keys, found, shape):
        raise _contradiction(keys, found, wrong)
    return shape


def _around_shape(found: Mapping[str, Tensor]) -> tuple[int, int, int] | None:
    """Inputs, outputs and length of the convolution; None when the axes are not those."""
    entry, taps, out = (found[role] for role in _NEEDED)
    if (entry.ndim, taps.ndim, out.ndim) != (2, 3, 2) or 0 in (
        *entry.shape,
        *taps.shape,
        *out.shape,
    ):
        return None
    return int(entry.shape[1]), int(out.shape[0]), int(taps.shape[2])


def _misfit(keys: ScanKeys, found: Mapping[str, Tensor], shape: SelectiveShape | DualShape) -> str:
    """The wanted shape of the first tensor that has another; empty when there is none."""
    for role, tensor in found.items():
        possible = shape.stored(role, merged=keys.merged)
        if tuple(tensor.shape) not in possible:
            return f"{possible[0]} for {clean(keys.ends([role]))}"
    return ""


def directions_of(
    keys: ScanKeys, shape: SelectiveShape | DualShape, tensors: Mapping[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    """The tensors of every direction by role, as views where one tensor holds several."""
    if not keys.merged:
        yield {role: tensors[key] for role, key in keys.keys.items()}
        return
    single = shape.single()
    stacked = {
        role: tensors[key].reshape(shape.directions, *single[role])
        for role, key in keys.keys.items()
    }
    for k in range(shape.directions):
        yield {role: tensor[k] for role, tensor in stacked.items()}


def _facts(keys: ScanKeys, found: Mapping[str, Tensor], roles: Iterable[str]) -> str:
    return ", ".join(f"{keys.ends([role])} {tuple(found[role].shape)}" for role in roles)


def _contradiction(keys: ScanKeys, found: Mapping[str, Tensor], wanted: str) -> SourceError:
    facts = _facts(keys, found, found)
    where = clean(keys.prefix.rstrip(".")) or "the file"
    return SourceError(
        "E_WEIGHTS",
        f"the shapes in {where} contradict each other: {clean(facts, limit=600)}; wanted: {wanted}",
        hint="the file is damaged or holds another kind of scan; save the whole state dict",
        stage="weights",
    )


#: What training wrappers put in front of every name.
WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod|state_dict|model|net)\.)+")

NAMELESS = "mixer"


def module_names(prefixes: Iterable[str]) -> dict[str, str]:
    """Prefix → the module's name; where stripping made two alike, the whole prefix stays.

    Prefixes may be alike too once they are made safe to print: then a number tells them apart.
    """
    every = list(dict.fromkeys(prefixes))
    short = {prefix: clean(WRAPPERS.sub("", prefix)).rstrip(".") or NAMELESS for prefix in every}
    often = Counter(short.values())
    names: dict[str, str] = {}
    taken: set[str] = set()
    for number, prefix in enumerate(every):
        name = short[prefix]
        if often[name] > 1:
            name = clean(prefix).rstrip(".") or name
        names[prefix] = fresh(name, taken, number)
    return names


def scan_names(name: str, scans: Sequence[ScanKeys], directions: Sequence[int]) -> list[str]:
    """One name for every direction of a module; a module with one scan gives it its own name."""
    if sum(directions) == 1:
        return [name]
    names: list[str] = []
    for scan, count in zip(scans, directions, strict=True):
        if scan.merged:
            names += [f"{name}.scan{k}" for k in range(count)]
        else:
            names.append(f"{name}.scan_{scan.letter}" if scan.letter else f"{name}.scan")
    return names


def fresh(name: str, taken: set[str], number: int) -> str:
    """The name, or a longer one when it is taken; it is taken afterwards."""
    while name in taken:
        name = f"{name}_{number}"
    taken.add(name)
    return name


#: A report of that many scans is read by nobody; large models have a few hundred.
MOST_SCANS = 2000


@dataclass(frozen=True, slots=True)
class Scan:
    """A mixer, or one direction of a selective scan; `layer` is the module that it belongs to.

    `tensors` are those of the file, or views of them, by role, `keys` the names of the tensors
    they were cut from. `bare` says why it is no whole mixer.
    """

    name: str
    layer: str
    shape: SelectiveShape | DualShape
    tensors: dict[str, Tensor] = field(repr=False)
    keys: tuple[str, ...]
    bare: str = ""


def count(scans: Iterable[Scan]) -> int:
    """How many weights some scans have; those that directions share count once."""
    every = (tensor for scan in scans for tensor in scan.tensors.values())
    return sum({(t.data_ptr(), t.shape): t.numel() for t in every}.values())


def read_scans(groups: Sequence[ScanKeys], tensors: Mapping[str, Tensor]) -> list[Scan]:
    """The scans behind all keys in natural order of their names.

    E_WEIGHTS for contradicting shapes, E_LIMIT for too many.
    """
    read = [read_shape(keys, tensors) for keys in groups]
    total = sum(shape.directions for _, shape in read)
    if total > MOST_SCANS:
        raise SourceError(
            "E_LIMIT",
            f"{total} selective scans stand side by side; at most {MOST_SCANS} are audited",
            hint="save the layers that matter in a file of their own",
            stage="recognise",
        )
    modules = module_names(keys.prefix for keys in groups)
    scans: dict[str, Scan] = {}
    for prefix, layer in modules.items():
        inside = [(keys, shape) for keys, shape in read if keys.prefix == prefix]
        # A file may be sorted by name, and A_b_log stands before A_log there.
        inside.sort(key=lambda pair: (pair[0].merged, pair[0].letter))
        counts = [shape.directions for _, shape in inside]
        names = iter(scan_names(layer, [keys for keys, _ in inside], counts))
        for keys, shape in inside:
            used = tuple(keys.keys.values())
            for cut in directions_of(keys, shape, tensors):
                name = fresh(next(names), set(scans), len(scans))
                scans[name] = Scan(name, layer, shape, cut, used, keys.bare)
    return [scans[name] for name in natural_order(scans)]


#: Where configs say the settings of mixers.
_PLACES = (("ssm_cfg",), ("model",), ())
_ORIGINAL = "not stored in the file; the original code's own default"


def settled(scans: Iterable[Scan], hyper: Hyperparameters) -> list[Scan]:
    """The scans with what no tensor of Mamba-2 says."""
    every = list(scans)
    duals = [scan.shape for scan in every if isinstance(scan.shape, DualShape)]
    if not duals:
        return every
    most = gcd(*(size for shape in duals for size in (shape.heads, shape.keys)))
    choices = [str(n) for n in range(1, most + 1) if most % n == 0]
    groups = hyper.choice(
        "ngroups", choices, default="1", also=("n_groups",), places=_PLACES, why=_ORIGINAL
    )
    first = hyper.flag("norm_before_gate", default=False, places=_PLACES, why=_ORIGINAL)
    return [
        replace(scan, shape=replace(scan.shape, groups=int(groups), norm_before_gate=first))
        if isinstance(scan.shape, DualShape)
        else scan
        for scan in every
    ]


def recurrences(scans: Iterable[Scan]) -> tuple[Recurrence, ...]:
    """One record per module, with the number of its directions."""
    groups: dict[tuple[str, str, int], list[Scan]] = {}
    for scan in scans:
        groups.setdefault((scan.layer, scan.shape.cell, scan.shape.modes), []).append(scan)
    return tuple(
        Recurrence(layer, cell, modes, count(group), directions=len(group))
        for (layer, cell, modes), group in groups.items()
    )


def published_scans(module: nn.Module, own: Mapping[str, Tensor]) -> Iterator[DiagonalDecay]:
    """Further directions of scans in published code; A_log itself is known to the zoo of Mamba."""
    rates = {name for name in own if name.startswith("A_") and name.endswith(("_log", "_logs"))}
    if rates <= {"A_log"}:
        return
    inner = {plain_name(name) for name, _ in module.named_parameters()}
    for scan in find_scans(sorted(inner)).scans:
        if not scan.prefix and scan.keys["A_log"] != "A_log":
            yield DiagonalDecay(module, scan.keys["A_log"], Exp())


def build(scan: Scan, *, device: torch.device, dtype: torch.dtype) -> AbstractMixer:
    """The module with the weights of the scan; E_NONFINITE when A is too large for the dtype."""
    if isinstance(scan.shape, DualShape):
        network = DualMixer(scan.shape, scan.tensors, dtype=dtype)
    else:
        network = SelectiveMixer(scan.shape, scan.tensors, dtype=dtype)
    fill(network, scan.tensors, device=device)
    if not bool(torch.isfinite(network.rates()).all()):
        largest = float(network.A_log.max())
        raise SourceError(
            "E_NONFINITE",
            f"A = -exp(A_log) of {clean(scan.name)} is infinite: {clean(scan.keys[0])} reaches "
            f"{largest:g}",
            hint="the training diverged or the file is damaged; audit an earlier checkpoint",
            stage="weights",
        )
    return network.eval()


#: Shares of the inputs at which the data-dependent step size is taken.
QUANTILES = (0.05, 0.5, 0.95)

#: What the weights of a scan do, and how.
_ROLES: Mapping[str, tuple[str, str]] = {
    "A_log": ("recurrent", "diagonal"),
    "dt_bias": ("recurrent", "diagonal"),
    "dt_weight": ("input", "matrix"),
    "x_weight": ("input", "matrix"),
    "x_bias": ("input", "vector"),
    "in_weight": ("input", "matrix"),
    "in_bias": ("input", "vector"),
    "conv_weight": ("input", "matrix"),
    "conv_bias": ("input", "vector"),
    "D": ("readout", "diagonal"),
    "norm_weight": ("readout", "diagonal"),
    "out_weight": ("readout", "matrix"),
    "out_bias": ("readout", "vector"),
}


class ScanSubject(ModuleSubject):
    """A mixer, or a bare scan, that answers batches (B,T,D) of what its host feeds it."""

    def __init__(self, name: str, network: AbstractMixer, identity: Identity) -> None:
        own = {"width": network.width, "device": network.A_log.device, "dtype": network.A_log.dtype}
        super().__init__(network, identity, **own)
        self.name = name
        self.network = network

    def perturbable(self) -> AbstractPerturbable:
        """The module with its weights as an argument; its eigenvalues are those at rest."""
        roles = {
            name: Role(*_ROLES[plain_name(name)], self.name)
            for name, _ in self.network.named_parameters()
        }

        def call(network: Any, inputs: Tensor) -> Tensor:
            return network.stepped(checked_inputs(self, inputs))

        def modes(network: Any) -> Tensor:
            return torch.exp(network.rest().unsqueeze(-1) * network.rates())

        sources = {self.name: ModeSource(self.network, modes)}
        return Copies(self.network, roles, call=call, modes=sources)

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues exp(dt·A) at rest, and at quantiles of dt over the inputs (B,T,D)."""
        checked = None if inputs is None else checked_inputs(self, inputs)
        with torch.no_grad():
            rates = _numbers(self.network.rates())
            rest = _numbers(self.network.rest())
            dt = None if checked is None else _numbers(self.network.steps(checked).flatten(0, 1))
        points = ()
        if dt is not None:
            taken = zip(QUANTILES, np.quantile(dt, QUANTILES, axis=0), strict=True)
            points = tuple(
                point(f"dt {100 * share:.0f} %", _modes(steps, rates)) for share, steps in taken
            )
        found = spectrum(
            layer=self.name,
            cell=self.network.cell,
            parameterization=retrofit_form(self.network, "A_log") or "exp",
            at="dt at its bias",
            eigenvalues=_modes(rest, rates),
            points=points,
        )
        return (found,)


def _modes(steps: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Eigenvalues exp(dt_c·A_cn) of every channel, or head, and state."""
    return np.exp(steps[:, None] * rates)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


FAMILY = "selective-scan"


def open_scans(opening: Opening) -> Host:
    """The host of every mixer or scan that the settings choose."""
    tensors = opening.tensors
    found = find_scans(tensors)
    alike = lookalikes(tensors)
    if not found.scans:
        shown = listed(clean(f"{name} {tuple(tensor.shape)}") for name, tensor in tensors.items())
        close = "".join(f"; {note}" for note in _unmatched_notes(alike, found.refused))
        raise unsupported(
            f"no selective scan (A_log, D, dt_proj, x_proj) is among its tensors: {shown}{close}",
            hint="memaudit list adapters shows what else can be opened",
            stage="recognise",
        )
    hyper = Hyperparameters(opening.options, opening.config)
    scans = settled(read_scans(found.scans, tensors), hyper)
    hyper.settle()
    chosen = choose_parts((scan.name for scan in scans), opening.settings.layers)
    run = [scan for scan in scans if scan.name in chosen]
    require_finite({k: tensors[k] for scan in run for k in scan.keys}, source=opening.text)
    used = {key for scan in scans for key in scan.keys}
    total = opening.parameters
    identity = opening.identity(
        family=FAMILY,
        parameters=total,
        description=_description(scans),
        coverage=min(1.0, count(run) / total),
        recurrences=recurrences(scans),
        assumed=dict(hyper.assumed),
        unreached=tuple(scan.name for scan in scans if scan.name not in chosen),
        notes=(
            *opening.notes,
            *hyper.notes,
            *_joining_notes(scans),
            *_left_out_notes(scans, run),
            *_unmatched_notes([name for name in alike if name not in used], found.refused),
            *_unused_notes(tensors, {*used, *alike}),
        ),
    )
    parts: dict[str, ScanSubject] = {}
    for scan in run:
        own = opening.identity(
            family=FAMILY,
            parameters=count([scan]),
            description=f"{scan.shape.title}, {scan.shape.sizes}",
            recurrences=recurrences([scan]),
        )
        network = build(scan, device=opening.device, dtype=opening.dtype)
        parts[scan.name] = ScanSubject(scan.name, network, own)
    return Host(parts, identity)


def _description(scans: Sequence[Scan]) -> str:
    """One line: how many of which kind and size, in how many modules."""
    modules = len({scan.layer for scan in scans})
    inside = f" in {modules} modules" if 1 < modules < len(scans) else ""
    kinds = Counter((scan.shape.title, scan.shape.sizes) for scan in scans)
    words = listed(
        f"{number} {title}{'s' if number > 1 else ''} ({sizes})"
        for (title, sizes), number in kinds.items()
    )
    return f"host of {words}{inside}"


def _joining_notes(scans: Sequence[Scan]) -> Iterator[str]:
    """What was taken for granted about everything that is run, and what a direction means."""
    bare = [scan for scan in scans if scan.bare]
    noun = "scan" if len(bare) == len(scans) else "mixer"
    whom = f"its {noun} is run by itself" if len(scans) == 1 else f"each {noun} is run by itself"
    where = "fed where x_proj reads" if noun == "scan" else "from in_proj to out_proj"
    between = ""
    if any(isinstance(scan.shape, SelectiveShape) for scan in scans):
        between = ", with nothing between x_proj and the scan"
    yield (
        f"how the model feeds and joins its {noun}s is not stored in the file: {whom}, "
        f"{where}{between}"
    )
    for why in dict.fromkeys(scan.bare for scan in bare):
        modules = listed(dict.fromkeys(scan.layer for scan in bare if scan.bare == why))
        yield f"run as bare scans, without projections and gate ({clean(why)}): {modules}"
    if any(isinstance(scan.shape, DualShape) for scan in scans):
        yield (
            f"Mamba-2: the epsilon of the norm is {EPSILON:g} and step sizes have no limits, as in "
            "the original code by default; neither is stored in the file"
        )
    if max(Counter(scan.layer for scan in scans).values()) > 1:
        yield (
            "a direction may read its sequence backwards or across; each is run forwards, so lags "
            "count steps of its own order"
        )


def _left_out_notes(scans: Sequence[Scan], run: Sequence[Scan]) -> Iterator[str]:
    """What the option `layers` left out."""
    taken = {scan.name for scan in run}
    idle = [scan for scan in scans if scan.name not in taken]
    if idle:
        noun = "scans" if any(scan.bare for scan in scans) else "mixers"
        yield (
            f"left out by the option layers: {len(idle)} of {len(scans)} {noun} "
            f"({count(idle) / count(scans):.0%} of their parameters): "
            f"{listed(scan.name for scan in idle)}"
        )


def _unmatched_notes(names: Sequence[str], refused: Mapping[str, str]) -> Iterator[str]:
    """The tensors that look recurrent and belong to no scan, with the reason where there is one."""
    # Those with a reason first: the others are often their companions.
    ordered = sorted(names, key=lambda name: name not in refused)
    words = [f"{clean(n)} ({clean(refused[n])})" if n in refused else clean(n) for n in ordered]
    if words:
        yield f"recurrent-looking tensors that were not matched: {listed(words)}"


def _unused_notes(tensors: Mapping[str, Tensor], named: Collection[str]) -> Iterator[str]:
    """The other tensors of floats, which nothing runs; weight and bias of a layer count once."""
    rest = [n for n, tensor in tensors.items() if n not in named and tensor.is_floating_point()]
    if rest:
        owners = dict.fromkeys(n.removesuffix(".weight").removesuffix(".bias") for n in rest)
        yield f"not run: {listed(map(clean, owners))}"
