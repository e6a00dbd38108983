"""Reference layers of the state-space families: small, readable, and with exact kernels."""

from memaudit_ssm.layers.core import Core
from memaudit_ssm.layers.lru import LRU
from memaudit_ssm.layers.s4 import S4
from memaudit_ssm.layers.s4d import S4D
from memaudit_ssm.layers.s5 import S5

__all__ = ["LRU", "S4", "S4D", "S5", "Core"]
