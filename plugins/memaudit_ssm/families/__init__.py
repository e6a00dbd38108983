"""The families of state-space checkpoints, in the order in which they are looked for."""

from memaudit_ssm.families.curse import CurseFamily
from memaudit_ssm.families.family import AbstractFamily
from memaudit_ssm.families.lru import LRUFamily
from memaudit_ssm.families.s4 import S4Family
from memaudit_ssm.families.s4_old import S4V1Family, S4V2Family, S4V3Family
from memaudit_ssm.families.s4d import S4DFamily
from memaudit_ssm.families.s5 import S5Family

FAMILIES: tuple[AbstractFamily, ...] = (
    S4Family(),
    S4V3Family(),
    S4V2Family(),
    S4V1Family(),
    S4DFamily(),
    CurseFamily(),
    S5Family(),
    LRUFamily(),
)

__all__ = ["FAMILIES", "AbstractFamily"]
