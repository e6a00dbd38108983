"""The zoo of state-space models in hosts of unknown make."""

from memaudit_ssm.adapter import SsmAdapter

__all__ = ["SsmAdapter"]
