"""The selective scan of `memaudit.numerics.scans` as compiled code; importing it needs numba.

All is done to a block of channels side by side while it is in the nearest cache, so that nothing
but the inputs and the answers passes through memory. The first import compiles for a second or two;
numba keeps the result beside this file or in the user's cache.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, float32, intp, njit, types, void

#: Channels scanned together, and steps laid out together: all their arrays fit the nearest cache.
BLOCK, STEPS = 128, 16

_OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_ONE, _TWO, _ZERO, _INFINITY = (np.float32(x) for x in (1, 2, 0, np.inf))
#: Adding it rounds to a whole number, which then stands in the lowest bits.
_ROUNDER = np.float32(1.5 * 2**23)
#: Outside, a power of two is zero or infinite: numbers with fewer digits are not made.
_LOWEST, _HIGHEST = np.float32(-126), np.float32(127.5)
_LOG2E = np.float32(1.4426950408889634)
#: ln 2 in two parts, of which the first has few digits.
_LN2, _LN2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
#: 2^f on [-1/2, 1/2] and 2 atanh(s)/s - 2 in powers of s² on [0, 1/3], to a tenth of a rounding.
_P1, _P2, _P3, _P4, _P5, _P6 = (
    np.float32(x)
    for x in (0.693147188, 0.240226508, 0.0555035711, 9.61808256e-3, 1.33908634e-3, 1.54531629e-4)
)
_Q1, _Q2, _Q3, _Q4, _Q5, _Q6 = (
    np.float32(2 * x)
    for x in (0.333333333, 0.20000005, 0.14285153, 0.11132355, 0.08732356, 0.10393793)
)


@njit(**_OPTIONS)
def _power(x, rounded, rest):
    """2^x, where x is a whole number, rounded by `_ROUNDER`, and a rest."""
    p = ((((_P6 * rest + _P5) * rest + _P4) * rest + _P3) * rest + _P2) * rest + _P1
    whole = np.int32((np.float32(rounded).view(np.int32) + 127) << 23).view(np.float32)
    power = _INFINITY if x > _HIGHEST else (p * rest + _ONE) * whole
    return _ZERO if x < _LOWEST else power


@njit(**_OPTIONS)
def _exp2(x):
    rounded = x + _ROUNDER
    return _power(x, rounded, x - (rounded - _ROUNDER))


@njit(**_OPTIONS)
def _exp(x):
    rounded = x * _LOG2E + _ROUNDER
    whole = rounded - _ROUNDER
    return _power(x * _LOG2E, rounded, ((x - whole * _LN2) - whole * _LN2_REST) * _LOG2E)


@njit(**_OPTIONS)
def _softplus(x):
    """log(1 + e^x) = max(x, 0) + 2 atanh(s) with s = e/(2 + e) and e = exp(-|x|)."""
    e = _exp(-abs(x))
    s = e / (_TWO + e)
    q = s * s
    p = ((((_Q6 * q + _Q5) * q + _Q4) * q + _Q3) * q + _Q2) * q + _Q1
    return max(x, _ZERO) + (s * _TWO + s * q * p)


@njit(**_OPTIONS)
def _lay_out(x, room):
    """Write x (channels, steps) into a room of (steps, channels), in the order of its memory."""
    if x.strides[0] <= x.strides[1]:
        for t in range(x.shape[1]):
            for c in range(x.shape[0]):
                room[t, c] = x[c, t]
    else:
        for c in range(x.shape[0]):
            for t in range(x.shape[1]):
                room[t, c] = x[c, t]


_ANY = types.Array(float32, 3, "A")
_ROW, _CUBE = float32[::1], float32[:, :, ::1]


@njit(
    void(
        *(_ANY, _ANY, float32[:, ::1], _ANY, _ANY, _ROW, _ANY, _ROW, boolean),
        *(_CUBE, _CUBE, intp, intp),
    ),
    cache=True,
    **_OPTIONS,
)
def scan_blocks(
    hidden, dt, exponent, keys, queries, direct, gate, bias, softplus, state, out, start, stop
):
    """Write answers (B,T,d) and last states (B,N,d) of the blocks numbered from start to stop.

    Every row has ceil(d / BLOCK) blocks. Arguments are those of `selective_scan`, with A in base 2
    as (N,d) and an empty `direct` D or `gate` z for None; the state is read first.
    """
    size, width = exponent.shape
    length, blocks = hidden.shape[2], -(-width // BLOCK)
    h, a = np.zeros((size, BLOCK), np.float32), np.zeros((size, BLOCK), np.float32)
    u, step = np.zeros((STEPS, BLOCK), np.float32), np.zeros((STEPS, BLOCK), np.float32)
    fed, z = np.zeros((STEPS, BLOCK), np.float32), np.zeros((STEPS, BLOCK), np.float32)
    y = np.zeros((STEPS, BLOCK), np.float32)
    b, q = np.zeros((STEPS, size), np.float32), np.zeros((STEPS, size), np.float32)
    for block in range(start, stop):
        row, first = block // blocks, block % blocks * BLOCK
        last = min(first + BLOCK, width)
        count = last - first  # what lies beyond it in a room is worked on and never read
        for n in range(size):
            for c in range(count):
                h[n, c], a[n, c] = state[row, n, first + c], exponent[n, first + c]
        for begin in range(0, length, STEPS):
            end = min(begin + STEPS, length)
            _lay_out(hidden[row, first:last, begin:end], u)
            _lay_out(dt[row, first:last, begin:end], step)
            if gate.size:
                _lay_out(gate[row, first:last, begin:end], z)
            _lay_out(keys[row, :, begin:end], b)
            _lay_out(queries[row, :, begin:end], q)
            for t in range(end - begin):
                for c in range(count):
                    step[t, c] += bias[first + c]
                for c in range(BLOCK):
                    if softplus:
                        step[t, c] = _softplus(step[t, c])
                    fed[t, c] = step[t, c] * u[t, c]
                    y[t, c] = _ZERO
                for n in range(size):
                    key, query = b[t, n], q[t, n]
                    for c in range(BLOCK):
                        now = _exp2(step[t, c] * a[n, c]) * h[n, c] + fed[t, c] * key
                        h[n, c] = now
                        y[t, c] += now * query
                if direct.size:
                    for c in range(count):
                        y[t, c] += direct[first + c] * u[t, c]
                if gate.size:
                    for c in range(BLOCK):
                        y[t, c] *= z[t, c] / (_ONE + _exp(-z[t, c]))
                for c in range(count):
                    out[row, begin + t, first + c] = y[t, c]
        for n in range(size):
            for c in range(count):
                state[row, n, first + c] = h[n, c]
