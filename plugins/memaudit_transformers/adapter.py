"""The adapter of transformers: folders, hub repositories, demos, and models in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from memaudit.errors import ArgumentError, MemauditError, SourceError, clean, listed, nearest
from memaudit.interfaces import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit_transformers.library import first_class, is_model, known_types, uncompiled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch
    from torch import Tensor, nn

    from memaudit.interfaces import StoredDecay
    from memaudit.loading.source import Source
    from memaudit.loading.stored import StoredWeights

OPTIONS: Final[dict[str, str]] = {
    "output": "auto, hidden or logits: what is read; sequence classifiers give their scores "
    "by default, everything else its last hidden state",
    "architecture": "the class of transformers to build, e.g. BertForMaskedLM; by default the one "
    "that config.json names, or that fits the tensors",
    "base": "the model that an adapter of PEFT was made for, a path or a hub id; by default the "
    "one that adapter_config.json names",
}
#: How a config states no model type.
NOTHING = (None, "")
OUTPUTS: Final = ("auto", "hidden", "logits")
#: How strong a claim is: by the model type; a Mamba in its first authors' format, by its keys; a
#: model of the library in memory, whose own class says how it is run.
BY_CONFIG, BY_KEYS, IN_MEMORY = 14, 12, 20
FILES = ("path", "demo", "hub")
#: Up to this many numbers a model is run in float64: 256 MB of weights.
FLOAT64 = 1 << 25


class TransformersAdapter(AbstractAdapter):
    """Models of the transformers library, by their config or as modules."""

    name: ClassVar[str] = "transformers"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source is a model that the library knows; a refusal says why it is not."""
        if source.kind == "module":
            if not is_model(source.module):
                return None
            model_type = getattr(uncompiled(source.module).config, "model_type", "")
            return Claim(clean(model_type or "transformers", limit=60), IN_MEMORY)
        if source.kind not in FILES:
            return None
        from memaudit.loading.adapters import is_adapter

        if is_adapter(source):
            return Claim("adapter", BY_CONFIG)
        config = source.checkpoint.library_config
        if config.get("model_type") in NOTHING:
            from memaudit_transformers.original import family_of

            family = family_of(source.checkpoint.tensors)
            return _by_class(source) if family is None else Claim(family, BY_KEYS)
        model_type = config["model_type"]
        if not isinstance(model_type, str) or model_type not in known_types():
            from memaudit_transformers.building import is_trusted, unknown_type

            if not is_trusted(source):
                raise unknown_type(source, str(model_type))
        return Claim(clean(model_type, limit=60), BY_CONFIG)

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        try:
            output, architecture = _read_options(request.options)
            if source.kind == "module" and is_model(source.module):
                if architecture is not None:
                    raise ArgumentError(
                        "architecture is an option of files, not of modules in memory"
                    )
                return _open_module(source, request, output)
            if source.kind not in FILES:
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"this {source.kind} source is no model of transformers",
                    hint="give a folder with config.json and weights, or a hub id org/name",
                )
            return _open_file(source, request, output, architecture)
        except MemauditError as error:
            raise error.at(source.text) from None

    def from_weights(self, stored: StoredWeights) -> AbstractSubject | None:
        """The recurrent layers of every kind that the library has, by names and shapes alone."""
        from memaudit_transformers.weights_only import subject_of

        return subject_of(stored)

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """The recurrent layers of the library's kinds, inside any module."""
        from memaudit_transformers.kinds import stored_decays

        return tuple(stored_decays(module))


def _by_class(source: Source) -> Claim | None:
    """The claim on a folder whose config states no model type, by the class that it names."""
    config = source.checkpoint.library_config
    if not config:
        return None
    from memaudit_transformers.building import type_of_class

    model_type = type_of_class(first_class(config))
    if model_type:
        return Claim(model_type, BY_CONFIG)
    count = len(source.checkpoint.tensors)
    raise SourceError(
        "E_UNSUPPORTED",
        f"config.json states no model_type, and none of {count} tensors is recognised as recurrent",
        hint="for a model of transformers name its class, as in --set architecture=BertModel; "
        "else build it in Python and pass the module to memaudit.scan",
        stage="recognise",
    )


def _read_options(options: Mapping[str, Any]) -> tuple[str, str | None]:
    """What is read, and which class is built; unknown names and values are refused."""
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(f"unknown option {clean(name)!r}", hint=nearest(name, OPTIONS))
    output = str(options.get("output", "auto")).lower()
    if output not in OUTPUTS:
        fact = f"output={clean(options['output'])!r} is not possible"
        raise ArgumentError(fact, hint=nearest(output, OUTPUTS))
    named = options.get("architecture")
    if named is not None and (not isinstance(named, str) or not named.isidentifier()):
        fact = f"architecture={clean(named)!r} is not the name of a class"
        raise ArgumentError(fact, hint="give one of transformers, such as BertForMaskedLM")
    return output, named


def _open_file(
    source: Source, request: Request, output: str, architecture: str | None
) -> AbstractSubject:
    """A checkpoint: weights, a config.json, and perhaps a tokenizer."""
    from memaudit.loading import require_finite
    from memaudit.loading.adapters import is_adapter, open_adapter
    from memaudit.loading.checkpoint import joint_digest
    from memaudit_transformers.adapted import merge
    from memaudit_transformers.building import build, folder_of
    from memaudit_transformers.original import Translated, family_of, translate
    from memaudit_transformers.running import RunnableModel
    from memaudit_transformers.subject import SHOWN, TransformersSubject, describe, vocabulary_of
    from memaudit_transformers.tokenizer import open_tokenizer

    adapter, base = (None, source)
    if is_adapter(source):
        adapter, base = open_adapter(source, request.options.get("base"))
    checkpoint = base.checkpoint
    config, tensors = checkpoint.library_config, checkpoint.tensors
    require_finite(tensors, source=source.text)
    family = family_of(tensors) if config.get("model_type") in NOTHING else None
    if family is None and not config:
        raise SourceError(
            "E_CONFIG",
            "there is no config.json beside the weights, which states the sizes of the model",
            hint="put it there; save_pretrained writes it",
            stage="config",
        )
    made = Translated(dict(config), dict(tensors))
    if family is not None:
        made = translate(family, config, tensors)
    dtype, assumed = _choose_dtype(request, tensors)
    built = build(base, made.values, made.tensors, dtype, architecture=architecture)
    notes, sha256 = checkpoint.notes, checkpoint.sha256
    if adapter is not None:
        model, words = merge(built.model, adapter, source.text)
        built, stamp = replace(built, model=model), adapter.file.stamp
        notes = (f"the base is {clean(base.text)}, sha256 {sha256}; {words}", *notes)
        sha256 = joint_digest([*checkpoint.stamps, stamp])
    runnable = RunnableModel(built.model.to(request.device), dtype, output=output)
    tokens, token_notes = open_tokenizer(folder_of(base), vocabulary_of(runnable))
    unread = (f"not run: {listed(map(clean, built.unread), most=SHOWN)}",) if built.unread else ()
    # The heads in the file that the model has no place for are counted as well.
    heads = sum(tensors[name].numel() for name in built.unread if name in tensors)
    identity = describe(
        runnable,
        source=source.text,
        sha256=sha256,
        stored=heads + sum(parameter.numel() for parameter in built.model.parameters()),
        assumed={**built.assumed, **assumed},
        notes=(*notes, *made.notes, *built.notes, *unread, *token_notes),
    )
    return TransformersSubject(runnable, identity, tokens=tokens)


def _choose_dtype(
    request: Request, tensors: Mapping[str, Tensor]
) -> tuple[torch.dtype, dict[str, str]]:
    """The requested dtype, else float64 for models that are small enough for it."""
    import torch

    from memaudit.devices import widest_dtype

    if request.dtype is not None:
        return request.dtype, {}
    if widest_dtype(request.device) == torch.float32:
        return torch.float32, {"dtype": "float32 (the device has no float64)"}
    if sum(tensor.numel() for tensor in tensors.values()) <= FLOAT64:
        return torch.float64, {"dtype": f"float64 (up to {FLOAT64} numbers; --dtype to change)"}
    return torch.float32, {"dtype": f"float32 (beyond {FLOAT64} numbers; --dtype to change)"}


def _open_module(source: Source, request: Request, output: str) -> AbstractSubject:
    """A model in memory, which is not touched: another dtype is given to a copy of it."""
    import torch

    from memaudit.loading import require_finite
    from memaudit.loading.filling import digest_tensors
    from memaudit_transformers.running import RunnableModel, copied, is_rescaled, undo_rescaling
    from memaudit_transformers.subject import TransformersSubject, describe

    model: Any = uncompiled(source.module)
    tensors = {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}
    empty = [name for name, tensor in tensors.items() if tensor.is_meta]
    if empty:
        raise SourceError(
            "E_WEIGHTS",
            f"{len(empty)} tensors of the module hold no numbers, {empty[0]} among them",
            hint="load the weights first",
            stage="open",
        )
    require_finite(tensors, source=source.text)
    dtypes = [p.dtype for p in model.parameters() if p.is_floating_point()]
    if not dtypes:
        raise SourceError("E_WEIGHTS", "the module has no weights", stage="open")
    dtype = request.dtype or dtypes[0]  # where several are mixed, that of the embedding
    if dtype != dtypes[0] or is_rescaled(model):
        model = copied(model).to(dtype)
    if is_rescaled(model):
        undo_rescaling(model)
    runnable = RunnableModel(model, dtype, output=output)
    sha256 = digest_tensors(tensors)
    identity = describe(runnable, source=source.text, sha256=sha256, assumed={}, notes=())
    return TransformersSubject(runnable, identity)
