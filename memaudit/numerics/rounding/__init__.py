"""Number formats as functions: a tensor in, the tensor that its stored form stands for out."""

from memaudit.numerics.rounding.formats import FORMATS, rounded

__all__ = ["FORMATS", "rounded"]
