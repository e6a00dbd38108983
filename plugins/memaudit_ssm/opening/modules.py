"""A reference layer in memory, audited as it is."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from memaudit.errors import ArgumentError
from memaudit.loading.filling import digest_tensors
from memaudit.results import Identity
from memaudit_ssm.asked import ASKED
from memaudit_ssm.layers.stored import class_name
from memaudit_ssm.opening.casting import cast
from memaudit_ssm.opening.host import LayerSubject
from memaudit_ssm.opening.parts import recurrences

if TYPE_CHECKING:
    from memaudit.contracts import Request
    from memaudit_ssm.layers.core import Core
    from memaudit_ssm.settings import Settings


def open_layer(core: Core, text: str, request: Request, settings: Settings) -> LayerSubject:
    """A copy of the layer, in its own precision unless another is asked for."""
    idle = [name for name in ASKED if request.options.get(name) is not None]
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
