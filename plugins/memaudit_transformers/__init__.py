"""The zoo of transformers: encoders, language models, and the recurrent families among them."""

from memaudit_transformers.adapter import TransformersAdapter

__all__ = ["TransformersAdapter"]
