"""Checkpoints of known families opened: recognised, rebuilt, filled and described."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from memaudit.contracts import (
    AbstractLinearPart,
    AbstractPerturbable,
    AbstractReparam,
    AbstractSubject,
    DiagonalDecay,
    NoDecay,
    Request,
    Role,
    StoredDecay,
)
from memaudit.ensemble import ModeSource, ModuleEnsemble
from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.host import AbstractHost
from memaudit.loading.digest import digest_tensors
from memaudit.loading.filling import fill
from memaudit.loading.finite import require_finite
from memaudit.numerics.inputs import checked_inputs
from memaudit.numerics.linear import System
from memaudit.numerics.spectra import spectrum
from memaudit.perturbable import plain_name
from memaudit.reparams.clip import Clip
from memaudit.reparams.direct import Direct
from memaudit.reparams.exp import Exp
from memaudit.reparams.relu import Relu
from memaudit.results import Identity, Recurrence, Spectrum
from memaudit_ssm.core import Core, Stored, cast, class_name, is_computed, retrofit_form
from memaudit_ssm.curse import CurseFamily
from memaudit_ssm.family import AbstractFamily, Group, SequenceNet, Whole
from memaudit_ssm.lru import LRUFamily
from memaudit_ssm.s4 import S4_LAWS, SIGNED, TIED, UNTIED, S4Family
from memaudit_ssm.s4_old import S4V1Family, S4V2Family, S4V3Family
from memaudit_ssm.s4d import S4DFamily, law_of_kernel
from memaudit_ssm.s5 import LARGEST_RATE, S5Family
from memaudit_ssm.scans import CELL, SelectiveScan, find_scans, lookalikes, module_names
from memaudit_ssm.settings import HYPERPARAMETERS, Facts, RunSettings

#: Up to so many steps a part is stepped: a convolution would be with the very kernel it is held
#: against.
_STEPPED = 4096


class SystemPart(AbstractLinearPart):
    """One direction of a linear time-invariant layer."""

    def __init__(self, system: System, execution: str) -> None:
        self.system = system
        self.width = system.width
        self.banked = system.banked
        self._execution = execution

    def kernel(self, start: int, stop: int) -> Tensor:
        with torch.no_grad():
            return self.system.kernel(start, stop)

    def reach(self, start: int, stop: int) -> Tensor:
        with torch.no_grad():
            return self.system.reach(start, stop)

    def transition(self) -> Tensor:
        with torch.no_grad():
            return self.system.transition()

    def respond(self, u: Tensor) -> Tensor:
        with torch.no_grad():
            how = "stepping" if u.shape[1] <= _STEPPED else self._execution
            return self.system.run(u, how)


def linear_parts_of(cores: Mapping[str, Core]) -> dict[str, AbstractLinearPart]:
    """Every direction of every linear layer, by name."""
    with torch.no_grad():
        return {
            f"{name}.{direction}" if direction else name: SystemPart(system, core.execution)
            for name, core in cores.items()
            for direction, system in core.systems().items()
        }


def spectra_of(cores: Mapping[str, Core]) -> tuple[Spectrum, ...]:
    """The eigenvalues of every layer."""
    return tuple(
        spectrum(
            layer=name,
            cell=core.cell,
            parameterization=parameterization(core),
            at=core.at,
            eigenvalues=_modes(core),
        )
        for name, core in cores.items()
    )


def parameterization(core: Core) -> str:
    """How the eigenvalue is made from the raw weight; what a retrofit says of it comes first."""
    stored = core.decay()
    told = None if isinstance(stored, str) else retrofit_form(stored.owner, stored.name)
    return core.parameterization if told is None else told


def _modes(core: Core) -> Tensor:
    """The eigenvalues in double precision: next to the boundary single precision crosses it."""
    wide = deepcopy(core).cpu()
    cast(wide, torch.float64)
    with torch.no_grad():
        return wide.modes()


def recurrences(cores: Mapping[str, Core]) -> tuple[Recurrence, ...]:
    """One record per layer; its parameters are those of the recurrence and what mixes behind it."""
    return tuple(
        Recurrence(
            layer=name,
            cell=core.cell,
            size=core.states,
            parameters=sum(p.numel() for p in core.parameters()),
            directions=core.directions,
        )
        for name, core in cores.items()
    )


#: Inside a recurrent layer: which names make eigenvalues, feed the state, and read it.
_INSIDE: tuple[tuple[str, str, str], ...] = (
    # Curse-of-memory keeps a diagonal in W and a basis in P; S4 a low-rank part in P and Q.
    (r"W\.weight", "recurrent", "diagonal"),
    (r"P\.weight|P|Q", "recurrent", "matrix"),
    (r"(log|inv)_[Aw]_real|[Aw]_real|[Aw]_imag|w", "recurrent", "diagonal"),
    (r"(log|inv)_dt|log_step|nu_log|theta_log|Lambda(_re|_im)?", "recurrent", "diagonal"),
    (r"gamma_log", "input", "diagonal"),
    (r"B(_re|_im|H|P)?|(g|input_linear)\..*", "input", ""),
    (r"C(_re|_im|H|P|1|2)?|(f|output_linear)\..*", "readout", ""),
)

#: Around the recurrent layers: what stands at the ends of a model, and in a block of S4.
_AROUND: tuple[tuple[str, str], ...] = (
    (r"(.*\.)?encoder(\.\d+)?(\.U)?\.(weight|bias)|.*\.input_linear\..*", "input"),
    (r"decoder(\.\d+)?(\.U|\.output_transform)?\.(weight|bias)|.*\.output_linear\..*", "readout"),
)


def perturbable_of(
    module: nn.Module, cores: Mapping[str, Core], call: Callable[[nn.Module, Tensor], Tensor]
) -> ModuleEnsemble:
    """A model with these recurrent layers; its embedding of tokens stays as it is."""

    def lightly(module: nn.Module, inputs: Tensor) -> Tensor:
        for core in module.modules():
            if not isinstance(core, Core):
                continue
            core.checked = False  # the ensemble puts attributes back
            if core.execution == "auto":  # what the user forced stays forced
                core.execution = "light"
        return call(module, inputs)

    sources = {name: ModeSource(core, _unchecked_modes) for name, core in cores.items()}
    return ModuleEnsemble(module, roles(module, cores), call=lightly, modes=sources)


def roles(module: nn.Module, cores: Mapping[str, Core]) -> dict[str, Role]:
    """The role of every weight but tokens', which floats do not pass through."""
    inner = {
        id(weight): _inside(plain_name(own), weight, layer)
        for layer, core in cores.items()
        for own, weight in core.named_parameters()
    }
    tables = (part for part in module.modules() if isinstance(part, nn.Embedding))
    left = {id(weight) for table in tables for weight in table.parameters()}
    return {
        name: inner.get(id(weight)) or _around(plain_name(name), weight)
        for name, weight in module.named_parameters()
        if id(weight) not in left
    }


def _inside(name: str, weight: Tensor, layer: str) -> Role:
    """The role of a weight inside a layer; older versions have it below further names."""
    if name.rpartition(".")[2] == "D":
        flat = weight.ndim == 1 or weight.shape[0] == 1
        return Role("readout", "diagonal" if flat else "matrix", layer)
    for pattern, group, form in _INSIDE:
        if re.fullmatch(rf"(kernel\.)*({pattern})", name):
            return Role(group, form or _form(weight), layer)
    return Role("other", _form(weight), layer)


def _around(name: str, weight: Tensor) -> Role:
    for pattern, group in _AROUND:
        if re.fullmatch(pattern, name):
            return Role(group, _form(weight))
    return Role("other", _form(weight))


def _form(weight: Tensor) -> str:
    return "matrix" if weight.ndim > 1 else "vector"


def _unchecked_modes(core: nn.Module) -> Tensor:
    core.checked = False  # type: ignore[assignment]
    return core.modes()  # type: ignore[operator]


class LayerSubject(AbstractSubject):
    """One recurrent layer, without what stands around it."""

    def __init__(
        self,
        name: str,
        core: Core,
        identity: Identity,
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.name = name
        self.core = core.eval().requires_grad_(False)
        self.identity = identity
        self.input_size = core.width
        self.pooled = False
        self.device = device
        self.dtype = dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats by (B,T,M)."""
        with torch.no_grad():
            return self._answer(self.core, inputs)

    def perturbable(self) -> AbstractPerturbable:
        return perturbable_of(self.core, {self.name: self.core}, self._answer)

    def weights(self) -> Mapping[str, Tensor]:
        return self.core.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.core}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        del inputs
        return spectra_of({self.name: self.core})

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return linear_parts_of({self.name: self.core})

    def _answer(self, core: nn.Module, inputs: Tensor) -> Tensor:
        checked = checked_inputs(
            inputs, width=self.core.width, vocabulary=None, device=self.device, dtype=self.dtype
        )
        return core(checked)


class LayerHost(AbstractHost[LayerSubject]):
    """A host of recurrent layers."""

    called = "layers"

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {name: part.core for name, part in self._parts.items()}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        return tuple(item for part in self._parts.values() for item in part.spectra(inputs))

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return {k: v for part in self._parts.values() for k, v in part.linear_parts().items()}


class NetSubject(AbstractSubject):
    """A model that was rebuilt from its checkpoint; `net` has the names of the original."""

    def __init__(
        self, net: SequenceNet, identity: Identity, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.net = net.eval().requires_grad_(False)
        self.identity = identity
        self.input_size = net.width
        self.pooled = net.pooled
        self.vocabulary = None if net.table is None else net.table.num_embeddings
        self.device = device
        self.dtype = dtype

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        return self._answer(inputs, None)

    def layers(self) -> tuple[str, ...]:
        return self.net.blocks()

    def listen(self, inputs: Tensor, hear: Callable[[str, Tensor], None]) -> Tensor:
        return self._answer(inputs, hear)

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Embeddings of distinct tokens, for a model that takes tokens."""
        table = self.net.table
        if table is None:
            return None
        ids = torch.randperm(table.num_embeddings, generator=generator)[:count].to(self.device)
        with torch.no_grad():
            return table(ids)

    def weights(self) -> Mapping[str, Tensor]:
        return self.net.state_dict()

    def live_modules(self) -> Mapping[str, nn.Module]:
        return {"": self.net}

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer: they do not depend on the data."""
        del inputs
        return spectra_of(self.net.cores())

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return linear_parts_of(self.net.cores())

    def perturbable(self) -> AbstractPerturbable:
        def call(net: nn.Module, inputs: Tensor) -> Tensor:
            return net(self._checked(inputs))

        return perturbable_of(self.net, self.net.cores(), call)

    def _answer(self, inputs: Any, hear: Callable[[str, Tensor], None] | None) -> Tensor:
        checked = self._checked(inputs)
        with torch.no_grad():
            table = None if checked.is_floating_point() else self.net.table
            return self.net(checked if table is None else table(checked), hear)

    def _checked(self, inputs: Any) -> Tensor:
        return checked_inputs(
            inputs,
            width=self.net.width,
            vocabulary=self.vocabulary,
            device=self.device,
            dtype=self.dtype,
        )


def open_layer(core: Core, text: str, request: Request, settings: RunSettings) -> LayerSubject:
    """A copy of the layer, in its own precision unless another is asked for."""
    idle = [name for name in HYPERPARAMETERS if request.options.get(name) is not None]
    if idle:
        raise ArgumentError(
            f"{', '.join(idle)}: a layer in memory has its settings already",
            hint="build it with others",
        )
    layer = deepcopy(core)
    weight = next(iter(layer.parameters()))
    dtype = request.dtype or weight.real.dtype
    cast(layer, dtype)  # module.double() leaves complex weights in single precision
    layer.execution = settings.execution if settings.execution != "auto" else core.execution
    identity = Identity(
        source=text,
        adapter="ssm",
        family=core.cell,
        parameters=sum(p.numel() for p in core.parameters()),
        dtype=str(dtype).removeprefix("torch."),
        device=str(weight.device),
        sha256=digest_tensors(core.state_dict()),
        description=f"{class_name(core)} of {core.width} inputs",
        recurrences=recurrences({"layer": layer}),
    )
    return LayerSubject("layer", layer, identity, device=weight.device, dtype=dtype)


FAMILIES: tuple[AbstractFamily, ...] = (
    S4Family(),
    S4V3Family(),
    S4V2Family(),
    S4V1Family(),
    S4DFamily(),
    CurseFamily(),
    S5Family(),
    LRUFamily(),
)

#: Segments that wrappers put anywhere into a name.
_SEGMENTS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_forward_module)\.")

#: What trainers put in front of every name of a model.
_FRONTS = ("state_dict.", "ema.", "ema_model.", "model.", "net.")


def unwrapped(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Plain name → name in the file; names stay as they are where two would become one."""
    plain = {name: _SEGMENTS.sub("", name) for name in tensors}
    plain = plain if len(set(plain.values())) == len(plain) else {name: name for name in tensors}
    while (front := _common_front(plain.values())) is not None:
        plain = {name: short.removeprefix(front) for name, short in plain.items()}
    return {short: name for name, short in plain.items()}


def _common_front(names: object) -> str | None:
    every = list(names)  # type: ignore[call-overload]
    for front in _FRONTS:
        if every and all(name.startswith(front) and name != front for name in every):
            return front
    return None


_HINT = "build the model in Python and pass the module to memaudit.scan, or report the variant"


@dataclass(frozen=True, slots=True)
class Checked:
    """Tensors from a file, and how they are to be run."""

    text: str
    tensors: Mapping[str, Tensor] = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    device: torch.device
    dtype: torch.dtype
    sha256: str
    notes: tuple[str, ...]
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class Recognised:
    """A family, its layers among the tensors, and the tensors by their plain names."""

    family: AbstractFamily
    groups: list[Group]
    tensors: dict[str, Tensor] = field(repr=False)
    #: plain name → name in the file
    names: dict[str, str] = field(repr=False)


def recognise(tensors: Mapping[str, Tensor]) -> Recognised | None:
    """The first family with a layer among the tensors."""
    for names in (unwrapped(tensors), {name: name for name in tensors}):
        plain = {short: tensors[name] for short, name in names.items()}
        for family in FAMILIES:
            groups = family.find(plain)
            if groups:
                return Recognised(family, groups, plain, names)
    return None


def require_known(found: Recognised) -> None:
    """Refuse a variant: tensors inside a layer, or that speak of a recurrence, nobody knows."""
    used = {key for group in found.groups for key in group.keys.values()}
    strange = [key for group in found.groups for key in group.strange]
    alike = [name for name in lookalikes(found.tensors) if name not in used]
    unknown = list(dict.fromkeys([*strange, *alike]))
    shown = [f"{clean(found.names[n])} {tuple(found.tensors[n].shape)}" for n in unknown]
    missing = sorted(used - set(found.tensors))
    if missing:
        beside = f"; not matched: {listed(shown)}" if shown else ""
        raise SourceError(
            "E_WEIGHTS",
            f"layers of the family {found.family.name} lack {listed(map(clean, missing))}{beside}",
            hint="save the whole state dict, under the names of the original",
            stage="recognise",
        )
    if unknown:
        raise _unmatched(found, unknown, shown)


def _unmatched(found: Recognised, unknown: list[str], shown: list[str]) -> SourceError:
    others = [family.name for family in FAMILIES if _holds(family, unknown, found)]
    if others:
        fact = f"layers of several families in one file: {found.family.name}, {', '.join(others)}"
        hint = "save the layers of each family in a file of their own"
    else:
        fact = f"an unknown variant of {found.family.name}"
        hint = _HINT
    return SourceError(
        "E_UNSUPPORTED",
        f"{fact}; tensors that were not matched: {listed(shown)}",
        hint=hint,
        stage="recognise",
    )


def _holds(family: AbstractFamily, unknown: list[str], found: Recognised) -> bool:
    """Whether another family has whole layers among the tensors that were not matched."""
    if family is found.family:
        return False
    groups = family.find(found.tensors)
    return any(
        set(group.keys.values()) <= set(found.tensors) and set(unknown) & set(group.keys.values())
        for group in groups
    )


def whole_identity(
    checked: Checked, found: Recognised, net: SequenceNet, facts: Facts, notes: tuple[str, ...]
) -> Identity:
    """A model that is run as a whole."""
    return Identity(
        source=checked.text,
        adapter="ssm",
        family=found.family.name,
        parameters=_size(checked.tensors),
        dtype=_word(checked.dtype),
        device=str(checked.device),
        sha256=checked.sha256,
        description=net.describe(),
        recurrences=recurrences(net.cores()),
        assumed=dict(facts.assumed),
        notes=(*checked.notes, *said(checked, facts), *notes),
    )


def host_identity(
    checked: Checked, found: Recognised, cores: Mapping[str, Core], facts: Facts, *, why: str
) -> Identity:
    """Layers that are run one by one, and the reason."""
    total, plural = _size(checked.tensors), "s" if len(cores) > 1 else ""
    run = sum(p.numel() for core in cores.values() for p in core.parameters())
    used = {key for group in found.groups for key in group.keys.values()}
    rest = [clean(found.names[name]) for name in found.tensors if name not in used]
    notes = (
        *checked.notes,
        *said(checked, facts),
        f"the layers are run one by one, without what stands around them: {why}",
        *([f"not run: {listed(rest)}"] if rest else []),
    )
    return Identity(
        source=checked.text,
        adapter="ssm",
        family=found.family.name,
        parameters=total,
        dtype=_word(checked.dtype),
        device=str(checked.device),
        sha256=checked.sha256,
        description=f"host of {len(cores)} {found.family.name} layer{plural}",
        coverage=min(1.0, run / total),
        recurrences=recurrences(cores),
        assumed=dict(facts.assumed),
        notes=notes,
        whole=False,
    )


def said(checked: Checked, facts: Facts) -> tuple[str, ...]:
    """What the user chose, so that the audit can be repeated from its report."""
    how = checked.settings.execution
    return (*facts.notes, *([f"linear layers were run by {how}"] if how != "auto" else []))


def layer_identity(host: Identity, name: str, core: Core) -> Identity:
    """One layer of a host."""
    return Identity(
        source=host.source,
        adapter=host.adapter,
        family=host.family,
        parameters=sum(p.numel() for p in core.parameters()),
        dtype=host.dtype,
        device=host.device,
        sha256=host.sha256,
        description=f"{core.cell} layer {name}",
        recurrences=recurrences({name: core}),
    )


def _size(tensors: Mapping[str, Tensor]) -> int:
    numbers = [t for t in tensors.values() if t.is_floating_point() or t.is_complex()]
    return sum({(t.data_ptr(), t.shape, t.stride()): t.numel() for t in numbers}.values())


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


_Module = TypeVar("_Module", bound=nn.Module)


def open_checked(checked: Checked, found: Recognised) -> NetSubject | LayerHost:
    """The model as a whole, or its layers one by one, with the reason in a note."""
    _require_precision(checked.dtype)
    require_known(found)
    facts = Facts(checked.options, checked.config)
    with torch.device("meta"):
        whole = found.family.whole(found.groups, found.tensors, facts)
    if isinstance(whole, str):
        return _open_layers(checked, found, facts, why=whole)
    facts.settle()
    spare = _spare(whole, found)
    if spare:
        why = f"nothing is known about {listed(map(clean, spare))}"
        return _open_layers(checked, found, facts, why=why)
    if checked.settings.layers is not None:
        raise ArgumentError(
            "the model runs as a whole: layers chooses among layers that are run one by one",
            hint="leave it out; report.layers has the hidden state after every block",
        )
    return _open_whole(checked, found, whole, facts)


def _require_precision(dtype: torch.dtype) -> None:
    """Complex modes exist in single and double precision only."""
    if dtype not in (torch.float32, torch.float64):
        word = str(dtype).removeprefix("torch.")
        raise ArgumentError(
            f"state-space layers are run in float32 or float64, not in {word}",
            hint="give --dtype float32 or float64",
        )


def _open_whole(checked: Checked, found: Recognised, whole: Whole, facts: Facts) -> NetSubject:
    tensors = _given(whole, found)
    require_finite(tensors, source=checked.text)
    net = _filled(whole.net, tensors, checked)
    cores = net.cores()
    for core in cores.values():
        core.execution = checked.settings.execution
    identity = whole_identity(checked, found, net, facts, whole.notes)
    return NetSubject(net, identity, device=checked.device, dtype=checked.dtype)


def _open_layers(checked: Checked, found: Recognised, tried: Facts, *, why: str) -> LayerHost:
    facts = Facts(checked.options, checked.config)
    names = module_names(group.prefix for group in found.groups)
    built: dict[str, tuple[Core, Group]] = {}
    with torch.device("meta"):
        for group in found.groups:
            core = found.family.layer(group, found.tensors, facts)
            built[names[group.prefix]] = core, group
    facts.settle(tried)
    chosen = checked.settings.chosen(built)
    run = {name: pair for name, pair in built.items() if name in chosen}
    cores: dict[str, Core] = {}
    for name, (core, group) in run.items():
        inside = {
            role: found.tensors[key] for role, key in group.keys.items() if key in found.tensors
        }
        require_finite(inside, source=checked.text)
        cores[name] = _filled(core, inside, checked)
        cores[name].execution = checked.settings.execution
    identity = host_identity(checked, found, cores, facts, why=why)
    layers = {
        name: LayerSubject(
            name,
            core,
            layer_identity(identity, name, core),
            device=checked.device,
            dtype=checked.dtype,
        )
        for name, core in cores.items()
    }
    return LayerHost(layers, identity)


def _given(whole: Whole, found: Recognised) -> dict[str, Tensor]:
    """The tensors by the names of the model."""
    given = {whole.names.get(name, name): tensor for name, tensor in found.tensors.items()}
    return {**given, **whole.reshaped}


def _spare(whole: Whole, found: Recognised) -> list[str]:
    """The tensors that have no place in the model."""
    known = set(whole.net.state_dict())
    return [found.names[name] for name in found.tensors if whole.names.get(name, name) not in known]


def _filled(module: _Module, tensors: Mapping[str, Tensor], checked: Checked) -> _Module:
    cast(module, checked.dtype)
    fill(module, tensors, source=checked.text, device=checked.device)
    return module


Found = tuple[str, Stored | str]

UNSAID = "how {name} becomes a rate is not said: {attribute} is none of {known}"

UNCLEAR = "how log_A_real becomes a rate is not clear: its kernel is that of no known form"

LIQUID = "in the liquid form the rates move with the input"

UNCLIPPED = "some rates are above -1e-4, and whether the module cuts them off is not known"


def published(part: nn.Module) -> Iterator[Found]:
    """The cell of a published layer, and the weight that makes its modes; nothing for others."""
    own = _own(part)
    names = set(own)
    if {"nu_log", "theta_log", "gamma_log"} <= names:
        if own["nu_log"].ndim == 1 and own["nu_log"].shape == own["theta_log"].shape:
            yield "lru", Stored(part, "nu_log", Exp())
    elif names & {"Lambda", "Lambda_re"} and "log_step" in names:
        yield from _s5(part, own)
    elif {"C", "inv_dt", "A_real", "B"} <= names:
        yield "s4", _s4(part, own)
    elif {"C", "log_dt", "log_A_real", "A_imag"} <= names and "B" not in names:
        law = law_of_kernel(part, own)
        yield "s4d", UNCLEAR if law is None else Stored(part, "log_A_real", law)
    elif {"C", "log_dt", "B"} <= names:
        yield from _s4_old(part, own)
    else:
        yield from _scans(part, names)


def _own(part: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module itself by their plain names."""
    behind = part.parametrizations if parametrize.is_parametrized(part) else ()
    names = [*part._parameters, *part._buffers, *behind]  # type: ignore[misc]
    with torch.no_grad():
        found = {name: getattr(part, name) for name in names}
    return {name: t for name, t in found.items() if isinstance(t, Tensor) and not is_lazy(t)}


def _s5(part: nn.Module, own: dict[str, Tensor]) -> Iterator[Found]:
    """s5-pytorch, whose Lambda is complex, or the names of S5 in JAX."""
    if "Lambda_re" in own:
        rates, name, kind = own["Lambda_re"], "Lambda_re", "all"
        fits = "Lambda_im" in own and rates.shape == own["Lambda_im"].shape
    else:
        rates, name, kind = own["Lambda"], "Lambda", "real"
        fits = rates.is_complex()
    if not fits or rates.ndim != 1 or own["log_step"].numel() != len(rates):
        return
    clipped = getattr(part, "clip_eigs", None)
    if getattr(part, "liquid", False):
        yield "s5", LIQUID
    elif clipped:
        yield "s5", Stored(part, name, Clip(ceiling=LARGEST_RATE), part=kind)
    elif clipped is None and kind == "all" and bool((rates > LARGEST_RATE).any()):
        yield "s5", UNCLIPPED
    else:
        yield "s5", Stored(part, name, Direct(), part=kind)


def _s4(part: nn.Module, own: dict[str, Tensor]) -> Stored | str:
    """S4 and S4D of version 4, whose kernels keep the names of their transforms."""
    law = _stated(part, "A_real", "real_transform")
    notes = [TIED] if "P" in own else []
    notes += [SIGNED] if getattr(part, "dt_transform", "exp") == "none" else []
    return law if isinstance(law, str) else Stored(part, "A_real", law, note="; ".join(notes))


def _s4_old(part: nn.Module, own: dict[str, Tensor]) -> Iterator[Found]:
    """S4 and S4D of the versions 1 to 3."""
    note = TIED if "P" in own and "Q" not in own else UNTIED
    if "A_imag" in own and "log_A_real" in own:
        yield "s4", Stored(part, "log_A_real", Exp())
    elif "A_imag" in own and "inv_A_real" in own:
        law = _stated(part, "inv_A_real", "real_type")
        yield "s4", law if isinstance(law, str) else Stored(part, "inv_A_real", law)
    elif {"w_imag", "P", "log_w_real"} <= set(own):
        yield "s4", Stored(part, "log_w_real", Exp(), note=note)
    elif {"w_imag", "P", "inv_w_real"} <= set(own):
        law = _stated(part, "inv_w_real", "real_type")
        # Only later did relu get a floor.
        law = Relu() if law is S4_LAWS["relu"] else law
        yield "s4", law if isinstance(law, str) else Stored(part, "inv_w_real", law, note=note)
    elif "w" in own and own["w"].shape[-1:] == own["C"].shape[-1:] == (2,):
        yield "s4", Stored(part, "w", Direct(), part="pairs", note=note)


def _stated(part: nn.Module, name: str, attribute: str) -> AbstractReparam | str:
    """The law by the name that the module keeps of it."""
    said: Any = getattr(part, attribute, None)
    if isinstance(said, str) and said in S4_LAWS:
        return S4_LAWS[said]
    return UNSAID.format(name=name, attribute=attribute, known=", ".join(S4_LAWS))


def _scans(part: nn.Module, names: set[str]) -> Iterator[Found]:
    """Further directions of selective scans; A_log itself is known to the zoo of Mamba."""
    rates = [name for name in names if name.startswith("A_") and name.endswith(("_log", "_logs"))]
    if set(rates) <= {"A_log"}:
        return
    inner = {plain_name(name) for name, _ in part.named_parameters()}
    for scan in find_scans(sorted(inner)).scans:
        if not scan.prefix and scan.keys["A_log"] != "A_log":
            yield CELL, Stored(part, scan.keys["A_log"], Exp())


COMPUTED = "{name} is computed from other weights by something else already; remove that first"

UNTRAINED = "{name} is a buffer, which no training moves"


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """The layers of the families, ours and the published ones, each once."""
    inside: set[int] = set()
    for path, part in module.named_modules():
        if id(part) in inside:
            continue
        layer = clean(path or class_name(part))
        if isinstance(part, Core):
            # The kernel of one of our layers looks like a published one.
            inside.update(map(id, part.modules()))
            yield _told(layer, part.cell, part.decay())
        elif isinstance(part, SelectiveScan):
            yield _told(layer, CELL, part.decay())
        else:
            yield from (_told(layer, cell, stored) for cell, stored in published(part))


def _told(layer: str, cell: str, stored: Stored | str) -> StoredDecay:
    if isinstance(stored, str):
        return NoDecay(layer, cell, stored)
    owner, name = stored.owner, stored.name
    if is_computed(owner, name):
        return NoDecay(layer, cell, COMPUTED.format(name=name))
    if name in owner._buffers:
        return NoDecay(layer, cell, UNTRAINED.format(name=name))
    return DiagonalDecay(layer, cell, owner, name, stored.law, stored.part, stored.note)
