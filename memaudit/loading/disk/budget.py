"""How many bytes of weights may be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memaudit.errors import SourceError
from memaudit.loading.disk.machine_memory import available_memory

if TYPE_CHECKING:
    from memaudit.loading.access import Access

_UNITS = ("bytes", "KB", "MB", "GB", "TB")


def require_room(size: int, access: Access, *, copies: int = 1, beside: int = 0) -> None:
    """Raise E_LIMIT when a source's weights have more bytes than may be opened.

    Unless the user says how many, it is the memory of this machine, shared between the `copies`
    that are alive at once while the source is read, less the bytes that reading takes `beside`.
    """
    stated = access.limits.max_bytes
    most = stated or max(available_memory() // copies - beside, 0)
    if size <= most:
        return
    fits = "the limit is" if stated else "this machine has memory for"
    raise SourceError(
        "E_LIMIT",
        f"the weights take {human_size(size)}, and {fits} {human_size(most)}",
        hint=f"on a machine with enough memory, raise it with --set max_bytes={_option(size)}",
        stage="open",
    )


def human_size(size: int) -> str:
    """A number of bytes as people say it, in powers of 1024."""
    unit = min((max(size, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / (1 << 10 * unit):.1f} {_UNITS[unit]}" if unit else f"{size} bytes"


def _option(size: int) -> str:
    """The size rounded up, as the option takes it: 6G."""
    unit = min((max(size, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{-(-size >> 10 * unit)}{('', 'K', 'M', 'G', 'T')[unit]}"
