"""A model of timm whose patches, in raster order, are a sequence: found, proven, and run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from memaudit.errors import ArgumentError, SourceError, clean, listed
from memaudit.interfaces import AbstractPerturbable, Role
from memaudit.numerics.wide_floats import really_float64
from memaudit.subjects.copies import Copies
from memaudit.subjects.modules import ModuleSubject, checked_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memaudit.report import Identity

    OnLayer = Callable[[str, Tensor], None]

#: What timm raises when sizes do not fit together.
TIMM_ERRORS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(NotImplementedError, RuntimeError, TypeError, ValueError),
)
#: How timm names the module that makes patches.
EMBEDDINGS = ("patch_embed", "stem")
#: Two runs of one computation may differ by the order of sums on some devices.
ROUNDINGS = 100.0
#: Pixels of one image that a trial may cost: 2048 by 2048.
MOST_PIXELS = 1 << 22
MOST_CHANNELS = 1 << 10
#: Channels, height and width where a model states no other.
USUAL_IMAGE = (3, 224, 224)
#: How many names a note lists.
SHOWN = 6


def image_size(model: nn.Module) -> tuple[int, int, int]:
    """Channels, height and width of the images that a model was made for."""
    config: Any = getattr(model, "pretrained_cfg", None)
    stated = config.get("input_size") if isinstance(config, dict) else None
    channels, height, width = stated or USUAL_IMAGE
    embedding = getattr(model, "patch_embed", getattr(model, "stem", None))
    fixed = getattr(embedding, "img_size", None)
    if fixed is not None:
        height, width = (fixed, fixed) if isinstance(fixed, int) else fixed
    channels = getattr(model, "in_chans", channels)
    if height * width > MOST_PIXELS or channels > MOST_CHANNELS:
        raise SourceError(
            "E_LIMIT",
            f"the model takes images of {channels} x {height} x {width}",
            hint="state the true input_size in the config",
            stage="config",
        )
    return int(channels), int(height), int(width)


def noise_image(model: nn.Module) -> Tensor:
    """One image of noise, always the same, in the dtype and on the device of the weights."""
    weight = first_weight(model)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, *image_size(model), generator=generator, dtype=torch.float64)
    return noise.to(weight.device, weight.dtype)


def first_weight(model: nn.Module) -> Tensor:
    """A parameter, which has the dtype and the device of all."""
    return next(p for p in model.parameters() if p.is_floating_point())


def require_blocks(model: nn.Module, *, name: str) -> None:
    """Refuse what is no row of blocks behind an embedding, before weights are read."""
    embedded = any(isinstance(getattr(model, a, None), nn.Module) for a in EMBEDDINGS)
    blocks = getattr(model, "blocks", None)
    if not embedded or not isinstance(blocks, nn.Sequential | nn.ModuleList) or not len(blocks):
        raise _refusal(name, "it has no row of blocks behind an embedding of patches")


def _refusal(name: str, why: str) -> SourceError:
    return SourceError(
        "E_UNSUPPORTED",
        f"{name} has no sequence to audit: {why}",
        hint="timm's vision transformers, mixers and Sequencer2D can be audited",
        stage="recognise",
    )


class GivenPatches(nn.Module):
    """Takes the place of a patch embedding and gives the sequences that it was handed.

    Models ask their embedding for the size of the grid: such attributes are the original's.
    """

    def __init__(self, original: nn.Module, shape: tuple[int, ...], extras: list[Any]) -> None:
        super().__init__()
        self._originals = (original,)  # in a tuple: its weights are none of the audited ones
        self._shape = shape
        self._extras = extras
        self.sequences: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            originals = self.__dict__.get("_originals", ())
            if not originals or name.startswith("__"):
                raise
            return getattr(originals[0], name)

    def forward(self, *images: Any, **ignored: Any) -> Any:
        """The sequences (B,N,D) in the shape that the model expects behind its embedding."""
        assert self.sequences is not None
        shaped = self.sequences.reshape(len(self.sequences), *self._shape)
        return (shaped, *self._extras) if self._extras else shaped


class PatchModel:
    """The model's own forward_features with the output of its patch embedding given.

    Sequences shorter than the grid run on its first positions in raster order: with `cut` the
    other patches are taken out before the first block, else they are zeros.
    """

    def __init__(self, model: nn.Module, *, name: str) -> None:
        """Run an image of noise, then its patch embeddings: the answers must be the same."""
        require_blocks(model, name=name)
        attribute = next(a for a in EMBEDDINGS if isinstance(getattr(model, a, None), nn.Module))
        embedding = getattr(model, attribute)
        if hasattr(model, "grad_checkpointing"):
            model.__dict__["grad_checkpointing"] = False
        self.model = model
        self.cut = False
        self.blocks = {f"blocks.{i}": block for i, block in enumerate(model.blocks)}  # type: ignore[arg-type]
        self._image = image_size(model)
        output, tokens, answer = self._trial(embedding, name)
        parts: list[Any] = list(output) if isinstance(output, tuple) else [output]
        embedded, *extras = parts or [None]
        self.width = _patch_width(embedded, tokens, answer, name)
        self.grid = _grid(embedding, embedded, self.width)
        self.count = self.grid[0] * self.grid[1]
        others = answer.shape[1] - self.count
        if getattr(model, "num_prefix_tokens", others) != others:
            raise _refusal(name, "its answer has other tokens than those of the patches")
        #: How many tokens the first block is given, those before the patches included.
        self._entering = tokens[0].shape[1]
        self._given = GivenPatches(embedding, embedded.shape[1:], extras)
        setattr(model, attribute, self._given)
        again = self.run(embedded.reshape(1, self.count, self.width))
        off = float((again - answer[:, -self.count :]).abs().max())
        if not off <= ROUNDINGS * torch.finfo(answer.dtype).eps * float(answer.abs().max()):
            raise _refusal(name, "fed with its own patch embeddings, it answers something else")

    def _trial(self, embedding: nn.Module, name: str) -> tuple[Any, list[Any], Any]:
        """What the embedding gives, what goes into and out of the blocks, and the answer."""
        embedded: list[Any] = []
        tokens: list[Any] = []

        def after_block(block: nn.Module, inputs: Any, output: Any) -> None:
            tokens.extend([inputs[0] if inputs else None, output])

        image = noise_image(self.model)
        forward: Any = getattr(self.model, "forward_features", None)
        with ExitStack() as stack:
            hook = embedding.register_forward_hook(lambda *seen: embedded.append(seen[2]))
            stack.callback(hook.remove)
            for block in self.blocks.values():
                stack.callback(block.register_forward_hook(after_block).remove)
            try:
                with torch.no_grad(), really_float64(image.dtype):
                    answer = forward(image)
            except TIMM_ERRORS as error:
                what = f"an image of {tuple(image.shape[1:])} ends in {type(error).__name__}"
                raise _refusal(name, f"{what}: {clean(error)}") from error
        return embedded[-1] if embedded else None, tokens, answer

    def run(self, sequences: Tensor, on_layer: OnLayer | None = None) -> Tensor:
        """Answer (B,T,D) by the states (B,T,M) of the patches, T at most `count`.

        `on_layer` is called with the name of every block and the states behind it.
        """
        steps = sequences.shape[1]
        missing = self.count - steps

        def shorten(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
            """Take the last patches out, of rotary positions as well."""
            tokens, *others = args
            if tokens.shape[1] == self._entering:  # later blocks are given what the first one left
                tokens = tokens[:, :-missing]
            rope = kwargs.get("rope")
            if isinstance(rope, Tensor) and rope.shape[-2] == self.count:
                kwargs = {**kwargs, "rope": rope[..., :-missing, :]}
            return (tokens, *others), kwargs

        def states(tokens: Tensor) -> Tensor:
            """The patches among the tokens of the model, which stand behind all others."""
            start = tokens.shape[1] - (steps if self.cut else self.count)
            return tokens[:, start : start + steps]

        # Nothing but the number of images is looked at: they take no memory.
        images = sequences.new_zeros(()).expand(len(sequences), *self._image)
        with ExitStack() as stack:
            for name, block in self.blocks.items():
                if missing and self.cut:
                    hook = block.register_forward_pre_hook(shorten, with_kwargs=True)
                    stack.callback(hook.remove)
                if on_layer is not None:

                    def report(block: Any, inputs: Any, output: Any, name: str = name) -> None:
                        on_layer(name, states(output))

                    stack.callback(block.register_forward_hook(report).remove)
            self._given.sequences = functional.pad(sequences, (0, 0, 0, missing))
            stack.callback(setattr, self._given, "sequences", None)
            stack.enter_context(really_float64(sequences.dtype))
            forward: Any = self.model.forward_features
            return states(forward(images))

    def can_be_cut(self) -> bool:
        """Whether the model runs on fewer patches than it has; some are bound to their grid."""
        if self.count < 2:
            return False
        before, self.cut = self.cut, True
        try:
            with torch.no_grad():
                self.run(first_weight(self.model).new_zeros(1, self.count - 1, self.width))
        except TIMM_ERRORS:
            return False
        finally:
            self.cut = before
        return True

    def used_parameters(self) -> list[str]:
        """The parameters that the answer depends on, by following its graph."""
        self.model.requires_grad_(True)
        try:
            with torch.enable_grad():
                zeros = first_weight(self.model).new_zeros(1, self.count, self.width)
                answer = self.run(zeros)
            found, seen, fresh = set[int](), set[Any](), [answer.grad_fn]
            while fresh:
                node: Any = fresh.pop()
                if node is None or node in seen:
                    continue
                seen.add(node)
                if hasattr(node, "variable"):
                    found.add(id(node.variable))
                fresh += [inner for inner, _ in node.next_functions]
            return [name for name, p in self.model.named_parameters() if id(p) in found]
        finally:
            self.model.requires_grad_(False)


def _patch_width(embedded: Any, tokens: list[Any], answer: Any, name: str) -> int:
    """The width of the patches, or a refusal: one row of them from the first block to the end."""
    if not isinstance(embedded, Tensor) or embedded.ndim not in (3, 4):
        raise _refusal(name, "its embedding does not give patches")
    shapes = {tuple(value.shape) if isinstance(value, Tensor) else () for value in tokens}
    if not shapes or any(len(shape) != 3 for shape in shapes):
        raise _refusal(name, "its blocks work on feature maps, which have no sequence axis")
    _, length, width = tokens[0].shape
    count = embedded.numel() // width
    if embedded.shape[-1] != width or len(shapes) > 1 or length < count:
        raise _refusal(name, "its blocks change the number or the width of the patches")
    if not isinstance(answer, Tensor) or answer.ndim != 3 or answer.shape[1] < count:
        raise _refusal(name, "it does not answer with a state for every patch")
    return width


def _grid(embedding: nn.Module, embedded: Tensor, width: int) -> tuple[int, int]:
    """Rows and columns of the patches, as the embedding or its output states them."""
    count = embedded.numel() // width
    if embedded.ndim == 4:
        return int(embedded.shape[1]), int(embedded.shape[2])
    stated: Any = getattr(embedding, "grid_size", None)
    if isinstance(stated, tuple | list) and len(stated) == 2 and stated[0] * stated[1] == count:
        return int(stated[0]), int(stated[1])
    return 1, count


class PatchSubject(ModuleSubject):
    """Patches in raster order are time; the answer is the state of every patch at the end."""

    def __init__(self, patches: PatchModel, used: list[str], identity: Identity) -> None:
        weight = first_weight(patches.model)
        own = {"width": patches.width, "device": weight.device, "dtype": weight.dtype}
        super().__init__(patches.model, identity, **own)
        self.patches = patches
        self.longest = patches.count
        self._used = frozenset(used)

    def respond(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            return self.patches.run(self._checked(inputs))

    def layers(self) -> tuple[str, ...]:
        return tuple(self.patches.blocks)

    def respond_with_hook(self, inputs: Tensor, hook: OnLayer) -> Tensor:
        with torch.no_grad():
            return self.patches.run(self._checked(inputs), hook)

    def perturbable(self) -> AbstractPerturbable:
        """The blocks with their weights as an argument: none of them is recurrent."""

        def call(model: nn.Module, sequences: Tensor) -> Tensor:
            del model  # the patches hold it
            return self.patches.run(self._checked(sequences))

        roles = {
            name: Role("other", "matrix" if weight.ndim > 1 else "vector")
            for name, weight in self.patches.model.named_parameters()
            if name in self._used
        }
        return Copies(self.patches.model, roles, call=call)

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters that the answer depends on."""
        state = self.patches.model.state_dict()
        return {name: tensor for name, tensor in state.items() if name in self._used}

    def _checked(self, inputs: Tensor) -> Tensor:
        count = self.patches.count
        checked = checked_inputs(self, inputs)
        if checked.shape[1] > count:
            raise ArgumentError(
                f"the sequences have {checked.shape[1]} steps, the model has {count} patches",
                hint=f"feed at most {count} steps",
            )
        return checked


def _attends(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower()


def patch_subject(model: nn.Module, whole: Identity, shorter: str | None) -> PatchSubject:
    """The subject of a model; `whole` is its identity, described by its architecture alone."""
    name = whole.description
    patches = PatchModel(model, name=name)
    patches.cut = shorter != "fill" and patches.can_be_cut()
    if shorter == "cut" and not patches.cut:
        fact = f"{name} cannot run on fewer patches than {patches.count}"
        raise ArgumentError(fact, hint="take --set shorter=fill")
    used = patches.used_parameters()
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    rows, columns = patches.grid
    idle = dict.fromkeys(name.split(".")[0] for name in sizes if name not in set(used))
    notes = (
        f"patches in raster order are time, {patches.count} steps; the state of every patch "
        "behind the last block is read",
        "zero input is a patch embedding of zeros, which no image need have",
        f"not run: {listed(['the patch embedding', *idle], most=SHOWN)}",
    )
    assumed = dict(whole.assumed)
    if shorter is None and patches.cut:
        reason = f"the first positions of {patches.count} are run by themselves"
        assumed["shorter"] = (
            f"cut (fewer patches than the model has: {reason}; --set shorter=fill for zeros)"
        )
    elif shorter is None:
        assumed["shorter"] = (
            f"fill (the model is bound to its {patches.count} patches: the others are zeros)"
        )
    identity = replace(
        whole,
        description=f"{name}: {rows} x {columns} patches of width {patches.width}, "
        f"{len(patches.blocks)} blocks",
        coverage=sum(sizes[name] for name in used) / whole.parameters,
        assumed=assumed,
        notes=(*whole.notes, *notes),
        attention="both ways" if any(map(_attends, model.modules())) else "",
    )
    return PatchSubject(patches, used, identity)
