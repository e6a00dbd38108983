"""The table of kinds; the first that matches a module names it."""

from __future__ import annotations

from memaudit_transformers.recurrent.dual import Dual
from memaudit_transformers.recurrent.gated_delta import GatedDelta
from memaudit_transformers.recurrent.kimi_delta import KimiDelta
from memaudit_transformers.recurrent.kind import AbstractKind
from memaudit_transformers.recurrent.lightning import Lightning
from memaudit_transformers.recurrent.mlstm import MLstm
from memaudit_transformers.recurrent.rg_lru import RgLru
from memaudit_transformers.recurrent.rwkv import Rwkv
from memaudit_transformers.recurrent.selective import Selective

KINDS: tuple[AbstractKind, ...] = (
    Selective(),
    Dual(),
    GatedDelta(),
    KimiDelta(),
    RgLru(),
    Rwkv(),
    MLstm(),
    Lightning(),
)
