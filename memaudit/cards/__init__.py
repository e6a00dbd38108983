"""Model cards: a section in a README, and the hub's evaluation results, both on disk only."""

from memaudit.cards.eval_results import DATASET, eval_results
from memaudit.cards.matching import matches
from memaudit.cards.section import BEGIN, END, with_section
from memaudit.cards.writing import FOLDER, README, Card, check_card, write_card

__all__ = [
    "BEGIN",
    "DATASET",
    "END",
    "FOLDER",
    "README",
    "Card",
    "check_card",
    "eval_results",
    "matches",
    "with_section",
    "write_card",
]
