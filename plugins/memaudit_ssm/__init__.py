"""The zoo of state-space models: research checkpoints, and scans in hosts of unknown make."""

from memaudit_ssm.adapter import SsmAdapter
from memaudit_ssm.core import Core
from memaudit_ssm.lru import LRU
from memaudit_ssm.s4 import S4
from memaudit_ssm.s4d import S4D
from memaudit_ssm.s5 import S5

__all__ = ["LRU", "S4", "S4D", "S5", "Core", "SsmAdapter"]
