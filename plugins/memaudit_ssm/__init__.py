"""The zoo of state-space models: research checkpoints, and scans in hosts of unknown make."""

from memaudit_ssm.adapter import SsmAdapter
from memaudit_ssm.layers import LRU, S4, S4D, S5, Core

__all__ = ["LRU", "S4", "S4D", "S5", "Core", "SsmAdapter"]
