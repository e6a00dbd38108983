"""Target functionals, one a file; `target` reads one from text."""

from memaudit.targets.naming import target as target

__all__ = ["target"]
