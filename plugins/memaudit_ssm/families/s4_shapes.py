"""Whether the shapes of an older layer of S4 fit each other."""

from __future__ import annotations

from memaudit.errors import clean
from memaudit_ssm.families.family import weights_error

Shapes = dict[str, tuple[int, ...]]
#: The axes in the versions 2 and 3: K kernels, H features, N modes, S copies, R the rank.
_LOW_RANK = {
    "C": "KHN2",
    "B": "1SN2",
    "P": "RSN2",
    "Q": "RSN2",
    "w": "SN2",
    "inv_w_real": "SN",
    "log_w_real": "SN",
    "w_imag": "SN",
    "log_dt": "H",
    "L": "",
    "omega": "M2",
}
#: S4D of version 3.
_DIAGONAL = {
    "C": "KHN2",
    "B": "SN2",
    "A": "SN2",
    "inv_A_real": "SN",
    "log_A_real": "SN",
    "A_imag": "SN",
    "log_dt": "H",
}
#: Version 1: the rows are B and P, or C and Q.
_ROWS = {"C": "HRN2", "B": "HRN2", "w": "HN2", "log_dt": "H", "nodes": "M2"}


def require_fitting(shapes: Shapes, *, where: str) -> None:
    """Raise E_WEIGHTS unless every letter of the axes has one size."""
    first = "krylov" in where
    wanted = _ROWS if first else _LOW_RANK if "P" in shapes else _DIAGONAL
    sizes = {"1": 1, "2": 2}
    # C names most letters, and is looked at first.
    for name in sorted(shapes, key=lambda item: item != "C"):
        axes = wanted[name]
        # Version 1 keeps w and B once for all features, or once for each.
        if first and name in ("w", "B") and len(shapes[name]) == len(axes) - 1:
            axes = axes[1:]
        sizes_here = dict(zip(axes, shapes[name], strict=False))
        known = {letter: sizes.get(letter, size) for letter, size in sizes_here.items()}
        if len(axes) != len(shapes[name]) or 0 in shapes[name] or known != sizes_here:
            raise weights_error(f"{clean(where)}{name} {shapes[name]} does not fit its neighbours")
        sizes |= known
    if sizes["H"] % sizes.get("S", 1):
        raise weights_error(f"{clean(where)}: {sizes['S']} copies do not fit {sizes['H']} features")
