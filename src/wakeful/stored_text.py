"""Which text every database can store: no U+0000 (PostgreSQL), no lone surrogates (UTF-8).

Such text in a request is refused (`is_storable`). In a record of something that has happened, such as the
output or the error of a run, it is replaced (`cleaned`).
"""

from __future__ import annotations

import re
from typing import Final

#: The error message for text that is refused.
UNSTORABLE: Final = "it has a character that cannot be stored (U+0000, or a lone surrogate); remove it"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Return whether every database can store this text."""
    if text.isascii():
        return "\x00" not in text
    return _UNSTORABLE.search(text) is None


def cleaned(text: str) -> str:
    """Return the text with each character that cannot be stored replaced by U+FFFD.

    >>> cleaned("a\\x00b")
    'a�b'
    """
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
