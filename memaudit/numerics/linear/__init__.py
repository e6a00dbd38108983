"""Linear time-invariant state-space systems: kernels, convolution and stepping.

A system is x_t = A x_{t-1} + B u_t, y_t = Re(C x_t) + D u_t. Its kernel has a closed form,
rho(s) = Re(C A^s B), with D added at s = 0; running it is a convolution or a recurrence.
"""

from memaudit.numerics.linear.bank import Bank, DenseBank
from memaudit.numerics.linear.dense import Dense
from memaudit.numerics.linear.discretize import DISCRETIZATIONS, discretize
from memaudit.numerics.linear.modal import Modal
from memaudit.numerics.linear.system import EXECUTIONS, System

__all__ = [
    "DISCRETIZATIONS",
    "EXECUTIONS",
    "Bank",
    "Dense",
    "DenseBank",
    "Modal",
    "System",
    "discretize",
]
