"""Every row by its name, as strings: reading this page imports nothing."""

from __future__ import annotations

import difflib
import importlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from examples.reproduce.row import Row

#: paper → row → module below examples.reproduce, in the order of the papers.
ROWS: Final[dict[str, dict[str, str]]] = {
    "Inverse approximation theory for nonlinear RNNs (IATN)": {
        "I-F1a/b": "iatn.f01_linear_stability",
        "I-F2": "iatn.f02_tanh_polynomial",
        "I-F2'": "iatn.f02_epochs",
        "I-F3": "iatn.f03_teachers",
        "I-F4a/b": "iatn.f04_stable_forms",
        "I-F5": "iatn.f05_bilstm_sentiment",
        "I-F6": "iatn.f06_bert_sentiment",
        "I-F7a/b": "iatn.f07_relu",
        "I-F8": "iatn.f08_hardtanh_tanh",
        "I-F9, I-T1": "iatn.f09_mnist",
        "I-F10a-h": "iatn.f10_heaviside_impulse",
        "I-F11a/b": "iatn.f11_diverse_memories",
        "I-F12": "iatn.f12_transformer",
        "I-Thm3.9": "iatn.thm39_rate_and_radius",
        "I-eq4/120/127": "iatn.eq004_three_memories",
        "I-AppC": "iatn.app_c_rescaling",
        "I-AppH": "iatn.app_h_identity",
        "I-eq142": "iatn.eq142_gru",
        "I-001": "iatn.open_checks",
    },
    "StableSSM": {
        "S-F1a-c": "stablessm.f01_families",
        "S-F2, S-T1": "stablessm.f02_gradient_scales",
        "S-F3": "stablessm.f03_gradient_range",
        "S-F4a, S-F5": "stablessm.f04_language_ratios",
        "S-F4b, S-F6": "stablessm.f06_learning_rates",
        "S-T2": "stablessm.t02_language_models",
        "S-T3": "stablessm.t03_large_rate",
        "S-T4": "stablessm.t04_associative_recall",
        "S-T5/T6": "stablessm.t05_images",
        "S-F7": "stablessm.f07_mlp",
        "S-Thm3.1": "stablessm.thm31_bound",
        "S-Def3.2, B.3": "stablessm.def32_moduli",
        "S-Thm3.3": "stablessm.thm33_error_bound",
        "S-Thm3.4": "stablessm.thm34_gradient_bound",
        "S-eq55/56": "stablessm.eq55_price_of_memory",
    },
    "State-space models are universal, with exponential memory (Universal)": {
        "U-F5, U-F6": "universal.f05_random_models",
        "U-eq38": "universal.eq38_two_layers",
        "U-P3.1": "universal.p31_elementwise",
        "U-P3.2": "universal.p32_kernels",
        "U-P3.6/3.9": "universal.p36_constructions",
        "U-P3.11/12, Thm3.13": "universal.p311_convergence",
        "U-T1": "universal.t01_patterns",
    },
    "Universality of linear recurrences (Linear-recurrences)": {
        "O-L6": "recurrences.l06_ring",
        "O-F1-F4": "recurrences.f01_reconstruction",
        "O-F5": "recurrences.f05_roots_of_unity",
        "O-F6": "recurrences.f06_condition",
        "O-F7/F8": "recurrences.f07_haar",
        "O-F9": "recurrences.f09_lotka_volterra",
        "O-eq27": "recurrences.eq27_time_stamp",
    },
    "From the field": {
        "V-1": "field.v1_rounding",
        "V-2": "field.v2_drift",
        "V-3": "field.v3_partly_covered",
        "V-5": "field.v5_heavytail",
    },
}
#: Rows that rest on closed forms or take about a second; the tests run them.
BRIEF: Final = (
    "I-eq4/120/127",
    "I-AppH",
    "I-eq142",
    "S-F2, S-T1",
    "S-F7",
    "S-Def3.2, B.3",
    "S-Thm3.4",
    "U-eq38",
    "U-P3.1",
    "U-P3.2",
    "O-L6",
    "V-1",
    "V-2",
)


def names() -> tuple[str, ...]:
    """All rows, in the order of the papers."""
    return tuple(name for group in ROWS.values() for name in group)


def paper_of(name: str) -> str:
    """The paper that a row belongs to."""
    return next(paper for paper, group in ROWS.items() if name in group)


def chosen(words: list[str]) -> tuple[str, ...]:
    """The rows that are meant by I-F10, S-T6 or a whole name; unknown ones are a ValueError."""
    found: dict[str, None] = {}
    for word in words:
        fitting = [name for name in names() if word.lower() in _spoken(name)]
        if not fitting:
            raise ValueError(f"there is no row {word!r}; {_nearest(word)}")
        found.update(dict.fromkeys(fitting))
    return tuple(name for name in names() if name in found)


def _nearest(word: str) -> str:
    """The rows with a name like that, or where to look for them."""
    spoken = {way: name for name in names() for way in _spoken(name)}
    close = difflib.get_close_matches(word.lower(), spoken, n=5)
    known = dict.fromkeys(spoken[way] for way in close)
    return f"did you mean {'; '.join(known)}?" if known else "--list shows them"


def load(name: str) -> Row:
    """The row behind a name."""
    return importlib.import_module(f"examples.reproduce.{ROWS[paper_of(name)][name]}").ROW


def slug(name: str) -> str:
    """A name that files may have."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name.replace("'", "prime")).strip("-")


def _spoken(name: str) -> set[str]:
    """The ways in which a row may be asked for: I-F10 for I-F10a-h, O-F2 for O-F1-F4."""
    words = {name, slug(name)}
    letter = kind = ""
    for part in re.split(r",\s*|/(?=[A-Z0-9])", name):
        if part[1:2] == "-":
            letter, part = part[:2], part[2:]
        # "120" of eq4/120 is eq120, "3.9" of P3.6/3.9 is P3.9, "12" of P3.11/12 is P3.12
        kind = "" if part[0].isalpha() else re.sub(r"\d.*", "", kind) if "." in part else kind
        part = kind + part
        kind = re.match(r"[A-Za-z]*(\d+\.)?", part)[0]
        words |= {letter + part, letter + re.sub(r"[a-z]([/-][a-z])*$", "", part)}
        if span := re.fullmatch(r"([A-Z])(\d)-\1(\d)", part):
            words |= {f"{letter}{span[1]}{n}" for n in range(int(span[2]), int(span[3]) + 1)}
    return {word.lower() for word in words}
