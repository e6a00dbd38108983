"""The zoo of timm: image models whose patches, in raster order, are a sequence."""

from memaudit_timm.adapter import TimmAdapter

__all__ = ["TimmAdapter"]
