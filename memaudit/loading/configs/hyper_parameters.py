"""The settings that a trainer saved inside the weight file, when no config lies beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.loading.configs.config import Config
from memaudit.loading.configs.config_budget import check_config
from memaudit.loading.configs.config_cleaning import clean_config
from memaudit.loading.configs.config_text import LARGEST_CONFIG, parse_config

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

#: What Lightning calls them.
KEY = "hyper_parameters"


def with_hyper_parameters(
    config: Config, metadata: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> Config:
    """The config; where no file states one, that of the hyper-parameters among the metadata.

    Those that cannot be read, or cannot be those of the weights, are left aside and said so.
    """
    text = metadata.get(KEY, "")
    if config.path is not None or not text or len(text) > LARGEST_CONFIG:
        return config
    try:
        stated = parse_config(text.encode("utf-8", "surrogatepass"), name=KEY)
        values, dropped = clean_config(stated, name=KEY, library=False)
        found = Config(None, values, (), KEY)
        check_config(found, tensors)
    except SourceError as error:
        if error.code == "E_UNSUPPORTED":
            raise
        return Config(None, {}, (*config.notes, f"{KEY} in the file were not read: {error.fact}"))
    said = f"settings were read from {KEY} in the file"
    return Config(None, values, (*config.notes, said, *dropped), KEY)
