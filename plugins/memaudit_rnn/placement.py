"""What is run around a recurrent stack: the layers before and behind it, and what is read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError, clean, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from memaudit_rnn.adapter import Settings
    from memaudit_rnn.recognition import Stack, StatedConfig


FRONT_SIDE, BACK_SIDE = "front", "behind"
UNSTATED = "not stored in the file"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
TABLE = re.compile(r"^(?:\w*emb(?:ed|edding)?s?|embedder|lookup|wte|vocab|tok|tokens?)$")
FRONT = re.compile(
    r"^(?:\w*emb(?:ed|edding)?s?|embedder|lookup|wte|tok|tokens?|enc|encode|encoder"
    r"|in|inp|inputs?|front|frontend|pre|prenet|stem)$"
)
BACK = re.compile(
    r"^(?:outs?|outputs?|heads?|dec|decode|decoder|class|classes|classifier|classify|logits?"
    r"|preds?|predict|predictor|predictions?|tags?|tagger|final|readout|scores?|scorer|labels?"
    r"|targets?|regressor|regression|post|postnet)$"
)
#: Kinds of layers, which by custom stand behind when nothing else is said.
CUSTOM = re.compile(r"^(?:fc|lin|linear|dense|projection)$")
#: Such a layer acts beside the path from input to output, not in series with it.
BESIDE = re.compile(
    r"^(?:att|attn|attention|attend|gates?|gating|skip|shortcut|residual|highway"
    r"|\w*norm|bn|ln)$"
)


def named_table(name: str, prefix: str = "") -> bool:
    """Whether a layer is called an embedding, and not a linear layer of one."""
    words = _own_words(name, prefix)
    return _any(TABLE, words) and not _any(CUSTOM, words) and "proj" not in words


def is_beside(name: str, prefix: str) -> bool:
    """Whether a layer, or the module that it is in, is an attention, a gate, a skip, a norm."""
    return _any(BESIDE, _words(_unshared(name, prefix)))


def stated_side(name: str, prefix: str) -> str | None:
    """The side that a layer's own name states; None when it states none or both.

    `prefix` is the stack's: what both names begin with tells nothing.
    """
    words = _own_words(name, prefix)
    front, back = _any(FRONT, words), _any(BACK, words)
    if front == back:
        return None
    return FRONT_SIDE if front else BACK_SIDE


def likely_side(name: str, prefix: str) -> str | None:
    """The stated side, else the side where custom puts a layer of this name."""
    words = _own_words(name, prefix)
    by_custom = not _any(FRONT, words) and _any(CUSTOM, words)
    return stated_side(name, prefix) or (BACK_SIDE if by_custom else None)


def _own_words(name: str, prefix: str) -> list[str]:
    """The words of a layer's last component; the numbers of a Sequential are no names."""
    components = _unshared(name, prefix).split(".")
    return next((words for part in reversed(components) if (words := _words(part))), [])


def _unshared(name: str, prefix: str) -> str:
    """The name without the components and words that the prefix begins with too."""
    pairs = enumerate(zip(name, prefix, strict=False))
    alike = next((at for at, (a, b) in pairs if a != b), min(len(name), len(prefix)))
    return name[1 + max(name.rfind(".", 0, alike), name.rfind("_", 0, alike)) :]


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def _any(kind: re.Pattern[str], words: list[str]) -> bool:
    return any(kind.match(word) for word in words)


PARAMETER = re.compile(r"^(?:(?P<owner>.*)[._])?(?P<role>weight|bias|w|b)\Z")


@dataclass(frozen=True, slots=True)
class Layer:
    """A matrix with an optional bias: a linear layer, or an embedding table without one."""

    name: str
    weight: str
    rows: int
    columns: int
    bias: str | None = None

    def parameters(self) -> dict[str, str]:
        """Parameter of torch's module → key in the checkpoint."""
        return {"weight": self.weight} | ({} if self.bias is None else {"bias": self.bias})

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its tensors."""
        return tuple(self.parameters().values())


@dataclass(frozen=True, slots=True)
class Placement:
    """What is run around the stack; `whole` is False when its front is uncertain."""

    table: Layer | None = None
    encoder: Layer | None = None
    head: Layer | None = None
    whole: bool = True
    notes: tuple[str, ...] = ()

    def layers(self) -> tuple[Layer, ...]:
        """Every layer that was placed."""
        return tuple(x for x in (self.table, self.encoder, self.head) if x is not None)

    def assumed(self, stack: Stack, settings: Settings) -> dict[str, str]:
        """What was assumed about the placed layers although the file does not state it."""
        linear = "linear, no nonlinearity"
        front = "embedding" if self.table is not None else f"{linear} behind it"
        found = {
            "encoder": (settings.encoder, self.table or self.encoder, FRONT_SIDE, front),
            "head": (settings.head, self.head, BACK_SIDE, f"{linear} around it"),
        }
        assumed: dict[str, str] = {}
        for option, (given, layer, side, kind) in found.items():
            if given == "auto" and layer is not None:
                named = likely_side(layer.name, stack.keys.prefix) == side
                reason = "by name and shape" if named else "by shape"
                what = f"{kind}; {reason}, {UNSTATED}; --set {option}=none to change"
                assumed[option] = f"{clean(layer.name)} ({what})"
        return assumed


def layers_among(
    tensors: Mapping[str, Tensor], skip: Iterable[str]
) -> tuple[list[Layer], list[str]]:
    """The matrices outside the stacks, and the names of all other tensors that matter.

    Single numbers (temperatures, similarity scales) and empty tensors cannot hide a layer and are
    left out. Two names for one parameter of a layer make no layer.
    """
    skipped = set(skip)
    free = {
        key: tensor
        for key, tensor in tensors.items()
        if key not in skipped and tensor.is_floating_point() and tensor.numel()
    }
    roles = {key: match for key in free if (match := PARAMETER.match(key))}
    doubled = _doubled(roles)
    biases = {m["owner"] or "": key for key, m in roles.items() if m["role"] in ("bias", "b")}
    layers: list[Layer] = []
    for key, tensor in free.items():
        if key in doubled:
            continue
        match = roles.get(key)
        owner = match["owner"] or "" if match and match["role"] in ("weight", "w") else key
        if tensor.ndim == 2 and (owner != key or named_table(key)):
            bias = biases.get(owner)
            if bias is not None and tuple(free[bias].shape) != (tensor.shape[0],):
                continue
            layers.append(Layer(owner, key, int(tensor.shape[0]), int(tensor.shape[1]), bias))
    placed = {key for layer in layers for key in layer.keys}
    return layers, [
        k for k, v in free.items() if k not in placed and (v.numel() > 1 or k in doubled)
    ]


def _doubled(roles: Mapping[str, re.Match[str]]) -> set[str]:
    """The keys of every layer that has two names for its weight or for its bias."""
    owners = {key: match["owner"] or "" for key, match in roles.items()}
    often = Counter((owners[key], match["role"][0]) for key, match in roles.items())
    return {key for key, owner in owners.items() if max(often[owner, "w"], often[owner, "b"]) > 1}


def infer_placement(stack: Stack, layers: list[Layer], others: list[str]) -> Placement:
    """Place every layer before or behind the stack, or say why that cannot be done."""
    if others:
        return Placement(whole=False, notes=(_unknown(_owners(others)),))
    roles = {layer.weight: _role(layer, stack) for layer in layers}
    tables = [x for x in layers if roles[x.weight] == "table"]
    encoders = [x for x in layers if roles[x.weight] == "encoder"]
    heads = [x for x in layers if roles[x.weight] == "head"]
    unclear = [x for x in layers if roles[x.weight] == "unclear"]
    lost = [x for x in layers if roles[x.weight] == "lost"]
    front, behind = _chains(lost, encoders, heads)
    if len(heads) + len(behind) > 1:
        unclear += [x for x in heads if _by_custom(x, stack)]
    ahead, after = set(front), set(behind)
    unknown = [x.name for x in (*unclear, *lost) if (x in ahead) == (x in after)]
    before = [*tables, *encoders, *front]
    if unknown or len(before) > 1:
        return Placement(whole=False, notes=(_unknown(unknown or [x.name for x in before]),))
    placed = Placement(next(iter(tables), None), next(iter(encoders), None))
    if len(heads) + len(behind) <= 1:
        return replace(placed, head=next(iter(heads), None))
    names = listed(clean(x.name) for x in (*heads, *behind))
    note = f"{names} stand behind the recurrent layer in an unknown order: the hidden state is read"
    return replace(placed, notes=(note,))


def fits_table(layer: Layer, stack: Stack) -> bool:
    """Whether a layer in front is an embedding: no bias, the input width, and no linear layer."""
    if layer.bias is not None or layer.columns != stack.input_size:
        return False
    return layer.rows != stack.input_size or named_table(layer.name, stack.keys.prefix)


def _role(layer: Layer, stack: Stack) -> str:
    """The role of a layer by shape, and by name where the shape fits both sides.

    A name that contradicts the shape makes the layer unclear; one that fits nowhere is lost.
    """
    prefix = stack.keys.prefix
    if is_beside(layer.name, prefix):
        return "unclear"
    front = _fits_front(layer, stack)
    behind = layer.columns == stack.output_size
    if not front and not behind:
        return "lost"
    side = likely_side(layer.name, prefix) if behind else stated_side(layer.name, prefix)
    if front and behind and side is None:
        return "unclear"
    side = side or (FRONT_SIDE if front else BACK_SIDE)
    if side == BACK_SIDE:
        return "head" if behind else "unclear"
    if not front:
        return "unclear"
    return "table" if fits_table(layer, stack) else "encoder"


def _fits_front(layer: Layer, stack: Stack) -> bool:
    return layer.rows == stack.input_size or fits_table(layer, stack)


def _by_custom(layer: Layer, stack: Stack) -> bool:
    """Whether a layer is a head only because its kind of name usually is."""
    return _fits_front(layer, stack) and stated_side(layer.name, stack.keys.prefix) is None


def _chains(
    lost: list[Layer], encoders: list[Layer], heads: list[Layer]
) -> tuple[list[Layer], list[Layer]]:
    """Which of the lost layers feed the encoders, and which follow the heads, by width."""
    inlets = _reached({x.columns for x in encoders}, [(x.rows, x.columns) for x in lost])
    outlets = _reached({x.rows for x in heads}, [(x.columns, x.rows) for x in lost])
    return [x for x in lost if x.rows in inlets], [x for x in lost if x.columns in outlets]


def _reached(widths: set[int], steps: Iterable[tuple[int, int]]) -> set[int]:
    """The widths that steps from one width to another lead to."""
    ways: dict[int, set[int]] = {}
    for start, end in steps:
        ways.setdefault(start, set()).add(end)
    reached, fresh = set(widths), list(widths)
    while fresh:
        new = ways.pop(fresh.pop(), set()) - reached
        reached |= new
        fresh += new
    return reached


def _unknown(names: list[str]) -> str:
    return (
        f"the place of {listed(map(clean, names))} around the recurrent layer is unknown: only the "
        "recurrent layer is run (--set encoder=NAME, head=NAME to place linear layers)"
    )


def _owners(names: list[str]) -> list[str]:
    """The modules that own some parameters, each once."""
    matches = ((name, PARAMETER.match(name)) for name in names)
    return list(dict.fromkeys((m and m["owner"]) or name for name, m in matches))


def place(stack: Stack, layers: list[Layer], others: list[str], settings: Settings) -> Placement:
    """The surroundings of the only stack of a file."""
    found = infer_placement(stack, layers, others)
    if settings.encoder == settings.head == "auto":
        return found
    if not found.whole:
        found = Placement()
    found = replace(found, notes=())
    if settings.encoder != "auto":
        found = _with_encoder(found, stack, layers, settings.encoder)
    if settings.head != "auto":
        found = _with_head(found, stack, layers, settings.head)
    return found


def _with_encoder(found: Placement, stack: Stack, layers: list[Layer], name: str) -> Placement:
    bare = replace(found, table=None, encoder=None)
    if name == "none":
        return bare
    layer = _named("encoder", name, layers)
    if fits_table(layer, stack):
        return replace(bare, table=layer)
    if layer.rows != stack.input_size:
        raise _misfit("encoder", layer, f"rows must be the input width {stack.input_size}")
    return replace(bare, encoder=layer)


def _with_head(found: Placement, stack: Stack, layers: list[Layer], name: str) -> Placement:
    if name == "none":
        return replace(found, head=None)
    layer = _named("head", name, layers)
    if layer.columns != stack.output_size:
        raise _misfit("head", layer, f"columns must be the output width {stack.output_size}")
    return replace(found, head=layer)


def _named(option: str, name: str, layers: list[Layer]) -> Layer:
    for layer in layers:
        if name in (layer.name, layer.weight):
            return layer
    raise ArgumentError(
        f"{option}={clean(name)!r} names no linear layer or embedding of the file",
        hint=nearest(name, ["auto", "none", *(clean(layer.name) for layer in layers)]),
    )


def _misfit(option: str, layer: Layer, wanted: str) -> ArgumentError:
    shape = (layer.rows, layer.columns)
    return ArgumentError(f"{option}={layer.name} has shape {shape}, its {wanted}")


@dataclass(frozen=True, slots=True)
class Readout:
    """Whether the head is run, how the steps are pooled, and what that rests on."""

    logits: bool
    pool: str
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_out(around: Placement, settings: Settings, stated: StatedConfig) -> Readout:
    """The readout of a model, from the options, else from its surroundings and config."""
    logits, output = _logits(around, settings)
    classes = stated.classes
    fits = around.head is not None and around.head.rows == classes
    notes: tuple[str, ...] = ()
    if classes is not None and not fits:
        notes = (f"the config states {classes} classes but no head answers as many: not pooled",)
    if settings.pool is not None:
        return Readout(logits, settings.pool, output)
    if fits:
        reason = f"final (the config states {classes} classes; --set pool=none to change)"
        return Readout(logits, "final", {**output, "pool": reason})
    if not logits:
        return Readout(logits, "none", output, notes)
    reason = "none (not stored in the file; --set pool=final for one answer per sequence)"
    return Readout(logits, "none", {**output, "pool": reason}, notes)


def _logits(around: Placement, settings: Settings) -> tuple[bool, dict[str, str]]:
    """Whether the head is run; a language model answers its last hidden state by default."""
    head, table = around.head, around.table
    if settings.output == "logits" and head is None:
        raise ArgumentError(
            "output=logits needs a head, and none was found",
            hint="name the linear layer with head=NAME, or leave output alone",
        )
    if settings.output != "auto" or head is None:
        return settings.output == "logits", {}
    if table is None or table.rows != head.rows or settings.head != "auto":
        return True, {}
    reason = f"hidden ({head.name} answers the {head.rows} tokens; --set output=logits to change)"
    return False, {"output": reason}
