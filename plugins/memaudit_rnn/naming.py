"""What the name of a layer says about its place beside a recurrent stack."""

from __future__ import annotations

import re

FRONT_SIDE, BACK_SIDE = "front", "behind"
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
TABLE = re.compile(r"^(?:\w*emb(?:ed|edding)?s?|embedder|lookup|wte|vocab|tok|tokens?)$")
FRONT = re.compile(
    r"^(?:\w*emb(?:ed|edding)?s?|embedder|lookup|wte|tok|tokens?|enc|encode|encoder"
    r"|in|inp|inputs?|front|frontend|pre|prenet|stem)$"
)
BACK = re.compile(
    r"^(?:outs?|outputs?|heads?|dec|decode|decoder|class|classes|classifier|classify|logits?"
    r"|preds?|predict|predictor|predictions?|tags?|tagger|final|readout|scores?|scorer|labels?"
    r"|targets?|regressor|regression|post|postnet)$"
)
#: Kinds of layers, which by custom stand behind when nothing else is said.
CUSTOM = re.compile(r"^(?:fc|lin|linear|dense|projection)$")
#: Such a layer acts beside the path from input to output, not in series with it.
ASIDE = re.compile(
    r"^(?:att|attn|attention|attend|gates?|gating|skip|shortcut|residual|highway"
    r"|\w*norm|bn|ln)$"
)


def says_table(name: str, prefix: str = "") -> bool:
    """Whether a layer is called an embedding, and not a linear layer of one."""
    words = _own_words(name, prefix)
    return _any(TABLE, words) and not _any(CUSTOM, words) and "proj" not in words


def stands_aside(name: str, prefix: str) -> bool:
    """Whether a layer, or the module that it is in, is an attention, a gate, a skip or a norm."""
    return _any(ASIDE, _words(_unshared(name, prefix)))


def clear_side(name: str, prefix: str) -> str | None:
    """The side that a layer's own name states; None when it states none or both.

    `prefix` is the stack's: what both names begin with tells nothing.
    """
    words = _own_words(name, prefix)
    front, back = _any(FRONT, words), _any(BACK, words)
    if front == back:
        return None
    return FRONT_SIDE if front else BACK_SIDE


def likely_side(name: str, prefix: str) -> str | None:
    """The clear side, else the side where custom puts a layer of this name."""
    words = _own_words(name, prefix)
    by_custom = not _any(FRONT, words) and _any(CUSTOM, words)
    return clear_side(name, prefix) or (BACK_SIDE if by_custom else None)


def _own_words(name: str, prefix: str) -> list[str]:
    """The words of a layer's last component; the numbers of a Sequential are no names."""
    components = _unshared(name, prefix).split(".")
    return next((words for part in reversed(components) if (words := _words(part))), [])


def _unshared(name: str, prefix: str) -> str:
    """The name without the components and words that the prefix begins with too."""
    pairs = enumerate(zip(name, prefix, strict=False))
    alike = next((at for at, (a, b) in pairs if a != b), min(len(name), len(prefix)))
    return name[1 + max(name.rfind(".", 0, alike), name.rfind("_", 0, alike)) :]


def _words(text: str) -> list[str]:
    return [word.lower() for word in WORD.findall(text)]


def _any(kind: re.Pattern[str], words: list[str]) -> bool:
    return any(kind.match(word) for word in words)
