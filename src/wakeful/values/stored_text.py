"""Which text every database can store: no U+0000 (PostgreSQL), no lone surrogates (UTF-8).

Such text in a request is refused (`is_storable`). In a record of something that has happened, such as the
output or the error of a run, it is replaced (`clean_text`, `clean_json`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Final, NoReturn

#: The error message for text that is refused.
UNSTORABLE: Final = "it has a character that cannot be stored (U+0000, or a lone surrogate); remove it"
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def is_storable(text: str) -> bool:
    """Return whether every database can store this text."""
    if text.isascii():
        return "\x00" not in text
    return _UNSTORABLE.search(text) is None


def clean_text(text: str) -> str:
    """Return the text with each character that cannot be stored replaced by U+FFFD.

    >>> clean_text("a\\x00b")
    'a�b'
    """
    return text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)


def read_cleaned_json(text: str) -> object:
    """Return the value of JSON text, with each character that cannot be stored replaced. Raises ValueError.

    Escapes can hold a lone surrogate too. NaN, Infinity and 1e999 are not JSON.
    """
    try:
        value: object = _DECODER.decode(text)
        if _ESCAPED_SURROGATE.search(text):
            value = _DECODER.decode(clean_text(json.dumps(value, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def clean_json(text: str) -> str | None:
    """Return JSON text that every reader can read and write again; None for text that is not JSON.

    >>> clean_json('{"note":"\\\\ud800"}'), clean_json('{"note":')
    ('{"note":"�"}', None)
    """
    try:
        value = read_cleaned_json(text)
    except ValueError:
        return None
    if _ESCAPED_SURROGATE.search(text):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return clean_text(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse_constant(number)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
