"""What can be read back from a state: past inputs of linear recurrences, and of any model.

After k inputs from rest the state of x_t = A x_{t-1} + B u_t is x_k = V_k u_{1:k}, with
V_k = [A^{k-1} B, …, A B, B]; with A diagonal and B of ones V_k is a Vandermonde matrix.
"""

from memaudit.numerics.recall.decoding import CrossFit
from memaudit.numerics.recall.decomposition import Decomposition, unit_rows
from memaudit.numerics.recall.drift import Drift
from memaudit.numerics.recall.freedom import free_numbers
from memaudit.numerics.recall.haar import haar_basis
from memaudit.numerics.recall.inputs import Whitened, gaussian, whitened
from memaudit.numerics.recall.reaching import numbers_of, past_rows, reachability, vandermonde
from memaudit.numerics.recall.reconstruction import (
    condition,
    decodability,
    reconstruct,
    rounded,
)
from memaudit.numerics.recall.ring import ring, roots_of_unity
from memaudit.numerics.recall.stationary import earlier_rows, walked_rows

__all__ = [
    "CrossFit",
    "Decomposition",
    "Drift",
    "Whitened",
    "condition",
    "decodability",
    "earlier_rows",
    "free_numbers",
    "gaussian",
    "haar_basis",
    "numbers_of",
    "past_rows",
    "reachability",
    "reconstruct",
    "ring",
    "roots_of_unity",
    "rounded",
    "unit_rows",
    "vandermonde",
    "walked_rows",
    "whitened",
]
