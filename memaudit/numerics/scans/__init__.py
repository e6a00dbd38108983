"""Linear recurrences over long sequences, in bounded memory, in the precision of their inputs."""

from __future__ import annotations

from memaudit.numerics.scans.linear import linear_scan
from memaudit.numerics.scans.selective import selective_scan
from memaudit.numerics.scans.state_space_dual import chunk_scan
from memaudit.numerics.scans.wkv import wkv_scan

__all__ = ["chunk_scan", "linear_scan", "selective_scan", "wkv_scan"]
