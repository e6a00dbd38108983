"""The adapter of torch's recurrent layers: files of weights, demos, and modules in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memaudit.contracts import AbstractAdapter, AbstractSubject, Claim, Request
from memaudit.errors import MemauditError, SourceError
from memaudit_rnn.files import FAMILY, open_file
from memaudit_rnn.keys import find_stacks, is_parametrized
from memaudit_rnn.modules import open_module, recurrent_layers
from memaudit_rnn.settings import OPTIONS, read_settings
from memaudit_rnn.stored_decays import stored_decays

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from memaudit.contracts import StoredDecay
    from memaudit.loading.source import Source

STRENGTH = 10
#: A module that is a recurrent layer: its own class says which axis is time.
CERTAIN = 20
FILES = ("path", "demo", "hub")


class RnnAdapter(AbstractAdapter):
    """nn.RNN, nn.GRU, nn.LSTM and their cells, alone or with what certainly surrounds them."""

    name: ClassVar[str] = "rnn"
    options: ClassVar[Mapping[str, str]] = OPTIONS

    def claim(self, source: Source) -> Claim | None:
        """Whether the source has recurrent weights."""
        if source.kind == "module":
            layers = recurrent_layers(source.module)
            return Claim(FAMILY, CERTAIN if "" in layers else STRENGTH) if layers else None
        if source.kind not in FILES:
            return None
        names = source.checkpoint.tensors
        found = find_stacks(names) or any(is_parametrized(name) for name in names)
        return Claim(FAMILY, STRENGTH) if found else None

    def load(self, source: Source, request: Request) -> AbstractSubject:
        """The subject, with the weights of the source and no others."""
        try:
            settings = read_settings(request.options)
            if source.kind == "module":
                return open_module(source.text, source.module, request, settings)
            if source.kind not in FILES:
                what = "files, hub repositories and modules"
                raise SourceError(
                    "E_UNSUPPORTED",
                    f"the rnn adapter opens {what}, not a {source.kind} source",
                    hint="download the file and give its path",
                )
            return open_file(source.text, source.checkpoint, request, settings)
        except MemauditError as error:
            raise error.at(source.text) from None

    def stored_decays(self, module: nn.Module) -> Iterable[StoredDecay]:
        """Every layer and direction of torch's recurrent layers inside a module."""
        return stored_decays(module)
