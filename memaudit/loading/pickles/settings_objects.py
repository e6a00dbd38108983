"""Objects that trainers keep settings in: known by their full names, and only while they are data.

OmegaConf's containers and Lightning's dictionaries stand beside the weights of honest checkpoints.
Nothing of them is imported or called here; what makes them is read for the plain values in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.loading.pickles.inert import Made, Pairs

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Hold values; they are made empty and given a dictionary of attributes.
OMEGACONF = frozenset(
    {
        "omegaconf.dictconfig.DictConfig",
        "omegaconf.listconfig.ListConfig",
        "omegaconf.base.UnionNode",
        *(
            f"omegaconf.nodes.{kind}Node"
            for kind in ("Any", "Boolean", "Bytes", "Enum", "Float", "Integer", "Path", "String")
        ),
        "omegaconf.nodes.InterpolationResultNode",
    }
)
#: Stand in the attributes of those, made in the same way; what they hold is not read.
_METADATA = frozenset({"omegaconf.base.ContainerMetadata", "omegaconf.base.Metadata"})
#: Dictionaries of Lightning, made empty and filled item by item.
_DICTIONARIES = frozenset(
    {
        "lightning.fabric.utilities.data.AttributeDict",
        "lightning.pytorch.utilities.parsing.AttributeDict",
        "lightning_fabric.utilities.data.AttributeDict",
        "pytorch_lightning.utilities.parsing.AttributeDict",
    }
)
#: Types in metadata, and classes by which Lightning names callbacks: mentioned, never called.
_MENTIONED = frozenset(
    {
        *(f"typing.{name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
        "pytorch_lightning.callbacks.early_stopping.EarlyStopping",
        "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
    }
)
SETTINGS = OMEGACONF | _METADATA | _DICTIONARIES | _MENTIONED


def misused(made: Iterable[Made]) -> list[str]:
    """The names of settings among what was made that are no data in the way they were made."""
    found = (value.name for value in made if value.name in SETTINGS and not _is_data(value))
    return list(dict.fromkeys(found))


def _is_data(value: Made) -> bool:
    """Whether an object is what Python's pickles make of it: empty first, then filled."""
    if value.arguments != () or value.items is not None:
        return False
    if value.name in _DICTIONARIES:
        return value.state is None
    if value.name in _MENTIONED or value.pairs is not None:
        return False
    state = value.state
    return isinstance(state, Pairs) and all(isinstance(key, str) for key, _ in state.pairs)
