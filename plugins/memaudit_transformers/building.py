"""From a config and tensors to a model, and the proof that its weights are those of the file."""

from __future__ import annotations

import copy
import inspect
import linecache
import re
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from memaudit.errors import ArgumentError, SourceError, clean, listed, nearest
from memaudit.loading import require_same
from memaudit.loading.configs import code_map
from memaudit_transformers.library import (
    LIBRARY_ERRORS,
    config_errors,
    first_class,
    known_types,
    library,
    quiet,
    without_progress_bars,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from memaudit.loading.source import Source

#: Where the library lists its classes, the bare models first.
_MAPPINGS = (
    "MODEL_MAPPING",
    "MODEL_FOR_PRETRAINING_MAPPING",
    "MODEL_FOR_MASKED_LM_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
    "MODEL_FOR_TEXT_ENCODING_MAPPING",
)
#: Numbers that a class may have beyond those of the file: a head that is missing there.
_FREE_NUMBERS = 1 << 26
#: How many classes are tried when the names of the tensors leave it open.
_TRIES = 3
#: Parts behind the model proper that a class may do without: a file often has several of them.
_HEADS = re.compile(
    r"pooler|cls|(\w+_)?heads?|(pre_)?classifier|score|qa_outputs|.*predictions?|seq_relationship"
    r"|discriminator_\w+|generator_\w+|vocab_\w+|mtp(_.*)?"
)
#: What the library itself leaves out of every file.
_ALWAYS_IGNORED = (r"rotary_emb\.inv_freq", r"(^|\.)position_ids$")
#: A class in a module at the top of the repository; `org/name--module.Class` is another's code.
_REMOTE_CLASS = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*", re.ASCII)
_REMOTE_MODELS = (
    *("AutoModelForCausalLM", "AutoModelForSequenceClassification", "AutoModelForMaskedLM"),
    *("AutoModelForTokenClassification", "AutoModelForSeq2SeqLM", "AutoModel"),
)
#: What the base class of configs takes beside its fields; the rest of that names kernels or places.
_BASE_KEYWORDS = (
    *("model_type", "num_labels", "torch_dtype", "output_attentions", "tie_last_hidden_states"),
    *("tie_word_embeddings", "per_layer_config"),
    *("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"),
)
#: What the constructors of single classes hand on that names a kernel or a repository.
_NEVER = ("attn_implementation", "backbone")
#: A word names a part of the library; what has a slash or a colon beside it names a place.
_PLACE = re.compile(r"\w[/\\:]|[/\\:]\w")
#: What a constructor looks for without declaring it, and what it works out and is saved with it.
_TAKEN = re.compile(
    r'(?:kwargs|config_dict)(?:\.(?:get|pop|setdefault)\(\s*|\[)"(\w+)"'
    r'|"(\w+)" (?:not )?in (?:kwargs|config_dict)|self\.(\w+) = '
)
#: What a model reads from its config although the config's class may not declare it.
_READ = re.compile(r'(?:get|has)attr\(\s*[\w.]*config\w*,\s*"(\w+)"')
#: Written by every save_pretrained and read by nothing that counts: not worth a sentence.
_BOOKKEEPING = ("_name_or_path", "_commit_hash", "_attn_implementation_autoset")
#: Declared by the base class and no setting of the model, so that a place in it is left out.
_ASIDE = ("name_or_path", "architectures", "tokenizer_class", "transformers_version")
_OTHER_CONFIG = "config.json describes another model: put that of these weights in its place"
_CONFIG_HINT = "put the right config beside the weights; memaudit doctor tells the versions"


@dataclass(frozen=True, slots=True)
class Built:
    """A model that holds the file's weights; `unread` are the tensors that it has no place for."""

    model: Any
    unread: tuple[str, ...]
    assumed: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def build(
    source: Source,
    values: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    *,
    architecture: str | None,
) -> Built:
    """The model of config values and tensors, or E_WEIGHTS naming what does not fit.

    `architecture` is the class that the user requests. Code that came with the model is run where
    the library does not know the model type and the user trusts that code.
    """
    named, assumed = architecture or first_class(values), {}
    if not values.get("model_type"):
        model_type = type_of_class(named)
        if not model_type and architecture is not None:
            raise _no_such_class(architecture)
        if not model_type:
            raise SourceError(
                "E_CONFIG",
                "config.json: it states no model_type",
                hint="name the class, as in --set architecture=BertModel",
                stage="config",
            )
        values = {**values, "model_type": model_type}
        assumed = {"model_type": f"{model_type} (that of {named}; config.json states none)"}
    model_type = str(values["model_type"])
    if model_type in known_types():
        config, notes = _make_config(values)
        built = _build_known(config, tensors, dtype, architecture)
        return replace(built, assumed={**assumed, **built.assumed}, notes=(*notes, *built.notes))
    if not is_trusted(source):
        raise unknown_type(source, model_type)
    kind, config_kind = _remote_classes(folder_of(source), named)
    config, notes = _make_config(values, config_kind)
    model, unread = _load(kind, config, tensors, dtype)
    note = f"trust_remote_code: {clean(kind.__name__)} is code of the repository, and was run"
    return Built(model, unread, notes=(*notes, note))


def empty_model(values: Mapping[str, Any]) -> Any | None:
    """The model that a config describes, without numbers; None where the library has none."""
    if values.get("model_type") not in known_types():
        return None
    try:
        config, _ = _make_config(values)
        listed = _listed_classes(config)
        kind = _named_class(config) or (listed[0] if listed else None)
        if kind is None:
            return None
        with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            return kind(config)
    except (SourceError, *LIBRARY_ERRORS):
        return None


def _make_config(
    values: Mapping[str, Any], kind: type[Any] | None = None
) -> tuple[Any, tuple[str, ...]]:
    """The library's config of these values, and a note on what was left out of them.

    `kind` is the config class of code that came with the model; else the model type decides.
    Raises E_CONFIG with the library's reason if it has no such config.
    """
    try:
        with quiet():
            kind = kind or _config_class(values["model_type"])
            left_out: list[str] = []
            config = kind.from_dict(_allowed(values, kind, "", left_out))
            # Where the library would store what it was loaded from: nothing here is.
            config.name_or_path = ""
    except config_errors() as error:
        reason = clean(f"transformers refuses it: {_reason(error)}", limit=600)
        raise SourceError(
            "E_CONFIG", f"config.json: {reason}", hint=_CONFIG_HINT, stage="config"
        ) from None
    if not left_out:
        return config, ()
    shown, verb = listed(left_out, most=6, limit=80), "was" if len(left_out) == 1 else "were"
    why = f"{clean(kind.__name__)} declares no such setting, or it names a place"
    note = f"config.json: {shown} {verb} left out: {why}"
    return config, (note,)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


# What of a config the library is handed: what its class declares, and nothing else.


def _config_class(model_type: str) -> type[Any]:
    return library("transformers.models.auto.configuration_auto").CONFIG_MAPPING[model_type]


def _base_config() -> type[Any]:
    return library("transformers.configuration_utils").PreTrainedConfig


def _allowed(
    values: Mapping[str, Any],
    kind: type[Any],
    path: str,
    left_out: list[str],
    *,
    plain: bool = False,
) -> dict[str, Any]:
    """What a config class declares of these values, and of those of the configs inside them.

    A `plain` dictionary, such as rope_parameters, belongs to a config and is none: its numbers may
    have any key, its texts only one that the class knows. Text that names a place is left out
    there; as a setting of the model it is refused: the library's default is another model.
    """
    allowed: dict[str, Any] = {}
    for key, value in values.items():
        texts = list(_texts(value))
        label = plain and key.isdecimal()  # the name of a class may look like anything
        known = label or key in (_words(kind) if plain else _declared(kind))
        elsewhere = not label and any(map(_PLACE.search, texts))
        if (part := _part(kind, key, value)) is not None:
            allowed[key] = _allowed(value, part, f"{path}{key}.", left_out)
        elif (known and not elsewhere) or (plain and not texts):
            allowed[key] = _plain(value, kind, f"{path}{key}.", left_out)
        elif key in _BOOKKEEPING or key in _generation_settings():
            continue
        elif known and not plain and key not in _ASIDE:
            raise _names_a_place(path + key, value)
        elif value:
            left_out.append(path + key)
    return allowed


def _names_a_place(key: str, value: Any) -> SourceError:
    shown = clean(str(value), limit=80)
    return SourceError(
        "E_CONFIG",
        f"config.json: {clean(key)} is {shown!r}, which names a file or a repository; neither is "
        "opened",
        hint=f"write the name of a part of transformers in its place, or remove {clean(key)}",
        stage="config",
    )


def _plain(value: Any, kind: type[Any], path: str, left_out: list[str]) -> Any:
    if isinstance(value, list):
        return [_plain(item, kind, path, left_out) for item in value]
    if isinstance(value, dict):
        return _allowed(value, kind, path, left_out, plain=True)
    return value


def _texts(value: Any) -> Iterator[str]:
    """A text, or those in a list."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _part(kind: type[Any], key: str, value: Any) -> type[Any] | None:
    """The class of a config inside another; None when the value is none."""
    key = kind.attribute_map.get(key, key)
    part = kind.sub_configs.get(key) if isinstance(value, dict) else None
    if part is None or issubclass(part, _base_config()):
        return part
    usual = getattr(kind.sub_configs_defaults.get(key), "model_type", None)
    stated = value.get("model_type", usual)
    return _config_class(stated) if stated in known_types() else _base_config()


@cache
def _declared(kind: type[Any]) -> frozenset[str]:
    """The keys of a config class, as it declares them and as the library's code names them.

    Those are its fields, other names for them, and configs inside; the keywords that its own
    constructor looks for and what it works out; and what the models beside it read, as DeBERTa's
    do share_att_key. Nothing that the base class defines can be replaced.
    """
    base = _base_config()
    names = {*kind.attribute_map, *kind.attribute_map.values(), *kind.sub_configs}
    for own in kind.__mro__[: kind.__mro__.index(base)]:
        for constructor in {"__init__", "__post_init__", "from_dict"} & vars(own).keys():
            code = inspect.unwrap(vars(own)[constructor]).__code__
            if code.co_filename == inspect.getfile(own):  # that of a dataclass has no text
                names.update(*_TAKEN.findall(inspect.getsource(code)))
        models = inspect.getfile(own).replace("configuration_", "modeling_")
        names.update(_READ.findall("".join(linecache.getlines(models))))
    taken = inspect.signature(kind).parameters
    return frozenset({*(names - {"", *dir(base), *_NEVER}), *taken, *_BASE_KEYWORDS})


@cache
def _words(kind: type[Any]) -> frozenset[str]:
    """The keys under which a plain dictionary inside a config may have text."""
    rope = library("transformers.modeling_rope_utils").RopeParameters
    parts = [_declared(part) for key in kind.sub_configs if (part := _part(kind, key, {}))]
    return frozenset({"type", "name", "skip", *rope.__annotations__}).union(_declared(kind), *parts)


@cache
def _generation_settings() -> frozenset[str]:
    """What older configs state beside the model, which the library itself does not read there."""
    return frozenset(vars(library().GenerationConfig()))


# Which class of the library a checkpoint belongs to, judged by the names of its tensors.


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A class built without memory: which tensors it places, and how far the file disagrees."""

    kind: type[Any]
    named: bool
    disagreement: int
    numbers: int
    placed: frozenset[str] = frozenset()
    arguments: dict[str, Any] = field(default_factory=dict)


def _build_known(
    config: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype, architecture: str | None
) -> Built:
    """A class of the library: the one that the config names, unless another fits better.

    A head that is missing in the file is not made up, one that is there is not dropped.
    """
    if architecture is not None:
        config.architectures = [architecture]
    named = _named_class(config)
    if architecture is not None and named is None:
        wanted = type_of_class(architecture)
        if not wanted:
            raise _no_such_class(architecture)
        raise ArgumentError(
            f"config.json states the model_type {config.model_type!r}, and {architecture} is a "
            f"class of {wanted!r}",
            hint=f'if the weights are those of {architecture}, write "model_type": "{wanted}" into '
            "config.json; else leave architecture out",
        )
    refusal: SourceError | None = None
    others = [] if architecture is not None else _listed_classes(config)
    for candidate in _candidates(config, tensors, named, others)[:_TRIES]:
        try:
            model, unread = _load(candidate.kind, config, tensors, dtype, **candidate.arguments)
        except SourceError as error:
            refusal = error if refusal is None or candidate.named else refusal
            continue
        return Built(model, unread, *_choice_in_words(candidate, config, named))
    raise refusal or SourceError("E_WEIGHTS", "no class fits the file", stage="weights")


def _named_class(config: Any) -> type[Any] | None:
    """The class that the config names, if the library has it and it is made for this config."""
    kind = _model_class(first_class(vars(config)))
    return kind if getattr(kind, "config_class", None) is type(config) else None


def type_of_class(name: str) -> str:
    """The model type that a class of the library is made for, "" if it has no such class."""
    config = getattr(_model_class(name), "config_class", None)
    return str(getattr(config, "model_type", ""))


def _no_such_class(name: str) -> ArgumentError:
    close = nearest(name, (n for n in dir(library()) if n.endswith("Model") or "For" in n))
    hint = close if close.startswith("did you mean") else "give one such as BertModel"
    return ArgumentError(f"transformers has no model class {clean(name)}", hint=hint)


def _model_class(name: str) -> type[Any] | None:
    """A class of the library whose instances are models, by its name."""
    if not name.isidentifier():
        return None
    try:
        with quiet():
            kind = getattr(library(), name, None)
    except config_errors():
        return None
    model = library("transformers.modeling_utils").PreTrainedModel
    return kind if isinstance(kind, type) and issubclass(kind, model) else None


def _listed_classes(config: Any) -> list[type[Any]]:
    """Every class that the library lists for a config."""
    home = library("transformers.models.auto.modeling_auto")
    kinds: list[type[Any]] = []
    for name in _MAPPINGS:
        try:
            with quiet():
                entry = getattr(home, name, {}).get(type(config), None)
        except config_errors():
            continue
        kinds += [kind for kind in (entry if isinstance(entry, tuple | list) else [entry]) if kind]
    return kinds


def _candidates(
    config: Any,
    tensors: Mapping[str, Tensor],
    named: type[Any] | None,
    others: list[type[Any]],
) -> list[_Candidate]:
    """The classes whose names fit the tensors best, the likeliest first.

    The named class wins a tie. After it none is tried that fits worse, or that drops a tensor which
    the named one has a place for: a head of which something is missing is no head to do without.
    """
    kinds = [*([named] if named else []), *others]
    if not kinds:
        raise SourceError(
            "E_UNSUPPORTED",
            f"transformers has no model class for {type(config).__name__}",
            hint="build the model in Python and pass the module to memaudit.scan",
            stage="build",
        )
    held = sum(tensor.numel() for tensor in tensors.values())
    found = [
        _candidate(kind, config, tensors, named=kind is named) for kind in dict.fromkeys(kinds)
    ]
    small = [candidate for candidate in found if candidate.numbers <= 2 * held + _FREE_NUMBERS]
    if not small:
        least = min(candidate.numbers for candidate in found)
        raise SourceError(
            "E_WEIGHTS",
            f"config.json describes a model of {least} numbers, the file holds {held}",
            hint=_OTHER_CONFIG,
            stage="weights",
        )
    stated = next((candidate for candidate in small if candidate.named), None)
    most = min(c.disagreement for c in small) if stated is None else stated.disagreement
    kept = frozenset() if stated is None else stated.placed
    fitting = [c for c in small if c.disagreement <= most and kept <= c.placed]
    return sorted(fitting, key=lambda candidate: candidate.disagreement)


def _candidate(
    kind: type[Any], config: Any, tensors: Mapping[str, Tensor], *, named: bool
) -> _Candidate:
    """Build a class on the meta device, where its weights take no memory."""
    arguments: dict[str, Any] = {}
    # A pooler that is not in the file must not be made up.
    optional = "add_pooling_layer" in inspect.signature(kind.__init__).parameters
    if optional and not any("pooler" in name.split(".") for name in tensors):
        arguments["add_pooling_layer"] = False
    try:
        with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = kind(copy.deepcopy(config), **arguments)  # some constructors write into it
    except config_errors() as error:
        if not named:
            return _Candidate(kind, named, 1 << 60, 0)
        raise SourceError(
            "E_CONFIG",
            f"config.json: {kind.__name__} cannot be built from it: {_reason(error)}",
            hint=_CONFIG_HINT,
            stage="config",
        ) from None
    own = model.state_dict()
    tied = set(getattr(model, "all_tied_weights_keys", {}) or {})
    pairs = _pair_names(model, own, tensors)
    missing = set(own) - set(pairs.values()) - tied
    disagreement = len(missing) + len(tensors) - len(pairs)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return _Candidate(kind, named, disagreement, numbers, frozenset(pairs), arguments)


def _pair_names(model: Any, own: Collection[str], given: Iterable[str]) -> dict[str, str]:
    """Names in a file → names in a model, which may differ by the prefix of the bare model."""
    pairs: dict[str, str] = {}
    taken: set[str] = set()
    for name in given:
        forms = _forms(model, name)
        inside = next((form for form in forms if form in own and form not in taken), None)
        if inside is not None:
            pairs[name] = inside
            taken.add(inside)
    return pairs


def _forms(model: Any, name: str) -> tuple[str, str, str]:
    """A name as it is, and with and without the prefix of the bare model."""
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    return name, prefix + name, name.removeprefix(prefix)


def _choice_in_words(
    candidate: _Candidate, config: Any, named: type[Any] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What was assumed about the class, and notes on it."""
    chosen = candidate.kind.__name__
    notes = ("the file has no pooler: the model was built without one",)
    notes = notes if candidate.arguments else ()
    if named is None:
        stated = getattr(config, "architectures", None)
        reason = "not stated"
        if stated:
            reason = f"transformers has no {clean(stated[0], limit=60)} for this config"
        return {"architecture": f"{chosen} (by the names of the tensors; {reason})"}, notes
    if candidate.kind is named:
        return {}, notes
    note = f"config.json names {named.__name__}, the tensors are those of {chosen}: that was built"
    return {}, (note, *notes)


# The weights, and the proof that they are the file's: no random model is audited.


def _load(
    kind: type[Any],
    config: Any,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    **arguments: Any,
) -> tuple[Any, tuple[str, ...]]:
    """A model with these weights, and the tensors that it has no place for.

    The library renames and fuses tensors; without a name of a place it opens no file. Numbers for
    what is missing would be drawn from the global generator, which stays as it was.
    """
    try:
        with quiet(), without_progress_bars(), torch.random.fork_rng(devices=[]):
            model, found = kind.from_pretrained(
                None,
                config=config,
                state_dict=dict(tensors),
                dtype=dtype,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **arguments,
            )
            if dtype == torch.float64:
                model = model.to(dtype)  # buffers too: the wider dtype holds them exactly
            _leave_the_file(model, tensors)
    except LIBRARY_ERRORS as error:
        raise SourceError(
            "E_WEIGHTS",
            f"{kind.__name__} does not take the weights: {clean(_reason(error), limit=500)}",
            hint=_OTHER_CONFIG,
            stage="weights",
        ) from None
    unread = _prove(model, found, tensors)
    return model.requires_grad_(False).eval(), unread


def _leave_the_file(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy, one by one, what the library took over as it lies in the mapped file.

    A file that is rewritten would change the model, one that is cut would end the process.
    """
    mapped = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    for own in (*model.parameters(), *model.buffers()):
        if not own.is_meta and own.untyped_storage().data_ptr() in mapped:
            own.data = own.data.clone()  # a tied weight is one object, and stays so


def _prove(model: Any, found: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Raise E_WEIGHTS unless the model holds the file's tensors, all of them and no others.

    Those of heads that the model lacks are returned. `found` is the library's own account. Tensors
    that it only renamed are compared bit by bit; of those that it fused or split, the numbers are
    counted.
    """
    unexpected = sorted(map(str, found.get("unexpected_keys") or ()))
    mismatched: Any = found.get("mismatched_keys") or ()
    heads = {name for name in unexpected if _is_absent_head(model, name)}
    facts = {
        "missing in the file": sorted(map(str, found.get("missing_keys") or ())),
        "not known to the model": [name for name in unexpected if name not in heads],
        "of another form": [
            f"{name} {tuple(stored)} instead of {tuple(wanted)}"
            for name, stored, wanted in sorted(mismatched)
        ],
        "not converted": [str(message) for message in found.get("error_msgs") or ()],
    }
    wrong = [_sentence(what, names) for what, names in facts.items() if names]
    if wrong:
        raise _weights_error(model, "; ".join(wrong))
    own = model.state_dict()
    pairs = _pair_names(model, own, tensors)
    if not pairs:
        raise _weights_error(model, "not one tensor of the file has a name that the model knows")
    require_same(model, {name: tensors[name] for name in pairs}, names=pairs, optional=own)
    unread = tuple(name for name in tensors if heads.intersection(_forms(model, name)))
    _require_count(model, own, tensors, pairs, unread)
    return unread


def _weights_error(model: Any, fact: str) -> SourceError:
    stated = clean(getattr(model.config, "model_type", ""), limit=60)
    hint = f"{_OTHER_CONFIG}, or correct it (it says model_type {stated!r})"
    return SourceError("E_WEIGHTS", f"{type(model).__name__}: {fact}", hint=hint, stage="weights")


def _sentence(what: str, names: list[str]) -> str:
    subject = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return f"{subject} {what}: {listed(names, most=5, limit=120)}"


def _is_absent_head(model: nn.Module, name: str) -> bool:
    """Whether a tensor belongs to a head that the class does not have.

    The head must be absent as a whole: an unknown tensor of a part that is there, or another layer,
    would mean that the model in the file is a different one.
    """
    place: nn.Module = model
    base = getattr(model, "base_model", model)
    inside = {id(module) for module in base.modules() if module is not base}
    for part in (_forms(model, name)[2] if base is model else name).split(".")[:-1]:
        inner = getattr(place, part, None)
        if not isinstance(inner, nn.Module):
            return bool(_HEADS.fullmatch(part))
        if id(inner) in inside:
            return False
        place = inner
    return False


def _require_count(
    model: Any,
    own: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    pairs: Mapping[str, str],
    unread: Iterable[str],
) -> None:
    """What the library converted must be as many numbers in the model as in the file."""
    ignored = [
        *(getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()),
        *_ALWAYS_IGNORED,
    ]
    absent = getattr(model, "_keys_to_ignore_on_load_missing", None) or ()
    skipped = {*pairs, *unread, *(name for name in tensors if _any_match(ignored, name))}
    given = sum(tensor.numel() for name, tensor in tensors.items() if name not in skipped)
    inside = set(pairs.values())
    filled = {own[name].data_ptr() for name in inside}
    rest = [t for name, t in own.items() if name not in inside and not _any_match(absent, name)]
    wanted = sum({t.data_ptr(): t.numel() for t in rest if t.data_ptr() not in filled}.values())
    if given != wanted:
        fact = f"{wanted} numbers were made from {given} of the file"
        raise _weights_error(model, f"the library's conversion is not understood: {fact}")


def _any_match(patterns: Iterable[str], name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns)


# Code that lies in a model's repository: refused, unless the user trusts it.


def folder_of(source: Source) -> Path:
    """Where the files of a source lie."""
    path = source.checkpoint.path
    return path if path.is_dir() else path.parent


def is_trusted(source: Source) -> bool:
    """Whether the source brings code of its own, and the user said that it may be run."""
    return source.access.trust_remote_code and bool(code_map(folder_of(source)))


def unknown_type(source: Source, model_type: str) -> SourceError:
    """Why a model type that the library does not know is not opened."""
    named = clean(model_type, limit=60)
    if not source.access.trust_remote_code and code_map(folder_of(source)):
        fact = (
            f"{named!r} is a model whose code lies in its repository (auto_map), and "
            "trust_remote_code is off"
        )
        hint = "--trust-remote-code runs that code; only for code that you have read"
    else:
        fact = f"the installed transformers does not know the model type {named!r}"
        hint = "update transformers, or build the model in Python and pass the module"
    return SourceError("E_UNSUPPORTED", fact, hint=hint, stage="recognise")


def _remote_classes(folder: Path, architecture: object) -> tuple[type[Any], type[Any] | None]:
    """The classes of model and config that the repository's own code defines; this runs it.

    The config is None when the library has it.
    """
    stated = code_map(folder)
    roles = [role for role in _REMOTE_MODELS if role in stated]
    if not roles:
        raise _remote_error("its auto_map names no model that can be audited")
    named = [role for role in roles if stated[role].rpartition(".")[2] == architecture]
    model = _remote_class(folder, stated[(named or roles)[0]])
    config = _remote_class(folder, stated["AutoConfig"]) if "AutoConfig" in stated else None
    if not issubclass(model, library("transformers.modeling_utils").PreTrainedModel):
        raise _remote_error(f"{clean(model.__name__)} is no PreTrainedModel")
    return model, config


def _remote_class(folder: Path, place: str) -> type[Any]:
    if not _REMOTE_CLASS.fullmatch(place):
        fact = f"{clean(place, limit=80)!r} is not a class in a file of the repository"
        raise _remote_error(fact)
    tools = library("transformers.dynamic_module_utils")
    try:
        with quiet():
            found = tools.get_class_from_dynamic_module(place, str(folder), local_files_only=True)
    except (*LIBRARY_ERRORS, SyntaxError) as error:
        raise _remote_error(f"{clean(place)} cannot be imported: {error}") from None
    if not isinstance(found, type):
        raise _remote_error(f"{clean(place)} is no class")
    return found


def _remote_error(fact: str) -> SourceError:
    return SourceError(
        "E_UNSUPPORTED",
        f"the code in the repository cannot be used: {fact}",
        hint="build the model in Python and pass the module to memaudit.scan",
        stage="recognise",
    )
