"""The text that measurements in token space read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from memaudit.errors import ArgumentError

#: A text is read up to here: no query looks at more.
LONGEST_TEXT = 1 << 22
#: A stray byte is forgiven; a file in another encoding is not.
MOST_ODD = 0.01
#: A text no longer than this may be meant as the name of a file.
LONGEST_NAME = 256


def read_text(text: str | Path | None) -> str:
    """The text that queries in token space read: given, in a file, or the one in the package."""
    if text is None:
        from memaudit.data import sample_text

        return sample_text()
    if isinstance(text, str) and len(text) < LONGEST_NAME and _is_file(text):
        raise ArgumentError("the text is the name of a file", hint="give it as a pathlib.Path")
    if isinstance(text, Path):
        try:
            with text.open("rb") as file:
                text = _decoded(file.read(LONGEST_TEXT), text)
        except OSError as error:
            fact = f"the text cannot be read: {error.strerror}"
            raise ArgumentError(fact, hint="give a file with plain text", source=text) from None
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError("the text is empty", hint="give a file with a few thousand words")
    return text


def _decoded(data: bytes, source: Path) -> str:
    """The text of a file; the last letter may have been cut in two."""
    text = data.decode("utf-8", errors="replace")
    odd = text[:-4].count("\ufffd") + text.count("\0")
    if odd > MOST_ODD * len(text):
        fact = "the file is no text in UTF-8"
        raise ArgumentError(fact, hint="convert it, e.g. with iconv -t utf-8", source=source)
    return text


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or with a NUL byte
        return False


def describe_text(text: str | Path | None) -> str:
    """What a report says about the text: where it came from, its length and its digest."""
    content = read_text(text)
    digest = hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()
    origin = "the sample in the package" if text is None else "given"
    return f"{origin}, {len(content)} characters, sha256 {digest}"
