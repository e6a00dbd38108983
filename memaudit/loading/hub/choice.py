"""Which files of a repository an audit needs, and nothing beyond: its code only if trusted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from memaudit.errors import SourceError, listed
from memaudit.loading.disk.folder import INDEX, SUFFIXES, rank_weights, stem_and_suffix
from memaudit.loading.formats.strict_json import BadJson, TooManyPieces, parse_object

#: What an adapter reads beside the weights.
CONFIGS = ("config.json", "adapter_config.json", "generation_config.json")
TOKENIZERS = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.bpe",
    "vocab.json",
    "vocab.txt",
)
#: The largest vocabularies take 40 MB; a larger file is left where it is.
LARGEST_BESIDE = 64 << 20
#: A name in the index takes about a hundred bytes.
LARGEST_INDEX = 16 << 20
_YOURSELF = "download the one you mean with `hf download`, and give its path"


@dataclass(frozen=True, slots=True)
class Choice:
    """The weight file or the index of its shards, and the other weights that were passed over."""

    weights: str
    others: tuple[str, ...]

    @property
    def is_index(self) -> bool:
        """Whether the weights are split over shards."""
        return self.weights.lower().endswith(INDEX)


def choose_weights(names: Collection[str]) -> Choice:
    """The weights among the files of a repository, by the rules for a folder on disk."""
    found, every = rank_weights(names)
    if len(found) == 1:
        return Choice(found[0], tuple(name for name in every if name != found[0]))
    if found:
        fact = f"the repository holds {len(found)} checkpoints: {_shown(found)}"
        raise SourceError("E_PATH", fact, hint=_YOURSELF, stage="fetch")
    only = f", only {_shown(sorted(names))}" if names else ", nor any other file at its top level"
    raise SourceError(
        "E_NOT_FOUND",
        f"the repository holds no weights that memaudit opens{only}",
        hint=f"expected a file ending in {', '.join(SUFFIXES)} at its top level",
        stage="fetch",
    )


def code_among(names: Collection[str]) -> tuple[str, ...]:
    """The Python files of a repository, which are fetched for those who trust them."""
    return tuple(sorted(name for name in names if name.endswith(".py")))


def shards_of(index: bytes) -> tuple[str, ...]:
    """The weight files that an index names.

    Everything else that it says, and an index that cannot be read, is left to whoever opens it.
    """
    try:
        weight_map = parse_object(index, most_pieces=LARGEST_INDEX // 16).get("weight_map")
    except (BadJson, TooManyPieces):
        return ()
    if not isinstance(weight_map, dict):
        return ()
    named = {name for name in weight_map.values() if isinstance(name, str)}
    return tuple(sorted(name for name in named if stem_and_suffix(name)[1] in SUFFIXES))


def _shown(names: Sequence[str]) -> str:
    return listed(names, limit=60)
