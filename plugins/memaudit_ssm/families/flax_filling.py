"""Whether a flax tree fits the model built for it, told by the names in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import clean
from memaudit_ssm.families.family import weights_error

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memaudit_ssm.families.flax_names import Translated


def require_filled(net: nn.Module, tree: Translated) -> None:
    """Every tensor of the model is in the tree, with its shape; or E_WEIGHTS, which names it."""
    in_file = {short: name for name, short in tree.names.items()}
    for name, wanted in net.state_dict().items():
        if name not in tree.tensors:
            raise weights_error(f"{clean(_flax_name(name, in_file))} is not there")
        found = tree.tensors[name]
        if found.shape != wanted.shape or _kind(found) != _kind(wanted):
            # As the file has it: kernels are the other way round there.
            turned = in_file[name].endswith("kernel") and found.ndim == wanted.ndim == 2
            shapes = [tuple((t.mT if turned else t).shape) for t in (found, wanted)]
            kind = str(found.dtype).removeprefix("torch.")
            raise weights_error(
                f"{clean(in_file[name])} is {shapes[0]} {kind}, where {shapes[1]} "
                f"{'complex' if wanted.is_complex() else 'real'} numbers belong"
                f"{_beside(name, in_file)}"
            )


def _beside(name: str, in_file: dict[str, str]) -> str:
    """Of a bias: the weight that it must fit, which may be the one that is damaged."""
    weight = in_file.get(f"{name.removesuffix('bias')}weight")
    return f" beside {clean(weight)}" if name.endswith(".bias") and weight else ""


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_complex(), tensor.is_floating_point()


def _flax_name(name: str, in_file: dict[str, str]) -> str:
    """What a missing tensor would be called, by the tensor beside it; else torch's name."""
    room, _, leaf = name.rpartition(".")
    beside = next((file for short, file in in_file.items() if short.startswith(f"{room}.")), None)
    if beside is None:
        return name
    norm = "norm" in room.rpartition(".")[2]
    own = {"weight": "scale" if norm else "kernel"}.get(leaf, leaf)
    cut = max(beside.rfind("/"), beside.rfind("."))
    return beside[: cut + 1] + own
