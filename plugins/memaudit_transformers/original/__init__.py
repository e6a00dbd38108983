"""Mamba and Mamba-2 as their first authors store them, translated for transformers."""

from memaudit_transformers.original.families import family_of, translate
from memaudit_transformers.original.translated import Translated

__all__ = ["Translated", "family_of", "translate"]
