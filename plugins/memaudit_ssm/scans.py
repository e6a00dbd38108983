"""Selective scans of Mamba-1 in hosts of unknown make: each is run by itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.interfaces import (
    AbstractPerturbable,
    AbstractSubject,
    DiagonalDecay,
    Role,
    plain_name,
)
from memaudit.loading.filling import fill, require_finite
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.modes import point, spectrum
from memaudit.numerics.inputs import checked_inputs
from memaudit.numerics.scans import selective_scan
from memaudit.reparams import Exp
from memaudit.report import Identity, Recurrence
from memaudit.subjects.copies import Copies, ModeSource
from memaudit.subjects.hosts import AbstractHost
from memaudit_ssm.core import retrofit_form
from memaudit_ssm.settings import Opening, unsupported

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


@dataclass(frozen=True, slots=True)
class ScanKeys:
    """The names of one scan's tensors: role → key in the checkpoint.

    Roles are A_log, D, dt_weight, dt_bias, x_weight and, where there is one, x_bias. A `merged`
    scan has a first axis of directions; else `letter` tells the directions of a module apart.
    """

    prefix: str
    merged: bool
    letter: str
    keys: dict[str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """The scans among some names, and why others that begin like one are none."""

    scans: tuple[ScanKeys, ...]
    refused: dict[str, str]


def find_scans(names: Collection[str]) -> Found:
    """Every selective scan among the names, in the order of their first tensor."""
    known = set(names)
    normed = {match["prefix"]: name for name in names if (match := NORM.match(name))}
    scans: list[ScanKeys] = []
    refused: dict[str, str] = {}
    for name in names:
        keys = _keys_of(name)
        if keys is None:
            continue
        missing = [key for role, key in keys.keys.items() if role != "x_bias" and key not in known]
        if missing:
            ends = ", ".join(key.removeprefix(keys.prefix) for key in missing)
            dual = {f"{keys.prefix}dt_bias", f"{keys.prefix}in_proj.weight"} <= known
            later = "Mamba-2, which needs its whole model; " if dual else ""
            refused[name] = f"{later}without {ends}"
        elif keys.prefix in normed:
            norm = normed[keys.prefix].removeprefix(keys.prefix)
            refused[name] = f"{norm} stands between x_proj and the scan"
        else:
            there = {role: key for role, key in keys.keys.items() if key in known}
            scans.append(ScanKeys(keys.prefix, keys.merged, keys.letter, there))
    return Found(tuple(scans), refused)


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


def _keys_of(name: str) -> ScanKeys | None:
    """The keys that a scan with this A must have."""
    if match := MERGED.match(name):
        letter = ""
        ends = ("Ds", "dt_projs_weight", "dt_projs_bias", "x_proj_weight", "x_proj_bias")
    elif match := PLAIN.match(name):
        letter = match["letter"] or ""
        way = f"_{letter}" if letter else ""
        ends = (f"D{way}", f"dt_proj{way}.weight", f"dt_proj{way}.bias")
        ends += (f"x_proj{way}.weight", f"x_proj{way}.bias")
    else:
        return None
    prefix, roles = match["prefix"], ("D", "dt_weight", "dt_bias", "x_weight", "x_bias")
    keys = {role: prefix + end for role, end in zip(roles, ends, strict=True)}
    return ScanKeys(prefix, match.re is MERGED, letter, {"A_log": name, **keys})


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Sizes of one scan: channels d, states N per channel, rank R of dt, directions K."""

    channels: int
    states: int
    rank: int
    directions: int = 1

    def single(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor of one direction, by role."""
        d, n, rank = self.channels, self.states, self.rank
        return {
            "A_log": (d, n),
            "D": (d,),
            "dt_weight": (d, rank),
            "dt_bias": (d,),
            "x_weight": (rank + 2 * n, d),
            "x_bias": (rank + 2 * n,),
        }

    def stored(self, role: str, *, merged: bool) -> list[tuple[int, ...]]:
        """The shapes that a file may keep a tensor in; A and D may hold directions as rows."""
        one = self.single()[role]
        if not merged:
            return [one]
        stacked = (self.directions, *one)
        rows = (self.directions * one[0], *one[1:])
        return [rows, stacked] if role in ("A_log", "D") else [stacked]


def read_shape(keys: ScanKeys, tensors: Mapping[str, Tensor]) -> ScanShape:
    """The sizes behind some keys, or E_WEIGHTS when the shapes contradict each other."""
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
    dt, a = found["dt_weight"], found["A_log"]
    axes = 3 if keys.merged else 2
    if dt.ndim != axes or a.ndim not in (2, axes) or 0 in (*dt.shape, *a.shape):
        raise _contradiction(keys, found, "filled axes (d, N) of A and (d, R) of dt_proj")
    directions = int(dt.shape[0]) if keys.merged else 1
    shape = ScanShape(int(dt.shape[-2]), int(a.shape[-1]), int(dt.shape[-1]), directions)
    for role, tensor in found.items():
        possible = shape.stored(role, merged=keys.merged)
        if tuple(tensor.shape) not in possible:
            end = clean(keys.keys[role].removeprefix(keys.prefix))
            raise _contradiction(keys, found, f"{possible[0]} for {end}")
    return shape


def directions_of(
    keys: ScanKeys, shape: ScanShape, tensors: Mapping[str, Tensor]
) -> Iterator[dict[str, Tensor]]:
    """The tensors of every direction by role, as views of the stored ones."""
    single = shape.single()
    stacked = {
        role: tensors[key].reshape(shape.directions, *single[role])
        for role, key in keys.keys.items()
    }
    for k in range(shape.directions):
        yield {role: tensor[k] for role, tensor in stacked.items()}


def _contradiction(keys: ScanKeys, found: Mapping[str, Tensor], wanted: str) -> SourceError:
    facts = ", ".join(
        f"{keys.keys[role].removeprefix(keys.prefix)} {tuple(tensor.shape)}"
        for role, tensor in found.items()
    )
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


CELL = "mamba1"

#: A report of that many scans is read by nobody; large models have a few hundred.
MOST_SCANS = 2000


@dataclass(frozen=True, slots=True)
class Scan:
    """One direction of a selective scan; `layer` is the module that it belongs to.

    `tensors` are views of the file's by role, `keys` the names of the tensors they were cut from.
    """

    name: str
    layer: str
    shape: ScanShape
    tensors: dict[str, Tensor] = field(repr=False)
    keys: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """How many weights this direction has."""
        return sum(tensor.numel() for tensor in self.tensors.values())

    @property
    def sizes(self) -> str:
        """Its sizes in a few words."""
        return f"{self.shape.channels} channels of {self.shape.states} states"


def read_scans(groups: Sequence[ScanKeys], tensors: Mapping[str, Tensor]) -> list[Scan]:
    """The scans behind all keys; E_WEIGHTS for contradicting shapes, E_LIMIT for too many."""
    shapes = [read_shape(keys, tensors) for keys in groups]
    total = sum(shape.directions for shape in shapes)
    if total > MOST_SCANS:
        raise SourceError(
            "E_LIMIT",
            f"{total} selective scans stand side by side; at most {MOST_SCANS} are audited",
            hint="save the layers that matter in a file of their own",
            stage="recognise",
        )
    modules = module_names(keys.prefix for keys in groups)
    taken: set[str] = set()
    scans: list[Scan] = []
    for prefix, layer in modules.items():
        inside = [(k, s) for k, s in zip(groups, shapes, strict=True) if k.prefix == prefix]
        # A file may be sorted by name, and A_b_log stands before A_log there.
        inside.sort(key=lambda pair: (pair[0].merged, pair[0].letter))
        counts = [shape.directions for _, shape in inside]
        names = iter(scan_names(layer, [keys for keys, _ in inside], counts))
        for keys, shape in inside:
            used = tuple(keys.keys.values())
            for cut in directions_of(keys, shape, tensors):
                name = fresh(next(names), taken, len(scans))
                scans.append(Scan(name, layer, shape, cut, used))
    return scans


def recurrences(scans: Iterable[Scan]) -> tuple[Recurrence, ...]:
    """One record per module, with the number of its directions."""
    groups: dict[tuple[str, int, int], list[Scan]] = {}
    for scan in scans:
        key = (scan.layer, scan.shape.channels, scan.shape.states)
        groups.setdefault(key, []).append(scan)
    return tuple(
        Recurrence(
            layer=layer,
            cell=CELL,
            size=channels * states,
            parameters=sum(scan.parameters for scan in group),
            directions=len(group),
        )
        for (layer, channels, states), group in groups.items()
    )


class SelectiveScan(nn.Module):
    """The recurrence of Mamba-1 with the projections that steer it, (B,T,d) → (B,T,d).

    With dt, B and C linear in the input u_t, dt = softplus(W·x_proj(u_t) + bias):
    h_t = exp(dt·A) h_{t-1} + dt·B_t u_t and y_t = C_t·h_t + D u_t, A = -exp(A_log).
    """

    A_log: Tensor
    D: Tensor
    dt_weight: Tensor
    dt_bias: Tensor
    x_weight: Tensor
    x_bias: Tensor | None

    def __init__(self, scan: Scan, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes = (scan.shape.rank, scan.shape.states, scan.shape.states)
        for role, shape in scan.shape.single().items():
            value = None
            if role in scan.tensors:
                empty = torch.empty(shape, device="meta", dtype=dtype)
                value = nn.Parameter(empty, requires_grad=False)
            self.register_parameter(role, value)

    def rates(self) -> Tensor:
        """A (d,N), the rates of the states in continuous time: all negative."""
        return -self.A_log.exp()

    def decay(self) -> DiagonalDecay:
        """The weight that makes the modes."""
        return DiagonalDecay(self, "A_log", Exp())

    def steps(self, inputs: Tensor) -> Tensor:
        """The step sizes dt (B,T,d) that the inputs (B,T,d) set."""
        low = self._projected(inputs)[0]
        return functional.softplus(functional.linear(low, self.dt_weight, self.dt_bias))

    def forward(self, inputs: Tensor) -> Tensor:
        """The scan over time, from a state of zeros."""
        low, b, c = self._projected(inputs)
        answer = selective_scan(
            inputs.mT,
            functional.linear(low, self.dt_weight).mT,
            self.rates(),
            b.mT,
            c.mT,
            D=self.D,
            delta_bias=self.dt_bias,
            delta_softplus=True,
        )
        assert isinstance(answer, Tensor)  # the last state was not asked for
        return answer.mT

    def stepped(self, inputs: Tensor) -> Tensor:
        """The same step by step, nothing written in place: for copies at once and gradients."""
        low, b, c = self._projected(inputs)
        dt = functional.softplus(functional.linear(low, self.dt_weight, self.dt_bias))
        decays = torch.exp(dt.unsqueeze(-1) * self.rates())  # (B,T,d,N)
        fed = (dt * inputs).unsqueeze(-1) * b.unsqueeze(2)
        state = torch.zeros_like(fed[:, 0])
        states: list[Tensor] = []
        for decay, now in zip(decays.unbind(1), fed.unbind(1), strict=True):
            state = torch.addcmul(now, decay, state)
            states.append(state)
        return torch.einsum("btdn,btn->btd", torch.stack(states, dim=1), c) + self.D * inputs

    def _projected(self, inputs: Tensor) -> tuple[Tensor, ...]:
        return functional.linear(inputs, self.x_weight, self.x_bias).split(self.sizes, dim=-1)


def published_scans(module: nn.Module, own: Mapping[str, Tensor]) -> Iterator[DiagonalDecay]:
    """Further directions of scans in published code; A_log itself is known to the zoo of Mamba."""
    rates = {name for name in own if name.startswith("A_") and name.endswith(("_log", "_logs"))}
    if rates <= {"A_log"}:
        return
    inner = {plain_name(name) for name, _ in module.named_parameters()}
    for scan in find_scans(sorted(inner)).scans:
        if not scan.prefix and scan.keys["A_log"] != "A_log":
            yield DiagonalDecay(module, scan.keys["A_log"], Exp())


def build(scan: Scan, *, device: torch.device, dtype: torch.dtype) -> SelectiveScan:
    """The module with the weights of the scan; E_NONFINITE when A is too large for the dtype."""
    network = SelectiveScan(scan, dtype=dtype)
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
    "D": ("readout", "diagonal"),
}


class ScanSubject(AbstractSubject):
    """A selective scan that answers batches (B,T,d) of what its host feeds it."""

    def __init__(self, name: str, network: SelectiveScan, identity: Identity) -> None:
        self.name = name
        self.network = network
        self.identity = identity
        self.input_size = network.A_log.shape[0]
        self.pooled = False
        self.device = network.A_log.device
        self.dtype = network.A_log.dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,d) floats by (B,T,d)."""
        checked = self._checked(inputs)
        with torch.no_grad():
            return self.network(checked)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the scan and its projections."""
        return self.network.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The scan itself."""
        return {"": self.network}

    def perturbable(self) -> AbstractPerturbable:
        """The scan with its weights as an argument; its eigenvalues are those at rest."""
        roles = {
            name: Role(*_ROLES[plain_name(name)], self.name)
            for name, _ in self.network.named_parameters()
        }

        def call(network: Any, inputs: Tensor) -> Tensor:
            return network.stepped(self._checked(inputs))

        def modes(network: Any) -> Tensor:
            zeros = self._zero_input().to(network.A_log.dtype)
            return torch.exp(network.steps(zeros)[0, 0].unsqueeze(-1) * network.rates())

        sources = {self.name: ModeSource(self.network, modes)}
        return Copies(self.network, roles, call=call, modes=sources)

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues exp(dt·A) at rest, and at quantiles of dt over the inputs (B,T,d)."""
        checked = None if inputs is None else self._checked(inputs)
        with torch.no_grad():
            rates = _numbers(self.network.rates())
            rest = _numbers(self.network.steps(self._zero_input())[0, 0])
            dt = None if checked is None else _numbers(self.network.steps(checked).flatten(0, 1))
        points = ()
        if dt is not None:
            taken = zip(QUANTILES, np.quantile(dt, QUANTILES, axis=0), strict=True)
            points = tuple(
                point(f"dt {100 * share:.0f} %", _modes(steps, rates)) for share, steps in taken
            )
        found = spectrum(
            layer=self.name,
            cell=CELL,
            parameterization=retrofit_form(self.network, "A_log") or "exp",
            at="dt at its bias",
            eigenvalues=_modes(rest, rates),
            points=points,
        )
        return (found,)

    def _zero_input(self) -> Tensor:
        """One step of zeros."""
        shape = (1, 1, len(self.network.A_log))
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=len(self.network.A_log),
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )


def _modes(steps: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Eigenvalues exp(dt_c·A_cn) of every channel and state."""
    return np.exp(steps[:, None] * rates)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()


class ScanHost(AbstractHost[ScanSubject]):
    """A host of selective scans."""

    called = "selective scans"

    def live_modules(self) -> Mapping[str, nn.Module]:
        """The scan of every part."""
        return {name: part.network for name, part in self._parts.items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The spectra of all parts at rest; only a single part can be fed inputs."""
        if inputs is not None and self._only is None:
            raise ArgumentError(
                f"{len(self._parts)} scans have no input in common",
                hint="feed them one by one: subject.parts()[name].spectra(inputs)",
            )
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))


FAMILY = "selective-scan"


def open_scans(opening: Opening) -> ScanHost:
    """The host of every selective scan that the settings choose."""
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
    scans = read_scans(found.scans, tensors)
    chosen = opening.settings.chosen(scan.name for scan in scans)
    run = [scan for scan in scans if scan.name in chosen]
    require_finite({k: tensors[k] for scan in run for k in scan.keys}, source=opening.text)
    used = {key for scan in scans for key in scan.keys}
    total = opening.parameters
    identity = opening.identity(
        family=FAMILY,
        parameters=total,
        description=_description(scans),
        coverage=min(1.0, sum(scan.parameters for scan in run) / total),
        recurrences=recurrences(scans),
        notes=(
            *opening.notes,
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
            parameters=scan.parameters,
            description=f"selective scan, {scan.sizes}",
            recurrences=recurrences([scan]),
        )
        network = build(scan, device=opening.device, dtype=opening.dtype)
        parts[scan.name] = ScanSubject(scan.name, network, own)
    return ScanHost(parts, identity)


def _description(scans: Sequence[Scan]) -> str:
    """One line: how many scans of which size, in how many modules."""
    modules = len({scan.layer for scan in scans})
    inside = f" in {modules} modules" if 1 < modules < len(scans) else ""
    kinds = Counter(scan.sizes for scan in scans)
    words = listed(
        f"{count} selective scan{'s' if count > 1 else ''} ({sizes})"
        for sizes, count in kinds.items()
    )
    return f"host of {words}{inside}"


def _joining_notes(scans: Sequence[Scan]) -> Iterator[str]:
    """What was taken for granted about every scan that is run, and what a direction means."""
    whom = "its scan is run by itself" if len(scans) == 1 else "each scan is run by itself"
    yield (
        f"how the model feeds and joins its scans is not stored in the file: {whom}, fed where "
        "x_proj reads, with nothing between x_proj and the scan"
    )
    if max(Counter(scan.layer for scan in scans).values()) > 1:
        yield (
            "a direction may read its sequence backwards or across; each is run forwards, so lags "
            "count steps of its own order"
        )


def _left_out_notes(scans: Sequence[Scan], run: Sequence[Scan]) -> Iterator[str]:
    """The scans that the option `layers` left out."""
    taken = {scan.name for scan in run}
    idle = [scan for scan in scans if scan.name not in taken]
    if idle:
        share = sum(scan.parameters for scan in idle) / sum(scan.parameters for scan in scans)
        yield (
            f"left out by the option layers: {len(idle)} of {len(scans)} scans "
            f"({share:.0%} of their parameters): {listed(scan.name for scan in idle)}"
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
