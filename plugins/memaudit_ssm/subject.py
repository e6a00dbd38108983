"""Layers and models of the known families: opened from checkpoints, made subjects of an audit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.interfaces import (
    AbstractLinearPart,
    AbstractPerturbable,
    NoDecay,
    Request,
    Role,
    StoredDecay,
    plain_name,
)
from memaudit.loading.filling import digest_tensors, fill, require_finite
from memaudit.modes import LayerSpectrum as Spectrum
from memaudit.modes import spectrum
from memaudit.numerics.linear import System
from memaudit.report import Identity, Recurrence
from memaudit.subjects.copies import Copies, ModeSource
from memaudit.subjects.hosts import Host, choose_parts, require_all
from memaudit.subjects.modules import ModuleSubject, checked_inputs
from memaudit_ssm.core import Core, cast, class_name, retrofit_form
from memaudit_ssm.curse import CurseFamily
from memaudit_ssm.family import AbstractFamily, Group, SequenceNet, Tensors, Whole
from memaudit_ssm.lru import LRUFamily
from memaudit_ssm.mixers import AbstractMixer, SelectiveMixer
from memaudit_ssm.s4 import S4Family
from memaudit_ssm.s4_old import S4V1Family, S4V2Family, S4V3Family
from memaudit_ssm.s4d import S4DFamily
from memaudit_ssm.s5 import S5Family
from memaudit_ssm.scans import lookalikes, module_names, published_scans
from memaudit_ssm.settings import HYPERPARAMETERS, Hyperparameters, Opening, RunSettings

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
    """How the eigenvalue is made from the raw weight; the form of a retrofit comes first."""
    stored = core.decay()
    form = None if isinstance(stored, NoDecay) else retrofit_form(stored.owner, stored.name)
    return core.parameterization if form is None else form


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
) -> Copies:
    """A model with these recurrent layers; its embedding of tokens stays as it is."""

    def with_least_work(module: nn.Module, inputs: Tensor) -> Tensor:
        for core in module.modules():
            if not isinstance(core, Core):
                continue
            core.checked = False  # the ensemble puts attributes back
            if core.execution == "auto":  # what the user forced stays forced
                core.execution = "least-work"
        return call(module, inputs)

    sources = {name: ModeSource(core, _unchecked_modes) for name, core in cores.items()}
    return Copies(module, roles(module, cores), call=with_least_work, modes=sources)


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


class RecurrentSubject(ModuleSubject):
    """A module with recurrent layers, by name, as a subject."""

    def __init__(
        self,
        module: nn.Module,
        cores: Mapping[str, Core],
        identity: Identity,
        *,
        width: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        frozen = module.eval().requires_grad_(False)
        super().__init__(frozen, identity, width=width, device=device, dtype=dtype)
        self._cores = cores

    def perturbable(self) -> AbstractPerturbable:
        return perturbable_of(self.module, self._cores, self.run)

    def spectra(self, inputs: Tensor | None = None) -> tuple[Spectrum, ...]:
        """The eigenvalues of every recurrent layer: they do not depend on the data."""
        del inputs
        return spectra_of(self._cores)

    def linear_parts(self) -> Mapping[str, AbstractLinearPart]:
        return linear_parts_of(self._cores)


class LayerSubject(RecurrentSubject):
    """One recurrent layer, without what stands around it."""

    def __init__(
        self, name: str, core: Core, identity: Identity, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(core, {name: core}, identity, width=core.width, device=device, dtype=dtype)
        self.core = core


class NetSubject(RecurrentSubject):
    """A whole model that was rebuilt from its checkpoint; `net` has the names of the original."""

    def __init__(
        self, net: SequenceNet, identity: Identity, *, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(net, net.cores(), identity, width=net.width, device=device, dtype=dtype)
        self.net = net
        self.pooled = net.pooled
        self.vocabulary = None if net.embedding is None else net.embedding.num_embeddings

    def respond(self, inputs: Tensor) -> Tensor:
        """Answer (B,T,D) floats, or (B,T) token ids, by (B,T,M), or by (B,M) when pooled."""
        return self._answer(inputs, None)

    def layers(self) -> tuple[str, ...]:
        return tuple(self._cores)

    def respond_with_hook(self, inputs: Tensor, hook: Callable[[str, Tensor], None]) -> Tensor:
        return self._answer(inputs, hook)

    def natural_inputs(self, count: int, generator: torch.Generator) -> Tensor | None:
        """Embeddings of distinct tokens, for a model that takes tokens."""
        table = self.net.embedding
        if table is None:
            return None
        ids = torch.randperm(table.num_embeddings, generator=generator)[:count].to(self.device)
        with torch.no_grad():
            return table(ids)

    def _answer(self, inputs: Any, record: Callable[[str, Tensor], None] | None) -> Tensor:
        checked = checked_inputs(self, inputs)
        with torch.no_grad():
            table = None if checked.is_floating_point() else self.net.embedding
            return self.net(checked if table is None else table(checked), record)


def open_layer(core: Core, text: str, request: Request, settings: RunSettings) -> LayerSubject:
    """A copy of a layer in memory, in its own precision unless another is requested."""
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
    state = core.state_dict()
    opening = Opening(text, state, weight.device, dtype, digest_tensors(state), settings)
    identity = opening.identity(
        family=core.cell,
        parameters=sum(p.numel() for p in core.parameters()),
        description=f"{class_name(core)} of {core.width} inputs",
        recurrences=recurrences({"layer": layer}),
    )
    return LayerSubject("layer", layer, identity, device=weight.device, dtype=dtype)


#: In the order in which they are looked for.
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


@dataclass(frozen=True, slots=True)
class Recognised:
    """A family, its layers among the tensors, and the tensors by their plain names."""

    family: AbstractFamily
    groups: list[Group]
    tensors: dict[str, Tensor] = field(repr=False)
    #: plain name → name in the file
    names: dict[str, str] = field(repr=False)


def recognise(tensors: Tensors) -> Recognised | None:
    """The first family with a layer among the tensors."""
    for names in (_unwrapped(tensors), {name: name for name in tensors}):
        plain = {short: tensors[name] for short, name in names.items()}
        for family in FAMILIES:
            groups = family.find(plain)
            if groups:
                return Recognised(family, groups, plain, names)
    return None


def _unwrapped(tensors: Tensors) -> dict[str, str]:
    """Name without what wrappers add → name in the file, unless two names would become one."""
    plain = {name: _SEGMENTS.sub("", name) for name in tensors}
    plain = plain if len(set(plain.values())) == len(plain) else {name: name for name in tensors}

    def is_common(front: str) -> bool:
        return all(name.startswith(front) and name != front for name in plain.values())

    while plain and (front := next(filter(is_common, _FRONTS), None)) is not None:
        plain = {name: short.removeprefix(front) for name, short in plain.items()}
    return {short: name for name, short in plain.items()}


def _require_known(found: Recognised) -> None:
    """Refuse a variant: tensors inside a layer, or that look recurrent, which no family knows."""
    family = found.family.name
    used = {key for group in found.groups for key in group.keys.values()}
    inside = [key for group in found.groups for key in group.unknown]
    alike = [name for name in lookalikes(found.tensors) if name not in used]
    unknown = list(dict.fromkeys([*inside, *alike]))
    shown = listed(f"{clean(found.names[n])} {tuple(found.tensors[n].shape)}" for n in unknown)
    missing = sorted(used - set(found.tensors))
    if missing:
        beside = f"; not matched: {shown}" if unknown else ""
        raise SourceError(
            "E_WEIGHTS",
            f"layers of the family {family} lack {listed(map(clean, missing))}{beside}",
            hint="save the whole state dict, under the names of the original",
            stage="recognise",
        )
    if not unknown:
        return
    fact = f"an unknown variant of {family}"
    hint = "build the model in Python and pass the module to memaudit.scan, or report the variant"
    # Other families may have whole layers among the tensors that were not matched.
    others = [
        other.name
        for other in FAMILIES
        if other is not found.family
        and any(
            keys <= set(found.tensors) and keys & set(unknown)
            for keys in (set(group.keys.values()) for group in other.find(found.tensors))
        )
    ]
    if others:
        fact = f"layers of several families in one file: {family}, {', '.join(others)}"
        hint = "save the layers of each family in a file of their own"
    raise SourceError(
        "E_UNSUPPORTED",
        f"{fact}; tensors that were not matched: {shown}",
        hint=hint,
        stage="recognise",
    )


def open_family(opening: Opening, found: Recognised) -> NetSubject | Host:
    """The model as a whole, or its layers one by one, with the reason in a note."""
    if opening.dtype not in (torch.float32, torch.float64):
        # Complex modes exist in single and double precision only.
        word = str(opening.dtype).removeprefix("torch.")
        raise ArgumentError(
            f"state-space layers are run in float32 or float64, not in {word}",
            hint="give --dtype float32 or float64",
        )
    _require_known(found)
    hyper = Hyperparameters(opening.options, opening.config)
    with torch.device("meta"):
        whole = found.family.whole(found.groups, found.tensors, hyper)
    if isinstance(whole, str):
        return _open_layers(opening, found, hyper, why=whole)
    hyper.settle()
    known = set(whole.net.state_dict())
    rest = [found.names[n] for n in found.tensors if whole.names.get(n, n) not in known]
    if rest:
        why = f"nothing is known about {listed(map(clean, rest))}"
        return _open_layers(opening, found, hyper, why=why)
    require_all(opening.settings.layers)
    return _open_whole(opening, found, whole, hyper)


def _open_whole(
    opening: Opening, found: Recognised, whole: Whole, hyper: Hyperparameters
) -> NetSubject:
    net = whole.net
    given = {whole.names.get(name, name): tensor for name, tensor in found.tensors.items()}
    _fill(net, {**given, **whole.reshaped}, net.cores().values(), opening)
    identity = opening.identity(
        family=found.family.name,
        parameters=opening.parameters,
        description=net.describe(),
        recurrences=recurrences(net.cores()),
        assumed=dict(hyper.assumed),
        notes=(*opening.notes, *_choices(opening, hyper), *whole.notes),
    )
    return NetSubject(net, identity, device=opening.device, dtype=opening.dtype)


def _open_layers(opening: Opening, found: Recognised, tried: Hyperparameters, *, why: str) -> Host:
    family = found.family.name
    hyper = Hyperparameters(opening.options, opening.config)
    names = module_names(group.prefix for group in found.groups)
    with torch.device("meta"):
        built = {
            names[group.prefix]: (found.family.layer(group, found.tensors, hyper), group)
            for group in found.groups
        }
    hyper.settle(tried)
    cores: dict[str, Core] = {}
    for name in choose_parts(built, opening.settings.layers):
        core, group = built[name]
        _fill(core, {r: found.tensors[k] for r, k in group.keys.items()}, [core], opening)
        cores[name] = core
    total, plural = opening.parameters, "s" if len(cores) > 1 else ""
    run = sum(p.numel() for core in cores.values() for p in core.parameters())
    used = {key for group in found.groups for key in group.keys.values()}
    rest = [clean(found.names[name]) for name in found.tensors if name not in used]
    identity = opening.identity(
        family=family,
        parameters=total,
        description=f"host of {len(cores)} {family} layer{plural}",
        coverage=min(1.0, run / total),
        recurrences=recurrences(cores),
        assumed=dict(hyper.assumed),
        notes=(
            *opening.notes,
            *_choices(opening, hyper),
            f"the layers are run one by one, without what stands around them: {why}",
            *([f"not run: {listed(rest)}"] if rest else []),
        ),
        whole=False,
    )
    layers: dict[str, LayerSubject] = {}
    for name, core in cores.items():
        own = opening.identity(
            family=family,
            parameters=sum(p.numel() for p in core.parameters()),
            description=f"{core.cell} layer {name}",
            recurrences=recurrences({name: core}),
        )
        layers[name] = LayerSubject(name, core, own, device=opening.device, dtype=opening.dtype)
    return Host(layers, identity)


def _fill(module: nn.Module, tensors: Tensors, cores: Iterable[Core], opening: Opening) -> None:
    require_finite(tensors, source=opening.text)
    cast(module, opening.dtype)
    fill(module, tensors, source=opening.text, device=opening.device)
    for core in cores:
        core.execution = opening.settings.execution


def _choices(opening: Opening, hyper: Hyperparameters) -> tuple[str, ...]:
    """What the user chose, so that the audit can be repeated from its report."""
    how = opening.settings.execution
    return (*hyper.notes, *([f"linear layers were run by {how}"] if how != "auto" else []))


def stored_decays(module: nn.Module) -> Iterator[StoredDecay]:
    """Every state-space layer in a module, ours or published, by the weight of its modes."""
    inside: set[int] = set()
    for path, part in module.named_modules():
        if id(part) in inside:
            continue
        layer = clean(path or class_name(part))
        if isinstance(part, Core):
            # The kernel of one of our layers looks like a published one.
            inside.update(map(id, part.modules()))
            yield _placed(part.decay(), layer, part.cell)
        elif isinstance(part, AbstractMixer):
            yield _placed(part.decay(), layer, part.cell)
        else:
            own = _own_tensors(part)
            found = ((family.cell, family.published(part, own)) for family in FAMILIES)
            known = next(((cell, decay) for cell, decay in found if decay is not None), None)
            if known is not None:
                yield _placed(known[1], layer, known[0])
            else:
                scans = published_scans(part, own)
                yield from (_placed(scan, layer, SelectiveMixer.cell) for scan in scans)


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module itself by their plain names."""
    behind = module.parametrizations if parametrize.is_parametrized(module) else ()
    names = [*module._parameters, *module._buffers, *behind]  # type: ignore[misc]
    with torch.no_grad():
        found = {name: getattr(module, name) for name in names}
    return {name: t for name, t in found.items() if isinstance(t, Tensor) and not is_lazy(t)}


def _placed(decay: StoredDecay, layer: str, cell: str) -> StoredDecay:
    """A decay with the layer that it belongs to; refused where no training moves its weight."""
    if not isinstance(decay, NoDecay):
        owner, name = decay.owner, decay.name
        if parametrize.is_parametrized(owner, name) and retrofit_form(owner, name) is None:
            why = "is computed from other weights by something else already; remove that first"
            decay = NoDecay(f"{name} {why}")
        elif name in owner._buffers:
            decay = NoDecay(f"{name} is a buffer, which no training moves")
    return replace(decay, layer=layer, cell=cell)
