"""The zoo of torch's recurrent layers."""

from memaudit_rnn.adapter import RnnAdapter

__all__ = ["RnnAdapter"]
