"""The tokenizer beside a model: texts to ids, ids to words, and what is put around a text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memaudit.errors import MemauditError, clean
from memaudit.loading.files import read_beside, require_beside
from memaudit_transformers.library import LIBRARY_ERRORS, library, quiet

if TYPE_CHECKING:
    from types import TracebackType

#: The files beside tokenizer.json that a tokenizer can be made of.
_SLOW = ("vocab.txt", "vocab.json", "vocab.bpe", "spiece.model", "tokenizer.model")
#: What the library reads beside them.
_AROUND = (
    *("merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer_config.json"),
    "config.json",
)
#: Those of them that hold settings.
_SETTINGS = ("special_tokens_map.json", "tokenizer_config.json", "config.json")
#: The largest vocabularies take 40 MB.
LARGEST = 64 << 20
#: Texts that have tokens in most languages: what stands around them is the frame.
_SAMPLES = ("a", "the", "0", "A b c")


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer of the `tokenizers` library, and the ids that it puts around a text."""

    inner: Any
    ahead: tuple[int, ...]
    behind: tuple[int, ...]

    def of(self, text: str) -> Tensor | None:
        """The ids (T,) of a text, nothing around it; None when the library fails."""
        with _Caught():
            ids = self.inner.encode(text, add_special_tokens=False).ids
            return torch.tensor(ids, dtype=torch.int64)
        return None

    def framed(self, tokens: Tensor) -> Tensor:
        """Ids (B,T) with what belongs around a text."""
        ahead, behind = (
            torch.tensor(ids, dtype=tokens.dtype, device=tokens.device).expand(len(tokens), -1)
            for ids in (self.ahead, self.behind)
        )
        return torch.cat((ahead, tokens, behind), dim=1)

    @property
    def unknown(self) -> int | None:
        """The id of what the tokenizer does not know; None when it has none."""
        with _Caught():
            model = self.inner.model
            named = getattr(model, "unk_token", None)
            found = getattr(model, "unk_id", None) if named is None else None
            return self.inner.token_to_id(named) if isinstance(named, str) else found
        return None

    def word(self, token: int) -> str | None:
        """How one id is written; None when it has no word."""
        with _Caught():
            found = self.inner.id_to_token(int(token))
            return None if found is None else clean(found, limit=60)
        return None


class _Caught:
    """Swallows what the tokenizers library raises, and keeps a sentence on it.

    It is written in another language and raises `Exception` itself, or its panic, which is none.
    """

    def __init__(self) -> None:
        self.reason = ""

    def __enter__(self) -> _Caught:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        del trace
        if kind is None or issubclass(kind, MemauditError | MemoryError):
            return False
        foreign = kind is Exception or kind.__name__ == "PanicException"
        if not foreign and not issubclass(kind, LIBRARY_ERRORS):
            return False
        self.reason = clean(str(error) or kind.__name__, limit=200)
        return True


def open_tokenizer(folder: Path, rows: int | None) -> tuple[Tokens | None, tuple[str, ...]]:
    """The tokenizer in a folder, or None, and sentences for the report.

    `rows` is how many ids the model's embedding has: a tokenizer with more of them is another's.
    """
    if rows is None:
        return None, ()
    caught = _Caught()
    with caught:
        try:
            inner = _fast(folder) or _slow(folder)
        except MemauditError as error:
            return None, (f"the tokenizer was not read: {error.fact}",)
        if inner is None:
            return None, ("there is no tokenizer beside the model: it is fed embeddings",)
        inner.no_padding()
        inner.no_truncation()
        reason = _misfit(inner.get_vocab(with_added_tokens=True), rows)
        if reason:
            return None, (f"the tokenizer is not used: {reason}",)
        return Tokens(inner, *_frame(inner)), ()
    return None, (f"the tokenizer was not read: {caught.reason}",)


def _misfit(words: dict[str, int], rows: int) -> str:
    """Why a vocabulary cannot be the model's, or nothing.

    Of files that it does not understand the library makes a tokenizer that knows hardly a word.
    """
    most = 1 + max(words.values(), default=-1)
    if most > rows:
        return f"it has {most} ids, the embedding has {rows} rows"
    return f"it knows {len(words)} words, the embedding has {rows} rows" if most * 2 < rows else ""


def _fast(folder: Path) -> Any:
    """The tokenizer of a tokenizer.json, or None without one."""
    data = read_beside(folder, "tokenizer.json", most=LARGEST)
    if data is None:
        return None
    return library("tokenizers").Tokenizer.from_str(data.decode("utf-8"))


def _slow(folder: Path) -> Any:
    """What the library makes of the older files of a tokenizer, all of them local; or None."""
    if not require_beside(folder, _SLOW, most=LARGEST):
        return None
    with TemporaryDirectory(prefix="memaudit-") as private, quiet():
        for name in (*_SLOW, *_AROUND):
            data = read_beside(folder, name, most=LARGEST)
            if data is not None:
                (Path(private) / name).write_bytes(_harmless(data) if name in _SETTINGS else data)
        made = library().AutoTokenizer.from_pretrained(
            private, trust_remote_code=False, local_files_only=True
        )
    inner = getattr(made, "backend_tokenizer", None)
    if inner is None:
        raise ValueError(f"{type(made).__name__} has no form that the tokenizers library runs")
    return inner


def _harmless(data: bytes) -> bytes:
    """Settings of a tokenizer without those that could name another file, or code.

    Kept are truths and numbers, special tokens, and which class it is.
    """
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("the settings of the tokenizer are no JSON object")
    kept = {
        key: value
        for key, value in found.items()
        if value is None
        or isinstance(value, bool | int | float)
        or key.endswith(("_token", "_tokens"))
        or key in ("tokenizer_class", "model_type", "added_tokens_decoder")
    }
    return json.dumps(kept).encode()


def _frame(inner: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids in front of a text and behind it."""
    for sample in _SAMPLES:
        found = inner.encode(sample)
        special = found.special_tokens_mask
        if 0 in special:
            first = special.index(0)
            last = len(special) - special[::-1].index(0)
            return tuple(found.ids[:first]), tuple(found.ids[last:])
    ids = inner.encode("").ids
    # No sample has a token: by custom the first stands in front and the others behind.
    return tuple(ids[:1]), tuple(ids[1:])
