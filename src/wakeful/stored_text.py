"""Which text every database can store: PostgreSQL stores no U+0000, UTF-8 no half of a surrogate pair.

One rule for all stores. Text in a request is refused (`is_storable`). Text about something that has happened,
such as the output and the error of a run, is cleaned (`cleaned`).
"""

from __future__ import annotations

import re
from typing import Final

#: What is said of text that is refused.
UNSTORABLE: Final = "it has a character that cannot be stored (U+0000, or half of a pair); take it out"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Whether every database can store this text."""
    if text.isascii():
        return "\x00" not in text
    return _UNSTORABLE.search(text) is None


def cleaned(text: str) -> str:
    """The text with U+FFFD in the place of each character that cannot be stored.

    >>> cleaned("a\\x00b")
    'a�b'
    """
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
