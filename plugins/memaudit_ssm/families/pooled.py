"""Which steps a model's decoder reads: one option, and the words of every config for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit_ssm.families.presumed import says
from memaudit_ssm.models.pooling import POOLINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memaudit_ssm.facts import Facts

#: What configs and options may say instead.
_WORDS = {"true": "mean", "false": "none", "pool": "mean"}
_PLACES = (("model",), ())
#: No default of a code: users change that line, and the answer of every step tells more.
_UNSAID = (
    "none: nothing says whether the model averages over time, so every step is read; if it "
    "does: --set pool=mean"
)


def pool_word(
    facts: Facts,
    *,
    default: str,
    also: Sequence[str] = (),
    places: Sequence[tuple[str, ...]] = _PLACES,
) -> str:
    """The very word that is said, true and false among them; `default` is the code's own."""
    # Questions show the first choice as their example.
    ordered = (default, *(word for word in (*POOLINGS, *_WORDS) if word != default))
    return facts.choice("pool", ordered, default=default, also=also, places=places)


def read_pooling(facts: Facts, *, default: str, also: Sequence[str] = ()) -> str:
    """None, mean or last; `default` is what the code does where a config is silent."""
    found = pool_word(facts, default=default, also=also)
    return _WORDS.get(found, found)


def every_step_unless_said(facts: Facts, *, also: Sequence[str] = (), ask: bool = True) -> str:
    """None, mean or last; every step where a config is silent, or, unless `ask`, without one."""
    if not ask and not says(facts, "pool", also):
        facts.assumed["pool"] = _UNSAID
        return "none"
    found = read_pooling(facts, default="none", also=also)
    tell_every_step(facts)
    return found


def tell_every_step(facts: Facts) -> None:
    """Say of an assumed pooling that it is no default of a code, and how to change it."""
    if "pool" in facts.assumed:
        facts.assumed["pool"] = _UNSAID
